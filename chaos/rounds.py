"""One round: what a seed stands for is played to its end, and checked."""

import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from chaos.clients import WORKLOADS, Workload
from chaos.faults import HELD_UP_SECONDS, KINDS, Faults, Journal, RoundClock
from chaos.invariants import Found, Violation, check, read
from chaos.loop import LeapingLoop, Stuck
from chaos.process import ConnectionLost
from chaos.servers import TURN_SECONDS, Servers
from chaos.swarm import IDEMPOTENT, NORTH, Swarms
from chaos.watchdog import tell, watchdog
from chaos.worlds import World, open_world
from mail.core.protocol.address import Principal
from mail.core.task.ports import Store
from mail.core.task.task import TaskKey
from mail.errors import MAILError, StoreUnavailable

STORES = ("sqlite", "postgres", "dynamodb")

SPREAD_SECONDS = 3.0
"""In how much time tasks begin, each of them adding so much."""

DEATHS_PER_TASK = 0.5

REST_SECONDS = 7_200.0
"""How long it may take, by the clock that leaps, until nothing is left to do once everybody was answered."""

WALL_SECONDS = 240.0
"""How long a round may take, by the clock on the wall."""

LAST_SECONDS = 60.0
"""How long it may take after that to come to an end; then the watchdog ends this process."""


@dataclass(frozen=True)
class Plan:
    """What is played. Workloads and faults follow from it."""

    store: str
    seed: int
    tasks: int = 25
    faults: tuple[str, ...] = KINDS

    @property
    def command(self) -> str:
        """What plays it again."""
        faults = "" if self.faults == KINDS else f" --faults {','.join(self.faults) or 'none'}"
        return (
            f"python -m chaos --store {self.store} --seed {self.seed} --tasks {self.tasks} --rounds 1{faults}"
        )

    def kinds(self) -> list[str]:
        """The workloads: each that fits, so that few are enough for all, and then by chance."""
        chance = Random(f"{self.seed} kinds")
        all_kinds = chance.sample(list(WORKLOADS), len(WORKLOADS))
        more = chance.choices(list(WORKLOADS), weights=list(WORKLOADS.values()), k=self.tasks)
        return (all_kinds + more)[: self.tasks]


@dataclass
class Outcome:
    """What came of a round.

    Attributes:
        statuses: how the tasks have ended.
        met: how often each kind of fault has been met.
        deaths: which processes died, and where.
        trace: what was committed, in order: of rounds that are the same, it is.
        seconds: how long it took, by the clock on the wall.
    """

    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    deaths: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    commits: int = 0
    seconds: float = 0.0

    @property
    def report(self) -> str:
        """What is wrong, and how to see it again."""
        lines = [f"seed {self.plan.seed} on {self.plan.store}: {len(self.violations)} violations"]
        lines += [f"  {violation}" for violation in self.violations]
        return "\n".join([*lines, f"  deaths: {self.deaths}", f"  again: {self.plan.command}"])


def play(plan: Plan, *, bites: Callable[[], None] | None = None) -> Outcome:
    """Play a round, on a loop of its own.

    Where it hangs so that it can't even be cancelled, a watchdog says where everybody is, and bites: by default it ends
    this process, with exit code 3.
    """
    outcome = Outcome(plan)
    begin = time.monotonic()
    loop = LeapingLoop(real=plan.store != "sqlite")
    with (
        _complaints(outcome),
        tempfile.TemporaryDirectory() as folder,
        watchdog(WALL_SECONDS + LAST_SECONDS, loop, plan.command, bites or partial(os._exit, 3)),
    ):
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(_play(plan, outcome, Path(folder)))
        except Stuck as stuck:
            outcome.violations.append(Violation("end", "all", str(stuck)))
    outcome.seconds = time.monotonic() - begin
    return outcome


async def _play(plan: Plan, outcome: Outcome, folder: Path) -> None:
    async with open_world(plan.store, folder) as world:
        await _Round(plan, outcome, world).run()


class _Round:
    def __init__(self, plan: Plan, outcome: Outcome, world: World) -> None:
        self._plan = plan
        self._outcome = outcome
        self._world = world
        self._journal = Journal()
        seed = str(plan.seed)
        self._swarms = Swarms(seed)
        self._faults = Faults(plan.faults, deaths=max(2, round(plan.tasks * DEATHS_PER_TASK)))
        self._servers = Servers(world, self._swarms, self._faults, seed, self._journal)
        self._workloads = [
            Workload(self._servers, self._swarms, seed, number, kind)
            for number, kind in enumerate(plan.kinds(), 1)
        ]

    async def run(self) -> None:
        """Play it; whatever is wrong is in the outcome then."""
        storm = asyncio.create_task(self._world.disturb(self._faults, Random(f"{self._plan.seed} storm")))
        await self._servers.open()
        watchman = asyncio.create_task(self._watch_the_clock(asyncio.current_task()))
        try:
            within = SPREAD_SECONDS * len(self._workloads)
            await asyncio.gather(*(workload.run(within) for workload in self._workloads))
            self._servers.calm()
            await self._come_to_rest()
            await self._finish()
        except asyncio.CancelledError:
            if not watchman.done():
                raise
            self._servers.calm()
            self._wrong("end", "all", f"the round did not end within {WALL_SECONDS:g} s")
        finally:
            watchman.cancel()
            storm.cancel()
            await asyncio.gather(watchman, storm, return_exceptions=True)
            self._outcome.met = self._faults.met
            self._outcome.deaths = self._servers.deaths
        await self._servers.close()
        await self._check()

    async def _watch_the_clock(self, task: "asyncio.Task[None] | None") -> None:
        end = time.monotonic() + WALL_SECONDS
        while time.monotonic() < end:  # noqa: ASYNC110 - nobody tells the time
            await asyncio.sleep(1)
        assert task is not None
        tell(
            asyncio.get_running_loop(),
            sys.__stderr__ or sys.stderr,
            f"no end after {WALL_SECONDS:g} s: {self._plan.command}",
        )
        task.cancel()

    async def _come_to_rest(self) -> None:
        """Wait until nothing is left to do, but not for ever: what is left then, the checks find.

        A process that is held up may still commit, though their lease has expired, as long as nobody else wants it.
        """
        loop = asyncio.get_running_loop()
        await asyncio.sleep(HELD_UP_SECONDS + TURN_SECONDS)
        end = loop.time() + REST_SECONDS
        is_at_rest = False
        while loop.time() < end and not is_at_rest:
            await asyncio.sleep(10)
            with suppress(ConnectionLost, StoreUnavailable):
                is_at_rest = await self._is_at_rest()

    async def _is_at_rest(self) -> bool:
        for key in list(self._journal.attempts):
            swarm = Principal.parse(key.instance).swarm
            chance = Random(0)
            task = await self._servers.ask(swarm, chance, lambda runtime, key=key: runtime.store.load(key))  # type: ignore[misc]
            if task is not None and (task.is_running or task.has_outbound_mail):
                return False
            now = RoundClock(chance).now().timestamp()
            if task is not None and await self._servers.ask(
                swarm,
                chance,
                lambda runtime, key=key: runtime.store.read_leases(key, now=now),  # type: ignore[misc]  # noqa: B023
            ):
                return False
        return True

    async def _finish(self) -> None:
        for workload in self._everyone():
            task = await self._servers.ask(
                NORTH,
                Random(0),
                lambda runtime, key=workload.key: runtime.store.load(key),  # type: ignore[misc]
            )
            if task is None:
                workload.complaints.append("the task is not there")
            elif not task.is_running:
                async with asyncio.timeout(600):
                    await workload.finish(task.status)

    def _everyone(self) -> list[Workload]:
        return [each for workload in self._workloads for each in (workload, *workload.twins)]

    async def _check(self) -> None:
        stores: dict[str, Store] = {}
        by_key = {workload.key: workload for workload in self._everyone()}
        for workload in self._everyone():
            for complaint in workload.complaints:
                self._wrong("end", workload.task_id, complaint)
        for key in self._journal.attempts:
            swarm = Principal.parse(key.instance).swarm
            if swarm not in stores:
                stores[swarm] = await self._world.look(swarm)
            await self._check_task(key, stores[swarm], by_key.get(key))

    async def _check_task(self, key: TaskKey, store: Store, workload: Workload | None) -> None:
        if await store.load(key) is None:
            if any(attempt.is_acknowledged for attempt in self._journal.attempts[key]):
                self._wrong("2", key.task_id, "the task is gone")
            return
        task, stored = await read(store, key, now=RoundClock(Random(0)).now().timestamp())
        found = Found(
            task,
            **stored,  # type: ignore[arg-type]
            attempts=self._journal.attempts[key],
            seen=workload.seen if workload else (),
            ran=self._swarms.ran.get(key.task_id, ()),
            idempotent=IDEMPOTENT,
            cancelled=workload.cancelled if workload else True,
            got=self._servers.receivers.got.get(key.task_id, {}),
            abandoned=workload is None,
        )
        self._outcome.violations += check(found)
        self._outcome.statuses[f"{task.status}"] += 1
        self._outcome.commits += task.version
        self._outcome.trace += [
            f"{key.task_id} {event.seq} {event.kind} {event.timestamp} {event.text}" for event in found.events
        ]

    def _wrong(self, invariant: str, task_id: str, text: str) -> None:
        self._outcome.violations.append(Violation(invariant, task_id, text))


class _Listener(logging.Handler):
    """Trouble is what is expected here; other errors are not."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(logging.ERROR)
        self._outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, MAILError) or "nothing that I can do" in str(error):
            return
        text = f"logged: {record.getMessage()}: {error!r}"
        self._outcome.violations.append(Violation("log", "all", text))


@contextmanager
def _complaints(outcome: Outcome) -> Iterator[None]:
    """Hear what the engine logs, and tell nobody else."""
    listener = _Listener(outcome)
    loggers = [logging.getLogger(name) for name in ("mail", "chaos", "psycopg", "asyncio")]
    before = [(each.propagate, each.level) for each in loggers]
    for each in loggers:
        each.addHandler(listener)
        each.propagate = False
    try:
        yield
    finally:
        for each, (propagate, level) in zip(loggers, before, strict=True):
            each.removeHandler(listener)
            each.propagate, each.level = propagate, level
