"""Guards: whenever a server is killed or a task is cancelled, nothing that they have refused happens or leaves a turn.

`crash_guards` has the scenario. Of the interleavings at full size, by hand:

    MAIL_GUARD_RUNS=10000 pytest tests/crash/test_crash_guards.py
"""

import os
import random
from collections.abc import Iterator

import pytest
from crash_runs import SEED, WORLDS, Zygote, label_of, random_point, some_lives, zygote_of
from support.plugins.tiers import sized

RUNS = int(os.environ.get("MAIL_GUARD_RUNS", sized(fast=4, full=4, soak=1000)))


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == "sqlite" else [pytest.mark.soak]) for name in WORLDS],
)
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    with zygote_of(request.param, "guards") as process:
        yield process


def test_the_points_of_guards_are_among_them(zygote: Zygote) -> None:
    seen = {label_of(point) for point in zygote.points}
    assert {f"{when} guard {on}" for when in ("before", "after") for on in ("call", "answer")} <= seen


@pytest.mark.timeout(6 * 3600)
def test_nothing_of_what_was_refused_happens_or_leaves(zygote: Zygote) -> None:
    chance, last, deaths = random.Random(f"{SEED} guards"), len(zygote.points), 0
    for number in range(RUNS):
        fates = [random_point(chance, last) for _ in range(some_lives(chance))]
        deaths += len(zygote.must_survive(*fates, seed=SEED + number))
    assert deaths >= RUNS / 2


@pytest.mark.soak
@pytest.mark.parametrize("sabotage", ["late guards", "forgotten refusals"])
def test_the_suite_finds_bugs(zygote: Zygote, sabotage: str) -> None:
    chance, last = random.Random(sabotage), len(zygote.points)
    fates = ([random_point(chance, last)] for _ in range(100))
    zygote.must_notice(sabotage, ({"fates": each, "patience": 5} for each in fates))
