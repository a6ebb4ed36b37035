"""One life of a server with its people: from its start to the end of the scenario, or to its death."""

import asyncio
import logging
import resource
import signal
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from crash_checks import Journal, Logs, asked_again, find, in_the_end, what_was_left
from crash_clients import ANN, BOB, Clients, Violation
from crash_points import WHERE, MortalPoints, append_line, read_lines
from crash_scenario import (
    APPROVED,
    BUSY,
    CALM_SECONDS,
    COPIED,
    FORGETFUL,
    IDEMPOTENT,
    LATER,
    PARK_SECONDS,
    POLICIES,
    RESULTS,
    TASK_ID,
    WINDOW,
)
from crash_worlds import AheadClock, SQLiteWorld, World

from chaos.invariants import Found
from mail.adapters.local.queue import LocalQueue
from mail.adapters.local.workers import LocalWorkers
from mail.core.engine import attempts
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.change import Turn
from mail.core.task.context import Context
from mail.core.task.leases import Lease
from mail.core.task.mailboxes import agent_of
from mail.core.task.ports import Busy, Idle
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.core.turns.context import TURN
from mail.errors import ProviderBusy, RetryLater
from mail.testing.agents import View, build_swarm, output
from mail.testing.faults import FaultyPort


class _ErrorLog(logging.Handler):
    """Nothing in a run is the fault of those who run the server, so it must have no reason to complain."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations

    def emit(self, record: logging.LogRecord) -> None:
        self._violations.append(f"logged: {self.format(record)}")


class _Runtime(Runtime):
    """Says whose turn it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.run_turn = self._run_here

    async def _run_here(self, key: TaskKey, mailbox: str, **options: Any) -> TurnReport:
        WHERE.set(f"{Principal.parse(key.instance).id} {mailbox}")
        return await self.turns.run(key, mailbox, **options)


def _shortly[Later: RetryLater](later: Later) -> Later:
    """Return the error, with a wait that is shorter than users may ask for."""
    later.retry_after = PARK_SECONDS
    return later


def _is_summary(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("content")).startswith("<summary_of_earlier_events>")


class _Forgetful:
    """An agent with so small a window that a part of its history becomes a summary."""

    llm = "house/small"
    fixed_size = 0

    def __init__(self, life: "Life", name: str, function: Callable[..., Any]) -> None:
        self._life, self._name, self._function = life, name, function

    async def __call__(self, history: History, choice: ToolChoice) -> Any:
        return await self._function(history, choice)

    async def window(self) -> int:
        return WINDOW

    async def summarize(self, text: str, model: str | None) -> str:
        return await self._life.summarize(self._name, text)


@dataclass
class Life:
    """One process. It dies by its fate (see `crash_points`), or when a file grows past `file_limit` bytes, or not at
    all.

    The scenario takes some hundredths of a second, on DynamoDB ten times that; past `patience` seconds it hangs.

    Attributes:
        deaths: how many processes have died before.
        violations: what was found where an exception would be handled.
    """

    folder: Path
    world: World
    clock: AheadClock = field(default_factory=AheadClock)
    seed: int = 0
    fate: Mapping[str, Any] = field(default_factory=dict)
    file_limit: int = 0
    deaths: int = 0
    patience: float = 20.0
    violations: list[str] = field(default_factory=list)
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    points: MortalPoints = field(init=False)
    logs: Logs = field(init=False)

    def __post_init__(self) -> None:
        self.logs = Logs(self.folder)
        self.points = MortalPoints(self.fate, self.logs.deaths, self.seed)

    def run(self) -> str:
        """Live. Returns what went wrong, or nothing."""
        if self.file_limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_limit, self.file_limit))
        logging.getLogger("mail").addHandler(_ErrorLog(self.violations))
        try:
            with patch.object(attempts, "CALM_SECONDS", CALM_SECONDS):
                asyncio.run(self._live())
        except Violation as violation:
            return str(violation)
        except BaseException:
            return traceback.format_exc()
        return ""

    # ------------------------------------------------------------------------------------------ the server

    async def _live(self) -> None:
        async with self.world.open(self.points, self.clock) as self.inner:
            await self._check_what_was_left()
            queue = self.world.queue()
            await self._serve(LocalQueue(self.late) if queue is None else queue)
        await self._check_the_end()

    async def _serve(self, queue: Any) -> None:
        checked = {"open_turn": self._open_turn, "save_checkpoint": self._save_checkpoint}
        checked["commit"] = Journal(self.logs).commit_to(self.inner)
        checked["park"] = self._park
        store: Any = FaultyPort(self.inner, "store", self.points, **checked)
        queue = FaultyPort(queue, "queue", self.points)
        urls = {"webhooks": self.webhooks, "base_url": "https://mail.example"}
        self.runtime = _Runtime(self._swarm(), store, queue, self.clock, **urls)
        self.clients = Clients(self.runtime, self.inner, self.points, self.logs, self.patience)
        workers = LocalWorkers(self.runtime, queue)
        self.points.hit("before start")
        await workers.start()
        waker = asyncio.create_task(self._wake())
        try:
            async with asyncio.timeout(self.patience):
                await self._serve_clients()
        except TimeoutError:
            self.violations.append(f"the scenario hangs: {await self._describe()}")
        else:
            self.points.hit("before stop")
            await workers.stop(grace=self.patience)
        waker.cancel()
        if self.violations:
            raise Violation("\n".join(self.violations))

    @property
    def webhooks(self) -> Any:
        """What delivers events, if anything."""
        return None

    async def _serve_clients(self) -> None:
        await asyncio.gather(self.clients.be_ann(), self.clients.be_bob())

    def late(self) -> float:
        """Return the time of a queue in memory, whose delayed wake-ups come a little later than the sweep."""
        return self.clock.now().timestamp() - 3 * PARK_SECONDS

    async def _wake(self) -> None:
        """End parks when their time has come, as the sweep of the workers does once a second."""
        if self.world.redelivers:
            await asyncio.sleep(2 * PARK_SECONDS)
            await self.runtime.recover()
        while True:
            await asyncio.sleep(PARK_SECONDS)
            await self.runtime.sweep()
            await self.parked.wait()
            self.parked.clear()

    def _swarm(self) -> SwarmCore:
        swarm = build_swarm(
            POLICIES,
            actions={
                name: ActionCore(
                    name,
                    self._action(name),
                    idempotent=name in IDEMPOTENT,
                    needs_approval=name in APPROVED,
                )
                for name in RESULTS
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
                context=Context() if name == FORGETFUL else None,
                copies=int(name == COPIED),
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
            view = View([entry for entry in history if not _is_summary(entry)], choice)
            if (name, view.mail.subject) == BUSY and TURN.get().parked is None:
                raise _shortly(ProviderBusy(1, "house"))
            append_line(self.logs.thoughts, f"call {name} {view.mail.subject} {view.mail.body}")
            await self.points.pause()
            self.points.hit(f"inside agent {name}")
            # The ids of calls follow from what is read, as a message that is ignored leaves no trace in the history.
            prefix = f"{name}-{len(history)}-{zlib.crc32(history[-1]['content'].encode())}"
            calls = output(POLICIES[name](view), prefix=prefix)
            self.points.hit(f"after agent {name}")
            return None, calls

        return _Forgetful(self, name, function) if name == FORGETFUL else function

    async def summarize(self, name: str, text: str) -> str:
        """Be the model that summarizes the transcript of an agent."""
        self.points.hit(f"before summary {name}")
        summary = f"summary {zlib.crc32(text.encode())}"
        append_line(self.logs.thoughts, f"call {name} {summary}")
        await self.points.pause()
        self.points.hit(f"after summary {name}")
        return summary

    def _action(self, name: str) -> Callable[..., Any]:
        async def function(args: dict[str, Any]) -> str:
            self.points.hit(f"before action {name}")
            await self.points.pause()
            if name in LATER and name not in read_lines(self.logs.later):
                append_line(self.logs.later, name)
                raise _shortly(RetryLater(1))
            append_line(self.logs.actions, f"{TURN.get().call.id} {name}")
            self.points.hit(f"inside action {name}")
            await self.points.pause(0, 5, 60)  # in 60 rounds all that the others do can come between
            self.points.hit(f"after action {name}")
            return RESULTS[name]

        return function

    async def _open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        turn = await self.inner.open_turn(key, mailbox, lease, now=now, history_after=history_after)
        if isinstance(turn, Turn):
            payload = turn.entry.message.message
            WHERE.set(f"{WHERE.get()} {payload.subject} {payload.body.partition(':')[0]}")
            await self._check_order(turn)
        return turn

    async def _park(self, turn: Turn, parked: Lease, checkpoint: Checkpoint | None) -> None:
        await self.inner.park(turn, parked, checkpoint)
        self.parked.set()

    async def _check_order(self, turn: Turn) -> None:
        """4. What is opened is the most urgent and then the oldest message that was in its mailbox."""
        if sum(turn.task.pending[turn.mailbox]) == 1:
            return
        inbox = await self.inner.read_inbox(turn.task.key)
        mail = [each for each in inbox if each.mailbox == turn.mailbox and each.seq <= turn.task.seq]
        if turn.entry != min(mail, key=lambda entry: (entry.tier, entry.seq)):
            self.violations.append(f"4. {turn.mailbox} got {turn.entry} and has {mail}")

    async def _save_checkpoint(self, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        await self.inner.save_checkpoint(turn, checkpoint, on_disk=on_disk)
        payload, preparation = turn.entry.message.message, checkpoint.preparation
        thought = f"{payload.subject} {payload.body}"
        if preparation is not None and not preparation.is_called:
            thought = preparation.summary
        append_line(self.logs.thoughts, f"kept {agent_of(turn.mailbox)} {thought}")

    # ------------------------------------------------------------------------------------------- the checks

    async def _check_what_was_left(self) -> None:
        await self._check(self._find_faults)

    async def _check_the_end(self) -> None:
        """As a new process would find it."""
        async with self.world.open(self.points, self.clock) as self.inner:
            await self._check(self._find_faults_in_the_end)
        if problems := list(self.world.problems()):
            raise Violation("\n".join(problems))

    def _find_faults(self, found: Found, owner: str) -> Iterator[str]:
        yield from what_was_left(found, self.logs, owner)
        yield from asked_again(self.logs)

    def _find_faults_in_the_end(self, found: Found, owner: str) -> Iterator[str]:
        yield from self._find_faults(found, owner)
        yield from in_the_end(found, self.logs, owner, self.deaths)

    async def _check(self, check: Callable[[Found, str], Iterator[str]]) -> None:
        for person in (ANN, BOB):
            found = await self._look_at(person)
            if found is not None and (wrong := list(check(found, person.id))):
                raise Violation("\n".join(wrong) + f"\n{await self._describe()}")

    async def _look_at(self, person: Principal) -> Found | None:
        key = TaskKey(str(person), TASK_ID)
        return await find(await self.world.picture(self.inner, key), key, self.logs)

    async def _describe(self) -> str:
        lines = [f"deaths: {read_lines(self.logs.deaths)}", f"actions: {read_lines(self.logs.actions)}"]
        for person in (ANN, BOB):
            found = await self._look_at(person)
            if found is not None:
                lines += [
                    repr(found.task),
                    *(f"{event.seq} {event.kind} {event.text}" for event in found.events),
                ]
        return "\n".join(lines)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        life = Life(place, SQLiteWorld(place), seed=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
        print(life.run() or f"{len(life.points.names)} points")
