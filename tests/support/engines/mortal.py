"""A server that dies at one of its writes, with turns that run when the test says so."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm="example")
KEY = TaskKey(str(ANN), "task-1")

Fate = tuple[int, str]
"""The number of a write, and whether the process dies before or after it."""

WRITES = ("save_checkpoint", "put_wait", "commit")


class Died(BaseException):
    """The process is gone."""


@dataclass
class MortalStore:
    """A store whose process dies at one of its writes: before it, or after it."""

    store: Store
    fate: Fate | None = None
    writes: int = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.store, name)

        async def write(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            if self.fate == (self.writes, "before"):
                raise Died
            result = await method(*args, **kwargs)
            if self.fate == (self.writes, "after"):
                raise Died
            return result

        return write if name in WRITES else method


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
        store = cast(Store, MortalStore(self.store, fate))
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
