"""Kill the server, really, at every point and at random; the invariants of DESIGN.md hold, and the answers are the
same.

Every run is a chain of processes on one database: all but the last are killed, by SIGKILL at a counted point (each
await of the engine at its ports, each SQL statement, each yield of an agent or action), by the kernel inside a write
to the log (so that a commit is torn), or from outside at a random time. `crash_checks` says what is checked.

    pytest tests/crash --tier soak -n 4               at every point, not at a sample of them
    MAIL_CRASH_RUNS=20000 pytest tests/crash -n 4     more of the random runs
    MAIL_CRASH_SEED=7                                 other ones
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from crash_runs import RUNS, SAMPLE, SEED, SHARDS, Fate, Zygote, label_of, random_point, some_lives

TRIES = 1_000
"""Lives in search of a bug. The rarest, misplaced checkpoints, shows at 5 of 614 points: 300 lives could miss it."""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("sqlite") as process:
        yield process


def test_the_points_are_everywhere(zygote: Zygote) -> None:
    """Each await of submit, turn, checkpoint, commit and publish is a point, and so is each statement."""
    seen = {label_of(point) for point in zygote.points}
    for when in ("before", "after"):
        for where in (
            "submit", "store.load", "store.open_turn", "store.save_checkpoint", "store.commit",
            "store.list_ready", "store.read_events", "store.park", "store.list_due", "store.end_expired",
            "queue.publish", "queue.take",
            "agent chief", "agent scout", "agent clerk", "agent helper",
            "action look", "action book", "action file", "action pay",
            "summary scout",
        ):  # fmt: skip
            assert f"{when} {where}" in seen
    for statement in ("PRAGMA", "CREATE", "BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT", "SELECT"):
        assert any(label.startswith(f"sql {statement}") for label in seen), statement


@pytest.mark.parametrize("shard", range(SHARDS))
def test_dying_at_every_point_once(zygote: Zygote, shard: int) -> None:
    last = len(zygote.points)
    points = range(1 + shard, last + 1, SHARDS * SAMPLE)
    died = [zygote.must_survive({"point": point}) for point in points]
    assert sum(map(len, died)) >= len(points) * 0.9 - 1  # timing moves the last points


@pytest.mark.parametrize("shard", range(SHARDS))
def test_dying_again_and_again_at_random(zygote: Zygote, shard: int) -> None:
    chance = random.Random(f"{SEED} {shard}")
    last = len(zygote.points)
    deaths: Counter[int] = Counter()
    for number in range(shard, RUNS, SHARDS):
        fates = [random_fate(chance, last) for _ in range(some_lives(chance))]
        deaths[len(zygote.must_survive(*fates, seed=SEED + number))] += 1
    assert sum(count for lives, count in deaths.items() if lives) > RUNS // SHARDS * 0.8


def random_fate(chance: random.Random, last: int) -> Fate:
    """Mostly a point."""
    match chance.choices(("point", "grow", "seconds"), weights=(8, 3, 1))[0]:
        case "point":
            return random_point(chance, last)
        case "grow":
            return {"grow": 1 + int(200_000 * chance.random() ** 2)}
        case _:
            return {"seconds": 0.001 + 0.04 * chance.random()}


@pytest.mark.soak(on="torn commits")
@pytest.mark.soak(on="misplaced checkpoints")
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
    chance = random.Random(sabotage)
    fates = ({"point": 1 + int(len(zygote.points) * chance.random())} for _ in range(TRIES))
    zygote.must_notice(sabotage, ({"fates": [fate], "patience": 0.5} for fate in fates))
