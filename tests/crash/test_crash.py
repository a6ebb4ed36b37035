"""Kill the server, really, at every point and at random; the invariants of DESIGN.md hold, and the answers are the same.

Every run is a chain of processes on one database: all but the last are killed, by SIGKILL at a counted point (each
await of the engine at its ports, each SQL statement, each yield of an agent or action), by the kernel inside a write
to the log (so that a commit is torn), or from outside at a random time. `crash_checks` says what is checked.

    MAIL_CRASH_RUNS=20000 pytest tests/crash -n 4     more of the random runs
    MAIL_CRASH_SEED=7                                 other ones
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

HERE = Path(__file__).parent
RUNS = int(os.environ.get("MAIL_CRASH_RUNS", "1000"))
SEED = int(os.environ.get("MAIL_CRASH_SEED", "0"))
SHARDS = 8
"""Tests that the runs are spread over, so that pytest-xdist can share them out."""


class Zygote:
    """A process that has everything imported, and forks for each run."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "crash_zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, *fates: dict[str, Any], seed: int = 0, **order: Any) -> dict[str, Any]:
        """Live through these fates, then until the end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"fates": fates, "seed": seed, **order}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the zygote has died"
        return dict(json.loads(answer))

    def must_survive(self, *fates: dict[str, Any], seed: int = 0) -> list[str]:
        """A run in which nothing may go wrong; returns where its processes died."""
        answer = self.run(*fates, seed=seed)
        if answer["problem"]:
            pytest.fail(f"{answer['problem']}\n\nfates={fates}, seed={seed}, deaths={answer['deaths']}")
        return list(answer["deaths"])


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as process:
        yield process


def points_of(zygote: Zygote, seed: int = 0) -> list[str]:
    answer = zygote.run(seed=seed)
    assert answer["problem"] == ""
    return list(answer["points"])


def test_the_points_are_everywhere(zygote: Zygote) -> None:
    """Each await of submit, turn, checkpoint, commit and publish is a point, and so is each statement."""
    seen = set(points_of(zygote))
    for when in ("before", "after"):
        for where in (
            "submit", "store.load", "store.open_turn", "store.save_checkpoint", "store.commit",
            "store.list_ready", "store.read_events", "queue.publish", "queue.take",
            "agent chief", "agent scout", "agent clerk", "action look", "action book", "action file",
        ):  # fmt: skip
            assert f"{when} {where}" in seen
    for statement in ("PRAGMA", "CREATE", "BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT", "SELECT"):
        assert any(label.startswith(f"sql {statement}") for label in seen), statement


@pytest.mark.parametrize("shard", range(SHARDS))
def test_dying_at_every_point_once(zygote: Zygote, shard: int) -> None:
    last = len(points_of(zygote))
    points = range(1 + shard, last + 1, SHARDS)
    died = [zygote.must_survive({"point": point}) for point in points]
    assert sum(map(len, died)) >= len(points) - 2  # timing moves the last points by one or two


@pytest.mark.parametrize("shard", range(SHARDS))
def test_dying_again_and_again_at_random(zygote: Zygote, shard: int) -> None:
    chance = random.Random(f"{SEED} {shard}")
    last = len(points_of(zygote))
    deaths: Counter[int] = Counter()
    for number in range(shard, RUNS, SHARDS):
        fates = [random_fate(chance, last) for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 6)))]
        deaths[len(zygote.must_survive(*fates, seed=SEED + number))] += 1
    assert sum(count for lives, count in deaths.items() if lives) > RUNS // SHARDS * 0.8


def random_fate(chance: random.Random, last: int) -> dict[str, Any]:
    """Mostly a point, sooner rather than later, as there is less to do after each death."""
    match chance.choices(("point", "grow", "seconds"), weights=(8, 3, 1))[0]:
        case "point":
            return {"point": 1 + int(last * chance.random() ** 1.5)}
        case "grow":
            return {"grow": 1 + int(200_000 * chance.random() ** 2)}
        case _:
            return {"seconds": 0.001 + 0.04 * chance.random()}


@pytest.mark.parametrize(
    "sabotage",
    [
        "torn commits",
        "late commits",
        "no recovery",
        "forgotten checkpoints",
        "misplaced checkpoints",
    ],
)
def test_the_suite_finds_bugs(zygote: Zygote, sabotage: str) -> None:
    last = len(points_of(zygote))
    chance = random.Random(sabotage)
    for number in range(300):
        fate = {"point": 1 + int(last * chance.random())}
        problem = zygote.run(fate, seed=number, sabotage=sabotage, patience=0.3)["problem"]
        if problem:
            assert "Traceback" not in problem, problem
            return
    pytest.fail(f"nobody noticed: {sabotage}")
