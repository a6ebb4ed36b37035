"""One life of a server with its people: from its start to the end of the scenario, or to its death."""

import asyncio
import resource
import signal
import sqlite3
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from crash_checks import Logs, Snapshot, at_rest, in_the_end, read
from crash_points import Points, append_line, read_lines
from crash_scenario import APPROVAL, FOLLOW_UP, IDEMPOTENT, PINGS, PLAN, POLICIES, PONGS, RESULTS, TASK_ID
from support.agents import View, output
from support.swarms import NAME, build_swarm

from mail.core.actions import ActionCore
from mail.core.address import Principal
from mail.core.agents import AgentCore, History, SwarmCore, ToolChoice
from mail.core.change import Lease, Turn
from mail.core.intake import ResumeFrom, Submission
from mail.core.ports import Idle, Leased
from mail.core.runtime import Runtime
from mail.core.stamp import SYSTEM_STAMP
from mail.core.tasks import Checkpoint, TaskKey
from mail.queues.local import LocalQueue, LocalWorkers
from mail.stores.sqlite import SQLiteStore
from mail.stores.sqlite_database import SQLiteDatabase

ANN = Principal(role="user", id="ann", swarm=NAME)
BOB = Principal(role="user", id="bob", swarm=NAME)

STEPS = [
    Submission(body=PLAN, task_id=TASK_ID, subject="Plan"),
    Submission(
        task_id=TASK_ID,
        resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
        breakpoint_tool_call_result={"content": APPROVAL},
    ),
    Submission(body=FOLLOW_UP, task_id=TASK_ID, resume_from=ResumeFrom.USER_RESPONSE, subject="Follow up"),
]


class Violation(Exception):
    """Something that must never be was found."""


@dataclass
class Life:
    """One process. It dies at the `target`-th point, or when a file grows past `file_limit` bytes, or not at all.

    The scenario takes some hundredths of a second; past `patience` seconds it hangs.
    """

    folder: Path
    seed: int = 0
    target: int = 0
    file_limit: int = 0
    deaths: int = 0
    patience: float = 20.0
    points: Points = field(init=False)
    logs: Logs = field(init=False)

    def __post_init__(self) -> None:
        self.logs = Logs(self.folder)
        self.points = Points(self.target, self.logs.deaths, self.seed)

    @property
    def path(self) -> Path:
        return self.folder / "mail.db"

    def run(self) -> str:
        """Live. Returns what went wrong, or nothing."""
        if self.file_limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_limit, self.file_limit))
        try:
            with patch.object(sqlite3, "connect", self.points.connect(sqlite3.connect)):
                asyncio.run(self._live())
        except Violation as violation:
            return str(violation)
        except BaseException:
            return traceback.format_exc()
        return ""

    # ------------------------------------------------------------------------------------------ the server

    async def _live(self) -> None:
        with SQLiteDatabase(self.path) as database:
            self.inner = SQLiteStore(database)
            await self._check_what_was_left()
            queue = LocalQueue()
            store = self.points.wrap(
                self.inner, "store", open_turn=self._open_turn, save_checkpoint=self._save_checkpoint
            )
            self.runtime = Runtime(self._swarm(), store, self.points.wrap(queue, "queue"), SYSTEM_STAMP)
            workers = LocalWorkers(self.runtime, self.points.wrap(queue, "queue"))
            self.points.hit("before start")
            await workers.start()
            try:
                async with asyncio.timeout(self.patience):
                    await asyncio.gather(self._be_ann(), self._be_bob())
            except TimeoutError:
                raise Violation(f"the scenario hangs: {await self._describe()}") from None
            self.points.hit("before stop")
            await workers.stop(grace=self.patience)
        await self._check_the_end()

    def _swarm(self) -> SwarmCore:
        swarm = build_swarm(
            POLICIES,
            actions={
                name: ActionCore(name, self._action(name), idempotent=name in IDEMPOTENT) for name in RESULTS
            },
            breakpoint_tools=frozenset({"approve"}),
            task_message_limit=100,
        )
        agents = {
            name: AgentCore(
                self._agent(name),
                comm_targets=core.comm_targets,
                actions=core.actions,
                enable_entrypoint=core.enable_entrypoint,
                can_complete_tasks=core.can_complete_tasks,
            )
            for name, core in swarm.agents.items()
        }
        return SwarmCore(
            name=swarm.name,
            version=swarm.version,
            entrypoint=swarm.entrypoint,
            agents=agents,
            actions=swarm.actions,
            breakpoint_tools=swarm.breakpoint_tools,
            task_message_limit=swarm.task_message_limit,
        )

    def _agent(self, name: str) -> Callable[..., Any]:
        async def function(history: History, choice: ToolChoice) -> Any:
            self.points.hit(f"before agent {name}")
            view = View(history, choice)
            append_line(self.logs.thoughts, f"call {name} {view.mail.subject} {view.mail.body}")
            await self.points.pause()
            self.points.hit(f"inside agent {name}")
            # The ids of calls follow from what is read, as a message that is ignored leaves no trace in the history.
            prefix = f"{name}-{len(history)}-{zlib.crc32(history[-1]['content'].encode())}"
            calls = output(POLICIES[name](view), prefix=prefix)
            self.points.hit(f"after agent {name}")
            return None, calls

        return function

    def _action(self, name: str) -> Callable[..., Any]:
        async def function(args: dict[str, Any]) -> str:
            self.points.hit(f"before action {name}")
            await self.points.pause()
            append_line(self.logs.actions, name)
            self.points.hit(f"inside action {name}")
            await self.points.pause(0, 5, 60)  # in 60 rounds all that the others do can come between
            self.points.hit(f"after action {name}")
            return RESULTS[name]

        return function

    async def _open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        """4. What is opened is the most urgent and then the oldest message of its mailbox."""
        turn = await self.inner.open_turn(key, mailbox, lease, now=now, history_after=history_after)
        if isinstance(turn, Turn):
            mail = [entry for entry in await self.inner.read_inbox(key) if entry.mailbox == mailbox]
            if turn.entry != min(mail, key=lambda entry: (entry.tier, entry.seq)):
                raise Violation(f"4. {mailbox} got {turn.entry} and has {mail}")
        return turn

    async def _save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        await self.inner.save_checkpoint(turn, checkpoint)
        payload = turn.entry.message.message
        append_line(self.logs.thoughts, f"kept {turn.mailbox} {payload.subject} {payload.body}")

    # ------------------------------------------------------------------------------------------- the people

    async def _be_ann(self) -> None:
        """Send what hasn't been accepted, and watch until it is answered; after a crash, reconnect."""
        key = TaskKey(str(ANN), TASK_ID)
        for number, submission in enumerate(STEPS, start=1):
            task = await self.inner.load(key)
            is_there = task is not None and task.generation >= number
            await self._send(ANN, submission, f"ann {number}", is_there=is_there)
            await self._watch_until_answered(number)

    async def _be_bob(self) -> None:
        """Don't wait for the first answer before asking again."""
        key = TaskKey(str(BOB), TASK_ID)
        for ping in PINGS:
            events = await self.inner.read_events(key) if await self.inner.load(key) else []
            is_there = any(event.message and event.message.message.body == ping for event in events)
            submission = Submission(body=ping, task_id=TASK_ID, subject="Ping")
            await self._send(BOB, submission, f"bob {ping}", is_there=is_there)
        for generation, pong in enumerate(PONGS, start=1):
            while (answer := await self.inner.read_response(key, generation)) is None:
                await self.inner.wait_for_response(key, generation, seconds=self.patience)
            if answer.message.body != pong:
                raise Violation(f"bob was answered {answer.message.body!r} in generation {generation}")

    async def _send(self, caller: Principal, submission: Submission, name: str, *, is_there: bool) -> None:
        if is_there:
            return
        if name in read_lines(self.logs.accepted):
            raise Violation(f"{name!r} was accepted, and is gone")
        self.points.hit("before submit")
        await self.runtime.submit(caller, submission)
        append_line(self.logs.accepted, name)
        self.points.hit("after submit")

    async def _watch_until_answered(self, generation: int) -> None:
        key = TaskKey(str(ANN), TASK_ID)
        seen = read_lines(self.logs.seen)
        ends = [line for line in seen if line.split()[1] in ("task_complete", "task_error")]
        if len(ends) >= generation:
            return
        async for batch in self.runtime.watch(key, after=len(seen), heartbeat=self.patience):
            for event in batch:
                append_line(self.logs.seen, f"{event.seq} {event.kind} {event.text.splitlines()[:1]}")
                self.points.hit("after an event was seen")

    # ------------------------------------------------------------------------------------------- the checks

    async def _check_what_was_left(self) -> None:
        await self._check(lambda found, owner: at_rest(found, self.logs, owner))

    async def _check_the_end(self) -> None:
        """As a new process would find it."""
        with SQLiteDatabase(self.path) as database:
            (state,) = database.connection.execute("PRAGMA integrity_check").fetchone()
            if state != "ok":
                raise Violation(f"the file is broken: {state}")
            self.inner = SQLiteStore(database)
            await self._check_what_was_left()
            await self._check(lambda found, owner: in_the_end(found, self.logs, owner, self.deaths))

    async def _check(self, check: Callable[[Snapshot, str], Iterator[str]]) -> None:
        for person in (ANN, BOB):
            found = await read(self.inner, TaskKey(str(person), TASK_ID), list(POLICIES))
            if found is not None and (wrong := list(check(found, person.id))):
                raise Violation("\n".join(wrong) + f"\n{await self._describe()}")

    async def _describe(self) -> str:
        lines = [f"deaths: {read_lines(self.logs.deaths)}", f"actions: {read_lines(self.logs.actions)}"]
        for person in (ANN, BOB):
            found = await read(self.inner, TaskKey(str(person), TASK_ID), list(POLICIES))
            if found is not None:
                lines += [
                    repr(found.task),
                    *(f"{event.seq} {event.kind} {event.text}" for event in found.events),
                ]
        return "\n".join(lines)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), seed=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
        print(life.run() or f"{len(life.points.labels)} points")
