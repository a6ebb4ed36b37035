"""`python -m bench.scale`: what it takes to run many turns a second on AWS, and how a new deployment gets there.

Two answers, both from AWS's published quotas: a plan (how many cells, which quotas to ask for, what it costs), and a
simulation of one cell, second by second, from a cold start: how its functions and its table grow, and how long turns
wait meanwhile. A cell is a deployment of `template.yaml` in an account and region of its own.
"""

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.aws_prices import bill

TIER_SHARE = 0.4
"""Of a cell's turns at once, how many the busiest tier may run: `TurnShares` in template.yaml."""

MOST_OF_A_TIER = 1000
"""The largest `MaximumConcurrency` of an event source."""

POLLERS_PER_SECOND = 300 / 60
"""Invocations at once that an event source adds each second, from the five that it begins with; it has five queues."""

QUEUES = 5
FIRST_POLLERS = 5

ENVIRONMENTS_PER_SECOND = 100
"""Execution environments that one function may add: 1,000 in ten seconds."""

NEW_TABLE_UNITS = 4000
"""Write units a second that a new on-demand table takes."""

GROWTH_SECONDS = 1800
"""Seconds in which an on-demand table takes twice its former peak."""

TABLE_QUOTA = 40_000
PARTITION_UNITS = 1000
"""Write units a second: of a table, before its quota is raised; of one partition, which is one task."""

OTHER_FUNCTIONS = 0.2
"""What requests and deliveries need of the account's concurrency, in terms of turns."""

ACCOUNT_QUOTA = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """The load, of all cells together.

    Attributes:
        turns: turns a second.
        seconds: how long a turn takes, nearly all of it waiting for its model.
        units: write units of a turn.
        reads: read units of a turn.
        memory: gigabytes of the function.
    """

    turns: float
    seconds: float
    units: float
    reads: float
    memory: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A deployment: how many turns it may run at once, and the write units that its table takes from the start."""

    concurrency: int
    warm_units: int = NEW_TABLE_UNITS

    def turns(self, load: Load) -> float:
        """Return the turns a second that it can run for long."""
        by_functions = self.concurrency / load.seconds
        by_table = TABLE_QUOTA / load.units
        return min(by_functions, by_table)


LARGEST = Cell(int(MOST_OF_A_TIER / TIER_SHARE))


@dataclass(frozen=True, slots=True)
class Moment:
    """A minute of the simulation: what arrived and ran in it, what waited at its end, and the longest wait in
    seconds.
    """

    minute: int
    arrived: int
    run: int
    waiting: int
    longest_wait: float
    running: int
    units: float
    limited_by: str


def plan(load: Load, cell: Cell) -> list[tuple[str, str]]:
    """Return what to deploy and to ask AWS for: names and values."""
    each = cell.turns(load)
    cells = math.ceil(load.turns / each)
    rate = load.turns / cells
    concurrency = math.ceil(cell.concurrency * (1 + OTHER_FUNCTIONS))
    hourly = (
        3600
        * load.turns
        * bill(
            write_units=load.units,
            read_units=load.reads,
            sqs_requests=3,
            gigabytes=load.memory,
            seconds=load.seconds,
        ).total
    )
    warm = math.ceil(rate * load.units / 1000) * 1000
    return [
        ("cells (accounts, or regions of one)", f"{cells}"),
        ("turns a second of each", f"{rate:,.0f} of {each:,.0f}"),
        ("TurnConcurrency", f"{cell.concurrency:,}"),
        ("Lambda: concurrent executions", f"{concurrency:,} (quota {ACCOUNT_QUOTA:,})"),
        ("DynamoDB: write units a second", f"{rate * load.units:,.0f} (quota {TABLE_QUOTA:,})"),
        ("WarmWriteUnits", f"{warm:,}" if warm > NEW_TABLE_UNITS else "0"),
        (
            "SQS FIFO: calls a second of each action",
            f"{rate:,.0f} in {QUEUES} queues (300 per partition, which grow)",
        ),
        ("one task: turns a second", f"{PARTITION_UNITS / load.units:,.0f}"),
        ("dollars an hour, without models", f"{hourly:,.0f}"),
    ]


def simulate(load: Load, cell: Cell, minutes: int, seed: int = 1) -> Iterator[Moment]:
    """Yield each minute of a cell that gets this load at once, after a start from nothing."""
    chance = random.Random(seed)
    waiting: list[list[float]] = []  # second of arrival, number of turns
    ending: dict[int, int] = {}
    environments = running = 0
    peak = float(cell.warm_units)
    for minute in range(minutes):
        arrived = run = 0
        longest = units = 0.0
        limits: dict[str, int] = {}
        for second in range(minute * 60, (minute + 1) * 60):
            running -= ending.pop(second, 0)
            new = max(0, round(chance.gauss(load.turns, math.sqrt(load.turns))))
            arrived += new
            waiting.append([second, new])
            pollers = int(QUEUES * (FIRST_POLLERS + POLLERS_PER_SECOND * second))
            environments = min(environments + ENVIRONMENTS_PER_SECOND, cell.concurrency)
            table = min(peak * 2 ** (second / GROWTH_SECONDS), TABLE_QUOTA)
            room = {
                "event sources": pollers - running,
                "functions": environments - running,
                "TurnConcurrency": cell.concurrency - running,
                "the table": int(table / load.units),
            }
            limit = min(room, key=lambda name: room[name])
            left = begun = max(0, room[limit])
            while waiting and left:
                oldest = waiting[0]
                taken = min(left, int(oldest[1]))
                longest = max(longest, second - oldest[0])
                oldest[1] -= taken
                left -= taken
                if not oldest[1]:
                    waiting.pop(0)
            begun -= left
            if waiting:
                limits[limit] = limits.get(limit, 0) + 1
            run += begun
            running += begun
            units = max(units, begun * load.units)
            ends = second + max(1, round(chance.expovariate(1 / load.seconds)))
            ending[ends] = ending.get(ends, 0) + begun
        still = sum(int(number) for _, number in waiting)
        yield Moment(
            minute + 1,
            arrived,
            run,
            still,
            max(longest, (minute + 1) * 60 - waiting[0][0] if waiting else 0),
            running,
            units,
            max(limits, key=lambda name: limits[name]) if limits else "",
        )


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
    parser.add_argument("--warm", type=int, default=NEW_TABLE_UNITS, help="WarmWriteUnits of a cell (4,000)")
    parser.add_argument("--minutes", type=int, default=10, help="to simulate (10)")
    given = parser.parse_args()
    load = Load(given.turns, given.seconds, given.units, given.reads, given.memory)
    cell = Cell(given.concurrency, given.warm)
    for name, value in plan(load, cell):
        print(f"{name:<42} {value}")
    cells = math.ceil(load.turns / cell.turns(load))
    share = Load(load.turns / cells, load.seconds, load.units, load.reads, load.memory)
    print(f"\nOne cell that gets {share.turns:,.0f} turns a second at once:\n")
    print(
        f"{'minute':>6} {'arrived':>8} {'run':>8} {'waiting':>8} {'longest wait':>13} {'at once':>8}  limited by"
    )
    for each in simulate(share, cell, given.minutes):
        print(
            f"{each.minute:>6} {each.arrived:>8,} {each.run:>8,} {each.waiting:>8,} {each.longest_wait:>11,.0f} s "
            f"{each.running:>8,}  {each.limited_by}"
        )


if __name__ == "__main__":
    main()
