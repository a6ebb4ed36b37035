"""The processes of the soak test of actions that finish later: one begins many calls, lets them wait, finishes
them, or looks at what has become of them. If it is killed, the next one continues.

    python later_soak.py FOLDER WORLD NUMBER_OF_CALLS

What happens outside is in files of the folder: `begun` has the keys and tokens of calls that have begun, and `done` the
keys of those whose result was accepted.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_points import read_lines
from crash_worlds import AheadClock, DynamoDBWorld, PostgresWorld, SQLiteWorld, World

from mail.adapters.aws.client import Aws
from mail.adapters.local.queue import LocalQueue
from mail.adapters.local.workers import LocalWorkers
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.callbacks import LATER, CallResult, Later
from mail.core.task.events import EventKind
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.turns.context import current_context
from mail.testing.agents import NAME, Call, View, build_swarm, call, complete, wait
from mail.testing.faults import FaultyPort, Points

CALLS_PER_TASK = 20
AT_ONCE = 32
YEAR = 31_536_000.0
DAY = 86_400.0
GLANCE_SECONDS = 0.2
WRITES = ("commit", "put_wait", "save_checkpoint", "park", "release", "open_turn", "claim", "delete", "renew")
ANN = Principal(role="user", id="ann", swarm=NAME)


def director(view: View) -> list[Call]:
    """Render films, and complete when all have come."""
    if view.mail.sender_type == "user":
        return [call("render", n=n) for n in range(CALLS_PER_TASK)]
    films = [letter.body for letter in view.messages if letter.subject == "::action_complete::"]
    return [complete(str(len(films)))] if len(films) == CALLS_PER_TASK else [wait("more films")]


@dataclass
class Soak:
    """What one process does."""

    folder: Path
    world: World
    calls: int
    clock: AheadClock
    points: Points = field(default_factory=Points)

    def __post_init__(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._logs = {name: os.open(self.folder / name, flags) for name in ("begun", "done")}

    async def run(self, phase: str) -> dict[str, Any]:
        """Do what a phase asks for; return what there is to say."""
        async with self.world.open(Points(), self.clock) as self.store:
            said = await {"begin": self.begin, "wait": self.wait, "finish": self.finish, "check": self.check}[
                phase
            ]()
        return said | {"problems": list(self.world.problems())}

    async def begin(self) -> dict[str, Any]:
        """Begin all tasks, and wait until each sleeps."""
        async with self._serving():
            await _each(self.keys, self._begin_one)
        return {}

    async def wait(self) -> dict[str, Any]:
        """Let ninety days pass, in which nothing is written, and no task is due."""
        before = [await self._task(key) for key in self.keys]
        async with self._serving():
            self.points.names.clear()
            for _ in range(90):
                self.clock.advance(DAY)
                await self.runtime.sweep()
                await self.runtime.recover(quiet_for=60.0)
        names = Counter(
            name.partition(".")[2] for name in self.points.names if name.startswith("before store.")
        )
        after = [await self._task(key) for key in self.keys]
        return {"requests": names, "writes": sum(names[each] for each in WRITES), "changed": before != after}

    async def finish(self) -> dict[str, Any]:
        """Give each call its result, until it is accepted, and wait for the answers."""
        tokens = dict(line.split() for line in read_lines(self.folder / "begun"))
        left = tokens.keys() - {*read_lines(self.folder / "done")}
        async with self._serving():
            await _each(sorted(left), lambda key: self._finish_one(key, tokens[key]))
            await _each(self.keys, self._await_answer)
        return {}

    async def check(self) -> dict[str, Any]:
        """Count what has become of the calls."""
        found: Counter[str] = Counter()
        for key in self.keys:
            task = await self._task(key)
            assert task is not None
            response = await self.store.read_response(key, 1)
            events = await self.store.read_events(key)
            ends = Counter(
                event.extra.tool_call_id  # type: ignore[attr-defined]
                for event in events
                if event.kind in (EventKind.ACTION_COMPLETE, EventKind.ACTION_ERROR)
            )
            found["completed"] += task.status is TaskStatus.COMPLETED
            found["answered"] += response is not None and response.message.body == str(CALLS_PER_TASK)
            found["ended once"] += sum(count == 1 for count in ends.values())
            found["ended again"] += sum(count > 1 for count in ends.values())
            found["failed"] += sum(event.kind is EventKind.ACTION_ERROR for event in events)
            found["open"] += task.waits.open_calls + len(await self.store.list_waits(key, limit=99))
        found["tokens"] = len({*read_lines(self.folder / "begun")})
        return dict(found)

    @property
    def keys(self) -> list[TaskKey]:
        return [TaskKey(str(ANN), f"task-{n}") for n in range(self.calls // CALLS_PER_TASK)]

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        queue = self.world.queue() or LocalQueue(lambda: self.clock.now().timestamp())
        store: Any = FaultyPort(self.store, "store", self.points)
        self.runtime = Runtime(self._swarm(), store, queue, self.clock)
        workers = LocalWorkers(self.runtime, queue)
        await workers.start()
        await self.runtime.recover()
        forgetting = asyncio.create_task(self._forget_names())
        yield
        forgetting.cancel()
        await workers.stop(grace=30.0)

    async def _forget_names(self) -> None:
        """Keep the names of points few, unless they are counted."""
        while len(self.points.names) < 100_000:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(1.0)
        self.points.names.clear()

    def _swarm(self) -> SwarmCore:
        action = ActionCore("render", self._render, idempotent=True, finish_within=YEAR)
        return build_swarm({"director": director}, actions={"render": action})

    async def _render(self, _arguments: dict[str, Any]) -> Later:
        context = current_context()
        os.write(self._logs["begun"], f"{context.idempotency_key} {context.callback.token}\n".encode())
        return LATER

    async def _begin_one(self, key: TaskKey) -> None:
        if await self._task(key) is None:
            await self.runtime.submit(ANN, Submission(body="begin", task_id=key.task_id))
        while (task := await self._task(key)) is None or not task.is_asleep:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(GLANCE_SECONDS)

    async def _finish_one(self, key: str, token: str) -> None:
        await self.runtime.callbacks.finish(token, CallResult(f"film {key}"))
        os.write(self._logs["done"], f"{key}\n".encode())

    async def _await_answer(self, key: TaskKey) -> None:
        while (task := await self._task(key)) is None or task.status is TaskStatus.RUNNING:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(GLANCE_SECONDS)

    async def _task(self, key: TaskKey) -> Task | None:
        store: Store = self.store
        return await store.load(key)


async def _each[T](items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for each item, some at a time."""
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def world_of(folder: Path, name: str) -> World:
    """Return the world that a name means: `sqlite`, the name of a table on DynamoDB, or the URL of PostgreSQL."""
    if name == "sqlite":
        return SQLiteWorld(folder)
    if name.startswith("postgres"):
        return PostgresWorld(name)
    client = Aws().client("dynamodb")
    client.warm_up()
    return DynamoDBWorld(client, name, folder)


def main(folder: Path, world: str, calls: int) -> None:
    """Fork for each order, a phase and the seconds that its clock is ahead; write the id and the end of the process."""
    for line in sys.stdin:
        phase, ahead = json.loads(line)
        process = os.fork()
        if process == 0:
            said = asyncio.run(Soak(folder, world_of(folder, world), calls, AheadClock(ahead)).run(phase))
            (folder / "said").write_text(json.dumps(said))
            os._exit(0)
        print(process, flush=True)
        print(os.waitpid(process, 0)[1], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
