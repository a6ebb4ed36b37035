"""`python -m bench`: measure, print the table, write the JSON. Reports missed budgets, and never fails for them."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from bench import (
    aws,
    cold_starts,
    counts,
    earlier_tasks,
    engine,
    http,
    imports,
    large,
    peers,
    postgres,
    report,
)
from bench.report import BEFORE, LATEST, Result

QUICK_PARTS = ("engine", "counts", "http", "imports")
PARTS = (*QUICK_PARTS, "earlier-tasks", "postgres", "large", "aws", "cold-starts")


@dataclass(frozen=True, slots=True)
class Mode:
    """How thorough to be: how many samples of each figure, requests per sample over HTTP, which parts to run, and which
    turn of a task on AWS counts as a late one.
    """

    name: str
    samples: int
    requests: int
    parts: tuple[str, ...] = QUICK_PARTS
    late_turn: int = aws.LATE


FULL = Mode("full", samples=9, requests=400, parts=PARTS)
QUICK = Mode("quick", samples=3, requests=150)
MINIMAL = Mode("minimal", samples=1, requests=20, late_turn=60)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what MAIL costs.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", dest="mode", action="store_const", const=QUICK, help="in about half a minute")
    how.add_argument(
        "--minimal", dest="mode", action="store_const", const=MINIMAL, help="only see that it works"
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="compare with LangGraph and DBOS instead, and print a Markdown table",
    )
    parser.add_argument("--only", choices=PARTS, action="append", help="may be given several times")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--json", type=Path, default=LATEST, help="where to write it (bench/results/latest.json)"
    )
    where.add_argument(
        "--keep",
        dest="json",
        action="store_const",
        const=BEFORE,
        help="write it to bench/results/before.json, which later runs are compared with",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=cold_starts.ROUNDS,
        help=f"of cold-starts, whose figures are minima; more of them on a busy machine ({cold_starts.ROUNDS})",
    )
    parser.set_defaults(mode=FULL)
    arguments = parser.parse_args()
    if arguments.peers:
        print(peers.compare(arguments.mode.samples))
        return
    begin = time.perf_counter()
    before = report.read_json(BEFORE)
    results = run(arguments.mode, arguments.only or arguments.mode.parts, arguments.rounds)
    report.write_json(arguments.json, results, arguments.mode.name)
    print(report.table(results, before))
    print(f"\n{arguments.mode.name} run of {time.perf_counter() - begin:.0f} s, written to {arguments.json}")


def run(mode: Mode, parts: list[str] | tuple[str, ...], rounds: int = cold_starts.ROUNDS) -> list[Result]:
    """The results of the parts, in a fixed order."""
    results: list[Result] = []
    if "engine" in parts:
        results += engine.measure(mode.samples)
    if "counts" in parts:
        results += counts.measure()
    if "http" in parts:
        results += http.measure(mode.samples, mode.requests)
    if "imports" in parts:
        results += imports.measure(mode.samples)
    if "earlier-tasks" in parts:
        results += earlier_tasks.measure()
    if "postgres" in parts:
        results += postgres.measure(mode.samples, mode.requests)
    if "large" in parts:
        results += large.measure()
    if "aws" in parts:
        results += aws.measure(mode.late_turn)
    if "cold-starts" in parts:
        results += cold_starts.measure(rounds)
    return results


if __name__ == "__main__":
    main()
