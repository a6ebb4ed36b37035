"""`python -m bench.scale`: what it takes to run many turns a second on AWS, and how a new deployment gets there.

Two answers, both from AWS's published quotas: a plan (how many cells, which quotas to ask for, what it costs), and a
simulation of one cell, second by second, from a cold start: how its functions and its table grow, and how long turns
wait meanwhile. A cell is a deployment of `template.yaml` in an account and region of its own.
"""

import argparse
import math
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.aws_prices import SHARD_READS, SQS_CALLS, WORKER_HOURS, bill, sweeps_of_a_month
from mail.adapters.aws.index import DUE_ROWS
from mail.adapters.aws.items import SHARDS

CHATTER_SHARE = 0.7
"""Of `TurnConcurrency`, how many turns of agents' requests and responses may run: tier 5 of `TurnShares` in
template.yaml. People may use all of it."""

MOST_OF_A_TIER = 1000
"""The largest `MaximumConcurrency` of an event source."""

POLLERS_PER_SECOND = 300 / 60
"""Invocations at once that an event source adds each second, from the five that it begins with."""

FIRST_POLLERS = 5

ENVIRONMENTS_PER_SECOND = 100
"""Execution environments that one function may add: 1,000 in ten seconds."""

PARAMETERS_PER_SECOND = 40
"""Calls of Parameter Store a second, before its throughput is raised to 100: each new process reads its secrets. Event
sources add processes more slowly than that, but those of a new version start all at once.
"""

NEW_TABLE_UNITS = 4000
"""Write units a second that a new on-demand table takes."""

GROWTH_SECONDS = 1800
"""Seconds in which an on-demand table takes twice its former peak."""

TABLE_QUOTA = 40_000
PARTITION_UNITS = 1000
"""Write units a second: of a table, before its quota is raised; of one partition, which is one task."""

USED = 0.8
"""What a plan uses of a cell: the rest clears the queue of the first minutes."""

PARTS = 20
"""The turns that begin in a second are simulated in so many parts, each of which takes its own time."""

OTHER_FUNCTIONS = 0.2
"""What requests and deliveries need of the account's concurrency, in terms of turns."""

ACCOUNT_QUOTA = 1000

WORKER_LOAD = 0.6
"""What worker.yaml uses of the slots and of the processor of a worker, before it starts another one."""

WORKER_MINUTES = 2
"""Minutes from the load to the worker that is started for it: a metric of a minute, its alarm, and the container."""

QUEUES = 5


@dataclass(frozen=True, slots=True)
class Load:
    """The load, of all cells together.

    Attributes:
        turns: turns a second.
        seconds: how long a turn takes, nearly all of it waiting for its model.
        units: write units of a turn.
        reads: read units of a turn.
        memory: gigabytes of the function.
        people: the share of the turns that people's messages begin; agents' begin the rest.
    """

    turns: float
    seconds: float
    units: float
    reads: float
    memory: float
    people: float = 0.2

    @property
    def of_tiers(self) -> dict[str, float]:
        """The turns a second of each tier that has many."""
        return {"people": self.turns * self.people, "agents": self.turns * (1 - self.people)}


@dataclass(frozen=True, slots=True)
class Cell:
    """A deployment: its `TurnConcurrency`, and the write units that its table takes from the start."""

    concurrency: int
    warm_units: int = NEW_TABLE_UNITS

    @property
    def shares(self) -> dict[str, int]:
        """How many turns of each tier may run at once."""
        chatter = round(self.concurrency * CHATTER_SHARE)
        return {"people": min(self.concurrency, MOST_OF_A_TIER), "agents": min(chatter, MOST_OF_A_TIER)}

    def turns(self, load: Load) -> float:
        """Return the turns a second that it can run for long, of such a mix."""
        by_table = TABLE_QUOTA / load.units
        by_tier = [
            self.shares[tier] / load.seconds * load.turns / turns
            for tier, turns in load.of_tiers.items()
            if turns
        ]
        return min(by_table, *by_tier)


LARGEST = Cell(2500)


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers that run the turns of a cell in place of functions.

    Attributes:
        concurrency: the turns of a worker at once: `Concurrency` in worker.yaml.
        processor: its processor time for a turn, in seconds.
        most: how many run at most: `MaxWorkers`; None for as many as it takes.
    """

    concurrency: int = 1000
    processor: float = 0.012
    most: int | None = None

    def needed(self, turns: float, at_once: float) -> int:
        """Return how many it takes for so many turns a second, and at once."""
        full = max(at_once / self.concurrency, turns * self.processor) / WORKER_LOAD
        return max(1, min(math.ceil(full), self.most or math.ceil(full)))


@dataclass(frozen=True, slots=True)
class Moment:
    """A minute of the simulation: what arrived and ran in it, what waited at its end, and the longest waits in
    seconds, of all turns and of those that people began.
    """

    minute: int
    arrived: int
    run: int
    waiting: int
    longest_wait: float
    people_wait: float
    running: int
    units: float
    limited_by: str


def capacity(load: Load, cell: Cell, workers: Workers | None = None) -> float:
    """Return the turns a second that a cell can run for long; with workers, its table is the only limit."""
    return cell.turns(load) if workers is None else TABLE_QUOTA / load.units


def cells_of(load: Load, cell: Cell, workers: Workers | None = None) -> int:
    """Return how many cells it takes."""
    return math.ceil(load.turns / (capacity(load, cell, workers) * USED))


def plan(load: Load, cell: Cell, workers: Workers | None = None) -> list[tuple[str, str]]:
    """Return what to deploy and to ask AWS for: names and values."""
    each, cells = capacity(load, cell, workers), cells_of(load, cell, workers)
    rate = load.turns / cells
    concurrency = math.ceil(rate * load.seconds * ((workers is None) + OTHER_FUNCTIONS))
    of_turn = bill(
        write_units=load.units,
        read_units=load.reads,
        sqs_requests=SQS_CALLS,
        gigabytes=load.memory,
        seconds=load.seconds,
    )
    hourly = 3600 * load.turns * of_turn.total
    runners = [
        ("TurnConcurrency", f"{cell.concurrency:,}"),
        *(
            (f"turns at once of {tier}", f"{turns / cells * load.seconds:,.0f} of {cell.shares[tier]:,}")
            for tier, turns in load.of_tiers.items()
        ),
    ]
    processes = rate * load.seconds
    if workers is not None:
        processes = needed = workers.needed(rate, rate * load.seconds)
        hourly += cells * needed * WORKER_HOURS - 3600 * load.turns * of_turn.function
        runners = [
            ("workers of each (MaxWorkers)", f"{needed:,}"),
            ("turns at once of each", f"{rate * load.seconds:,.0f} of {needed * workers.concurrency:,}"),
            ("processors in use of each", f"{rate * workers.processor:,.1f} of {needed:,}"),
        ]
    warm = math.ceil(rate * load.units / 1000) * 1000
    return [
        ("cells (accounts, or regions of one)", f"{cells}"),
        ("turns a second of each", f"{rate:,.0f} of {each:,.0f}"),
        *runners,
        ("Lambda: concurrent executions", f"{concurrency:,} (quota {ACCOUNT_QUOTA:,})"),
        ("DynamoDB: write units a second", f"{rate * load.units:,.0f} (quota {TABLE_QUOTA:,})"),
        ("WarmWriteUnits", f"{warm:,}" if warm > NEW_TABLE_UNITS else "0"),
        (
            "SQS FIFO: calls a second of each action",
            f"{rate:,.0f} in {QUEUES} queues (300 per partition, which grow)",
        ),
        ("one task: turns a second", f"{PARTITION_UNITS / load.units:,.0f}"),
        (
            "secrets after a deployment, in seconds",
            f"{processes / PARAMETERS_PER_SECOND:,.0f} at {PARAMETERS_PER_SECOND} calls a second",
        ),
        ("a sweep, beside all of them", f"{len(SHARDS)} requests, {len(SHARDS) * SHARD_READS:g} read units"),
        ("tasks that a sweep looks after, at most", f"{len(SHARDS) * DUE_ROWS:,}"),
        ("sweeps of all cells: dollars a month", f"{cells * sweeps_of_a_month():,.2f}"),
        ("dollars an hour, without models", f"{hourly:,.0f}"),
    ]


def simulate(
    load: Load, cell: Cell, minutes: int, workers: Workers | None = None, seed: int = 1
) -> Iterator[Moment]:
    """Yield each minute of a cell that gets this load at once, after a start from nothing, or from one worker."""
    chance = random.Random(seed)
    shares = cell.shares
    queues: dict[str, deque[list[int]]] = {
        tier: deque() for tier in shares
    }  # second of arrival, number of turns
    running = dict.fromkeys(shares, 0)
    ending: dict[tuple[str, int], int] = {}
    environments = 0
    started = {0: 1}
    """The workers from a minute on."""
    for minute in range(minutes):
        if workers is not None:
            started.setdefault(minute, started.get(minute - 1, 1))
        arrived = run = 0
        longest = dict.fromkeys(shares, 0)
        units = 0.0
        limits: Counter[str] = Counter()
        for second in range(minute * 60, (minute + 1) * 60):
            environments = min(environments + ENVIRONMENTS_PER_SECOND, sum(shares.values()))
            table = min(cell.warm_units * 2 ** (second / GROWTH_SECONDS), TABLE_QUOTA)
            for tier in shares:
                running[tier] -= ending.pop((tier, second), 0)
            free = {"the table": int(table / load.units)}
            if workers is None:
                free["new functions"] = environments - sum(running.values())
            else:
                free["slots of workers"] = started[minute] * workers.concurrency - sum(running.values())
                free["processors"] = int(started[minute] / workers.processor)
            for tier, rate in load.of_tiers.items():
                new = max(0, round(chance.gauss(rate, math.sqrt(rate))))
                arrived += new
                queues[tier].append([second, new])
                room = dict(free)
                if workers is None:
                    room["event sources"] = int(FIRST_POLLERS + POLLERS_PER_SECOND * second) - running[tier]
                    room["TurnConcurrency"] = shares[tier] - running[tier]
                limit = min(room, key=lambda name: room[name])
                begun, wait = _take(queues[tier], max(0, room[limit]), second)
                longest[tier] = max(longest[tier], wait)
                limits[limit] += bool(queues[tier])
                run += begun
                running[tier] += begun
                units += begun * load.units
                free = {name: left - begun for name, left in free.items()}
                for n in range(PARTS):
                    ends = tier, second + max(1, round(chance.expovariate(1 / load.seconds)))
                    ending[ends] = ending.get(ends, 0) + begun * (n + 1) // PARTS - begun * n // PARTS
        end = (minute + 1) * 60
        if workers is not None:
            waiting = sum(number for queue in queues.values() for _, number in queue)
            needed = workers.needed(run / 60, sum(running.values()) + waiting)
            started[minute + WORKER_MINUTES] = max(needed, started.get(minute + WORKER_MINUTES - 1, 1))
        waits = {
            tier: max(longest[tier], end - queue[0][0] if queue else 0) for tier, queue in queues.items()
        }
        yield Moment(
            minute + 1,
            arrived,
            run,
            sum(number for queue in queues.values() for _, number in queue),
            max(waits.values()),
            waits["people"],
            sum(running.values()),
            units / 60,
            max(limits, key=lambda name: limits[name]) if limits.total() else "",
        )


def _take(queue: deque[list[int]], most: int, second: int) -> tuple[int, int]:
    """Take the oldest turns of a queue; return how many, and how long the oldest has waited."""
    taken = wait = 0
    while queue and taken < most:
        oldest = queue[0]
        begun = min(most - taken, oldest[1])
        if begun:
            wait = max(wait, second - oldest[0])
        oldest[1] -= begun
        taken += begun
        if not oldest[1]:
            queue.popleft()
    return taken, wait


def main() -> None:
    """Print the plan and the simulation for the load on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--turns", type=float, default=10_000, help="turns a second, of all cells (10,000)")
    parser.add_argument("--seconds", type=float, default=3.1, help="of a turn (3.1: a model of 3 s)")
    parser.add_argument("--units", type=float, default=9, help="write units of a turn (9)")
    parser.add_argument("--reads", type=float, default=2, help="read units of a turn (2)")
    parser.add_argument("--memory", type=float, default=1, help="gigabytes of a turn's function (1)")
    parser.add_argument(
        "--concurrency", type=int, default=LARGEST.concurrency, help="TurnConcurrency of a cell (2,500)"
    )
    parser.add_argument("--people", type=float, default=0.2, help="share of turns that people begin (0.2)")
    parser.add_argument("--warm", type=int, default=NEW_TABLE_UNITS, help="WarmWriteUnits of a cell (4,000)")
    parser.add_argument("--minutes", type=int, default=10, help="to simulate (10)")
    parser.add_argument("--workers", action="store_true", help="run turns in workers, not in functions")
    parser.add_argument(
        "--processor", type=float, default=Workers().processor, help="seconds of a turn, in a worker (0.012)"
    )
    given = parser.parse_args()
    load = Load(given.turns, given.seconds, given.units, given.reads, given.memory, given.people)
    cell = Cell(given.concurrency, given.warm)
    workers = Workers(processor=given.processor) if given.workers else None
    for name, value in plan(load, cell, workers):
        print(f"{name:<42} {value}")
    share = replace(load, turns=load.turns / cells_of(load, cell, workers))
    if workers is not None:
        workers = replace(workers, most=workers.needed(share.turns, share.turns * share.seconds))
    print(f"\nOne cell that gets {share.turns:,.0f} turns a second at once:\n")
    print(
        f"{'minute':>6} {'arrived':>8} {'run':>8} {'waiting':>8} {'longest wait':>13} {'of people':>10} {'at once':>8}"
        "  limited by"
    )
    for each in simulate(share, cell, given.minutes, workers):
        print(
            f"{each.minute:>6} {each.arrived:>8,} {each.run:>8,} {each.waiting:>8,} {each.longest_wait:>11,.0f} s "
            f"{each.people_wait:>8,.0f} s {each.running:>8,}  {each.limited_by}"
        )


if __name__ == "__main__":
    main()
