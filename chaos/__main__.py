"""`python -m chaos`: play rounds until the time is up, or one has failed."""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # what tests share is used here, too

from chaos.faults import KINDS  # noqa: I001 - after the path is set
from chaos.rounds import STORES, Outcome, Plan, play


TASKS = {"sqlite": 40, "postgres": 15, "dynamodb": 8}
"""Of people in a round: as many as take some seconds."""


def main() -> int:
    """Returns 1 where an invariant does not hold."""
    arguments = _read()
    seed = arguments.seed
    stores = STORES if arguments.store == "all" else (arguments.store,)
    faults = () if arguments.faults == "none" else tuple(arguments.faults.split(","))
    print(f"seed {seed}; faults: {', '.join(faults) or 'none'}", flush=True)
    begin = time.monotonic()
    failed: list[Outcome] = []
    number = 0
    while not failed and _goes_on(arguments, number, begin):
        for store in stores:
            outcome = play(Plan(store, seed + number, arguments.tasks or TASKS[store], faults))
            print(_line(outcome), flush=True)
            if outcome.violations:
                failed.append(outcome)
        number += 1
    for outcome in failed:
        print(f"\n{outcome.report}")
    print(
        f"\n{number} rounds in {time.monotonic() - begin:.0f} s from seed {seed}: "
        f"{'FAILED' if failed else 'all is well'}"
    )
    return 1 if failed else 0


def _goes_on(arguments: argparse.Namespace, number: int, begin: float) -> bool:
    if arguments.rounds:
        return bool(number < arguments.rounds)
    return number == 0 or time.monotonic() - begin < float(arguments.seconds)


def _line(outcome: Outcome) -> str:
    met = ", ".join(f"{kind} {times}" for kind, times in sorted(outcome.met.items()))
    ended = ", ".join(f"{times} {status}" for status, times in sorted(outcome.statuses.items()))
    verdict = "ok" if not outcome.violations else f"{len(outcome.violations)} VIOLATIONS"
    plan = outcome.plan
    counted = f"{outcome.commits} commits; {met}; {outcome.seconds:.1f} s"
    return f"{plan.store:<9} seed {plan.seed}: {verdict}, {ended}; {counted}"


def _read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Everything at once, while everything goes wrong."
    )
    parser.add_argument("--store", choices=("all", *STORES), default="all")
    parser.add_argument("--seconds", type=float, default=60.0, help="when to begin no more rounds (60)")
    parser.add_argument("--rounds", type=int, default=0, help="how many, whatever the time")
    parser.add_argument("--tasks", type=int, default=0, help=f"of people, in each round {TASKS}")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="that of the first round"
    )
    parser.add_argument("--faults", default=",".join(KINDS), help=f"of {','.join(KINDS)}; or none")
    arguments = parser.parse_args()
    if unknown := {*arguments.faults.split(",")} - {*KINDS, "none"}:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
