"""A short run of chaos on every store, and proof that it notices when an invariant does not hold.

MAIL_CHAOS_ROUNDS=50 pytest tests/chaos     more rounds on each store
MAIL_CHAOS_SEED=7                           from another seed
python -m chaos --help                      as long as you like
"""

import asyncio
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pytest
from chaos_sabotage import SABOTAGES
from support.engines.aws import has_ministack
from support.engines.postgres import has_postgres

from chaos import clients, rounds
from chaos.clients import WORKLOADS
from chaos.rounds import Outcome, Plan, play

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("MAIL_CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("MAIL_CHAOS_SEED", "1"))
ANY_SEED = random.SystemRandom().randrange(10**6)

pytestmark = pytest.mark.timeout(300)


def must_be_well(plan: Plan) -> Outcome:
    outcome = play(plan)
    assert not outcome.violations, outcome.report
    assert sum(outcome.statuses.values()) >= plan.tasks, outcome.statuses
    return outcome


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(SEED, marks=pytest.mark.full),
        *range(SEED + 1, SEED + 2 * ROUNDS),
        pytest.param(ANY_SEED, id="any"),
    ],
)
def test_on_sqlite(seed: int) -> None:
    outcome = must_be_well(Plan("sqlite", seed, tasks=len(WORKLOADS)))
    assert outcome.deaths
    assert {"delay", "duplicate", "throttle", "skew"} <= outcome.met.keys()
    assert {"completed", "failed"} <= outcome.statuses.keys()


@pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL: python3 scripts/dev.py postgres")
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_on_postgres(round_: int) -> None:
    assert must_be_well(Plan("postgres", SEED + round_, tasks=6)).met


@pytest.mark.skipif(not has_ministack(), reason="no ministack: python3 scripts/dev.py tools ministack")
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_on_dynamodb(round_: int) -> None:
    assert must_be_well(Plan("dynamodb", SEED + round_, tasks=5)).met


def test_without_faults_nothing_goes_wrong() -> None:
    outcome = must_be_well(Plan("sqlite", SEED, tasks=len(WORKLOADS), faults=()))
    assert not outcome.met
    assert not outcome.deaths


def test_few_tasks_are_of_all_kinds() -> None:
    assert sorted(Plan("sqlite", SEED, tasks=len(WORKLOADS)).kinds()) == sorted(WORKLOADS)


def test_a_round_on_sqlite_is_the_same_each_time() -> None:
    """In this process, after others; and in one that hashes otherwise."""
    first, again = (play(Plan("sqlite", 11, tasks=14)) for _ in range(2))
    assert first.deaths
    assert (first.trace, first.deaths, first.met) == (again.trace, again.deaths, again.met)
    code = (
        "import sys; sys.path[:0] = ['.', 'tests']\nfrom chaos.rounds import Plan, play\n"
        "print('\\n'.join(play(Plan('sqlite', 11, tasks=14)).trace))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.splitlines() == "\n".join(first.trace).splitlines()


def test_another_seed_is_another_round() -> None:
    one, other = (play(Plan("sqlite", seed, tasks=5)) for seed in (1, 2))
    assert one.trace != other.trace


SABOTAGED_ROUNDS = 6


@pytest.mark.parametrize("name", SABOTAGES)
def test_chaos_finds_bugs(name: str) -> None:
    """In the first round, or in one of the next: not each has the very fault that would show it."""
    invariant, sabotage = SABOTAGES[name]
    reports = []
    with sabotage(), patch.object(clients, "TIMEOUT", 300.0), patch.object(rounds, "REST_SECONDS", 60.0):
        for seed in range(SEED, SEED + SABOTAGED_ROUNDS):
            outcome = play(Plan("sqlite", seed, tasks=len(WORKLOADS)))
            if any(violation.invariant == invariant for violation in outcome.violations):
                return
            reports.append(outcome.report)
    pytest.fail(f"nobody noticed: {reports}")


def test_a_round_that_hangs_is_ended_and_says_where_everybody_is(capfd: pytest.CaptureFixture[str]) -> None:
    bitten = threading.Event()

    async def hang(self: rounds._Round) -> None:
        await asyncio.to_thread(bitten.wait, 30)  # which nothing that the loop does can end

    with (
        patch.object(rounds._Round, "run", hang),
        patch.object(rounds, "WALL_SECONDS", 0.1),
        patch.object(rounds, "LAST_SECONDS", 0.0),
    ):
        plan = Plan("sqlite", 1)
        play(plan, bites=bitten.set)
    told = capfd.readouterr().err
    assert bitten.is_set()
    assert plan.command in told
    assert "nobody, Task-" in told
    assert "hang:" in told
    assert "Current thread" in told


def test_the_command_says_how_to_see_it_again() -> None:
    plan = Plan("sqlite", 5, tasks=3, faults=("kill", "skew"))
    outcome = play(plan)
    assert plan.command in outcome.report
    done = subprocess.run(
        [sys.executable, *plan.command.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 5; faults: kill, skew\n")
    assert "1 rounds in" in done.stdout
    assert "from seed 5: all is well" in done.stdout
