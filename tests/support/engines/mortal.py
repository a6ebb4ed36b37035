"""Processes that die at one of their writes, and a server whose turns run when the test says so."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.ports import Store
from mail.core.task.rows import Rows, Write
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.errors import StoreUnavailable
from mail.testing.clock import FakeClock
from mail.testing.faults import DIE, FaultyPort, Plan, Points, Verdict, never

ANN = Principal(role="user", id="ann", swarm="example")
KEY = TaskKey(str(ANN), "task-1")

Fate = tuple[int, str]
"""The number of a write, and whether the process dies before or after it."""

WRITES = ("save_checkpoint", "put_wait", "commit")


def at_call(number: int, when: str, *methods: str, verdict: Verdict = DIE) -> Plan:
    """Return the plan with this verdict `before` or `after` the `number`-th call of these methods of a port."""
    calls = count(1)

    def plan(_: int, name: str) -> Verdict:
        side, _, method = name.partition(" ")
        is_one = side == when and method.rpartition(".")[2] in methods
        return verdict if is_one and next(calls) == number else 0.0

    return plan


def mortal_rows(rows: Rows, point: int | None = None, *, limit: int | None = None) -> Rows:
    """Return rows of which a write fails as its process has died: at point 0 before the first one, at 1 after it.

    A write takes no more than `limit` of those with times.
    """

    async def write(writes: Sequence[Write]) -> bool:
        assert sum(each.times is not None for each in writes) <= mortal.write_limit
        return await rows.write(writes)

    died = StoreUnavailable("the process has died")
    plan = (
        never
        if point is None
        else at_call(point // 2 + 1, ("before", "after")[point % 2], "write", verdict=died)
    )
    mortal: Any = FaultyPort(rows, "rows", Points(plan), write=write)
    mortal.write_limit = limit or rows.write_limit
    return cast(Rows, mortal)


@dataclass
class MortalServer:
    """A process that runs a swarm on a store."""

    store: Store
    clock: FakeClock

    def __post_init__(self) -> None:
        self.restart()

    @abstractmethod
    def swarm(self) -> SwarmCore:
        """Return the swarm."""

    def restart(self, fate: Fate | None = None) -> None:
        """Begin again with nothing but what is stored."""
        self.queue = LocalQueue(lambda: self.clock.now().timestamp())
        points = Points(at_call(*fate, *WRITES) if fate else never)
        store = cast(Store, FaultyPort(self.store, "store", points))
        self.runtime = Runtime(self.swarm(), store, self.queue, self.clock)

    async def work(self) -> None:
        """Run turns until none waits."""
        while len(self.queue):
            await self.runtime.run_turn(*await self.queue.take())

    async def begin(self) -> None:
        """Begin the task, and run its turns."""
        await self.runtime.submit(ANN, Submission(body="go", task_id=KEY.task_id))
        await self.work()

    async def take_over(self) -> None:
        """Begin again where a dead process has left off, after its leases have expired."""
        self.clock.advance(100)
        self.restart()
        await self.runtime.sweep()
        await self.runtime.recover()
        await self.work()

    async def task(self) -> Task:
        """Return the task as it is stored."""
        task = await self.store.load(KEY)
        assert task is not None
        return task

    async def answer(self, generation: int = 1) -> str:
        """Return the answer of a generation."""
        response = await self.store.read_response(KEY, generation)
        assert response is not None
        return response.message.body
