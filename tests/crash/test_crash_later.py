"""Actions that finish later, and calls on which reviewers decide: the server is killed at every point, and no call is
lost, none ends or is decided twice, and a request goes out under one id.

`crash_later` and `crash_reviews` have the scenarios; MAIL_CRASH_ENGINES is as in `test_crash_stores`.
"""

import random
from collections.abc import Iterator

import pytest
from crash_runs import (
    PARTS,
    RUNS,
    SAMPLE,
    SEED,
    WORLDS,
    Zygote,
    die_at_every_point,
    label_of,
    random_point,
    some_lives,
    zygote_of,
)

POINTS = {
    "later": ("action", "on_cancel", "store.put_wait", "store.claim", "store.list_waits"),
    "reviews": ("request", "decision", "store.find_asks", "store.claim", "store.commit"),
}


@pytest.fixture(scope="module", params=POINTS)
def life(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=WORLDS)
def zygote(request: pytest.FixtureRequest, life: str) -> Iterator[Zygote]:
    with zygote_of(request.param, life) as process:
        yield process


@pytest.mark.soak
def test_the_points_of_calls_are_among_them(zygote: Zygote, life: str) -> None:
    seen = {label_of(point) for point in zygote.points}
    for when in ("before", "after"):
        for where in POINTS[life]:
            assert f"{when} {where}" in seen


@pytest.mark.soak(on=("ministack", "postgres", "reviews-1", "reviews-2", "reviews-3", "later-2", "later-3"))
@pytest.mark.parametrize("part", range(PARTS))
def test_dying_at_every_point(zygote: Zygote, part: int) -> None:
    if zygote.world == "sqlite":
        for point in range(1 + part, len(zygote.points) + 1, PARTS * SAMPLE):
            zygote.must_survive({"point": point})
    else:
        die_at_every_point(zygote, part)


@pytest.mark.soak
def test_dying_again_and_again_at_random(zygote: Zygote) -> None:
    chance, last = random.Random(f"{SEED} later"), len(zygote.points)
    for number in range(max(2, RUNS // 20)):
        fates = [random_point(chance, last) for _ in range(some_lives(chance))]
        zygote.must_survive(*fates, seed=SEED + number)


@pytest.mark.soak
@pytest.mark.parametrize("sabotage", ["forgotten cancellations", "forgotten early results"])
def test_the_suite_finds_bugs(sabotage: str) -> None:
    chance = random.Random(sabotage)
    with Zygote("sqlite", life="later") as zygote:
        last = len(zygote.points)
        fates = ({"point": 1 + int(last * chance.random())} for _ in range(300))
        zygote.must_notice(sabotage, ({"fates": [fate], "patience": 2} for fate in fates))
