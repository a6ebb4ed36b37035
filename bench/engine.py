"""The engine on the embedded store: what a turn costs, beside the floor."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import floor, swarms
from bench.report import Row
from mail.adapters.local.queue import LocalQueue
from mail.adapters.local.workers import LocalWorkers
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task

LIMIT = 2.4
"""CPU of a turn in units of the floor's (DESIGN, Budgets), unless its scenario says otherwise."""

FLAT = 1.25
"""How much dearer a late turn may look than an early one and still count as flat: what is left is noise."""

WAITING = (2_000, 10_000)
"""How many tasks wait for their models at the same time, a second each; a single sample leaves out the larger number.
"""

FLOOR_TURNS = 400

AS_FAST = 1.2
"""The most that a turn of a copy takes, in units of that of an agent with one history."""

ACTIONS = 100
"""How many actions are run one after the other."""

ROOT = Path(__file__).resolve().parent.parent
CALLER = Principal(role="user", id="ann", swarm="bench")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload: so many tasks at once of one swarm, `rounds` times over, so that short ones are measurable."""

    name: str
    swarm: SwarmCore
    tasks: int = 1
    rounds: int = 1
    budget: float = LIMIT


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: how many turns were committed, and the CPU and wall seconds they took, submissions included."""

    turns: int
    cpu: float
    wall: float


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for database files; TMPDIR says on which disk."""
    with TemporaryDirectory(prefix="mail-bench-") as folder:
        yield Path(folder)


async def run(scenario: Scenario, path: Path) -> Sample:
    """Run a scenario on a new database file."""
    with SQLiteDatabase(path) as database:
        store, queue = SQLiteStore(database), LocalQueue()
        runtime = Runtime(scenario.swarm, store, queue, SYSTEM_CLOCK)
        workers = LocalWorkers(runtime, queue)
        await workers.start()
        turns = 0
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(scenario.rounds):
            turns += sum(await asyncio.gather(*(_one_task(runtime, store) for _ in range(scenario.tasks))))
        sample = Sample(turns, time.process_time() - cpu, time.perf_counter() - wall)
        await workers.stop()
        return sample


async def _one_task(runtime: Runtime, store: Store) -> int:
    submitted = await runtime.submit(CALLER, Submission(body=swarms.BODY))
    answer = await runtime.wait(submitted)
    assert answer is not None
    assert answer.message.body == swarms.ANSWER
    task: Task | None = await store.load(submitted.key)
    assert task is not None
    return task.generation.turns


def scenarios() -> list[Scenario]:
    """What is measured, the headline first."""
    return [
        Scenario("ping-pong of 200 exchanges", swarms.ping_pong(200)),
        Scenario("ping-pong of 1 exchange, with its submission", swarms.ping_pong(1), rounds=60, budget=4),
        Scenario("ping-pong of 10 exchanges", swarms.ping_pong(10), rounds=20),
        Scenario("ping-pong of 1,000 exchanges", swarms.ping_pong(1000)),
        Scenario("fan-out to 8 workers", swarms.fan_out(8), rounds=20, budget=2.7),
        Scenario("fan-out to 32 workers", swarms.fan_out(32), rounds=6, budget=2.7),
        Scenario("32 tasks of 10 exchanges at once", swarms.ping_pong(10), tasks=32, budget=2.8),
    ]


def measure(repeats: int) -> list[Row]:
    """Every scenario `repeats` times, each time between two samples of the floor."""
    rows: list[Row] = []
    floors: list[float] = []
    with scratch() as folder:
        asyncio.run(run(Scenario("warm-up", swarms.ping_pong(100)), folder / "warm-up.db"))
        for number, scenario in enumerate(scenarios()):
            samples: list[Sample] = []
            ratios: list[float] = []
            for repeat in range(repeats):
                before = floor.measure(folder / f"floor-{number}-{repeat}.db", FLOOR_TURNS)
                sample = asyncio.run(run(scenario, folder / f"{number}-{repeat}.db"))
                after = floor.measure(folder / f"floor-{number}-{repeat}-after.db", FLOOR_TURNS)
                samples.append(sample)
                floors += [before, after]
                ratios.append(sample.cpu / sample.turns / ((before + after) / 2))
            rows.append(_row(scenario, samples, ratios))
        rows.append(_growth(folder, repeats))
        rows.append(_copies(folder, repeats))
        rows.append(_receipts(folder, repeats))
        rows += [_waiting(folder, tasks) for tasks in (WAITING if repeats > 1 else WAITING[:1])]
    name = "floor: one transaction of six statements"
    return [Row("engine", name, median(floors) * 1e6, "µs CPU"), *rows]


def _row(scenario: Scenario, samples: list[Sample], ratios: list[float]) -> Row:
    rate = median(sample.turns / sample.wall for sample in samples)
    return Row(
        "engine",
        f"{scenario.name}: a turn",
        median(sample.cpu / sample.turns for sample in samples) * 1e6,
        "µs CPU",
        scenario.budget,
        ratio=median(ratios),
        note=f"{min(ratios):.2f} to {max(ratios):.2f}; {rate:,.0f} turns/s",
    )


def _growth(folder: Path, repeats: int) -> Row:
    """CPU of turns 1,700 to 2,000 of one task, in units of that of its turns 100 to 400."""
    ratios = []
    for repeat in range(repeats):
        swarm, marks = swarms.watched(swarms.ping_pong(1000), time.process_time)
        asyncio.run(run(Scenario("growth", swarm), folder / f"growth-{repeat}.db"))
        ratios.append((marks[2000] - marks[1700]) / (marks[400] - marks[100]))
    name = "one task: turns around 1,850 by turns around 250"
    return Row("engine", name, median(ratios), "×", budget=FLAT)


def _copies(folder: Path, repeats: int) -> Row:
    """CPU of a fan-out to 32 copies of one agent, in units of that of one to 32 agents."""
    ratios = []
    for repeat in range(2 * repeats):  # half a second each
        agents, copies = [
            asyncio.run(
                run(
                    Scenario("copies", swarms.fan_out(32, copies=copies), rounds=6),
                    folder / f"copies-{repeat}-{copies}.db",
                )
            )
            for copies in (False, True)
        ]
        ratios.append(copies.cpu / copies.turns / (agents.cpu / agents.turns))
    name, note = "fan-out to 32 copies by one to 32 agents, a turn", f"{min(ratios):.2f} to {max(ratios):.2f}"
    return Row("engine", name, median(ratios), "×", budget=AS_FAST, note=note)


def _receipts(folder: Path, repeats: int) -> Row:
    """The time by which an action that isn't idempotent begins later, as its receipt has to be on the disk."""
    waits = []
    for repeat in range(repeats):
        walls = [
            asyncio.run(
                run(
                    Scenario("receipts", swarms.acting(idempotent=idempotent), rounds=ACTIONS),
                    folder / f"receipts-{repeat}-{idempotent}.db",
                )
            ).wall
            for idempotent in (True, False)
        ]
        waits.append((walls[1] - walls[0]) / ACTIONS)
    name = "the receipt of an action that isn't idempotent, on the disk"
    return Row("engine", name, median(waits) * 1e3, "ms", note="an idempotent one waits for nothing")


def _waiting(folder: Path, tasks: int) -> Row:
    """The rate of turns that wait a second for their model, all at once, in a process of their own."""
    command = [sys.executable, "-m", "bench.engine", str(tasks), str(folder / f"waiting-{tasks}.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rate, cpu, rss = json.loads(done.stdout)
    name = f"{tasks:,} tasks at once whose model takes 1 s"
    return Row("engine", name, rate, "turns/s", note=f"{cpu * 1e6:.0f} µs CPU a task, {rss:.0f} MiB")


def _wait(tasks: int, path: Path) -> None:
    """Print what `_waiting` reads: turns/s, CPU seconds a turn, MiB of memory."""
    sample = asyncio.run(run(Scenario("waiting", swarms.waiting(1.0), tasks=tasks), path))
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([sample.turns / sample.wall, sample.cpu / sample.turns, rss]))


if __name__ == "__main__":
    _wait(int(sys.argv[1]), Path(sys.argv[2]))
