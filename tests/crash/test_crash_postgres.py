"""The same over PostgreSQL: every round trip is a point, and so is every token that is taken; many servers may live.

A PostgreSQL outlives all processes of a run; each run has a database of its own. The processes share the queue in it.
"""

import random
from collections.abc import Iterator

import pytest
from crash_runs import (
    PARTS,
    RUNS,
    SEED,
    Zygote,
    die_at_every_point,
    label_of,
    random_point,
    random_strokes,
    some_lives,
)
from support.postgres import has_postgres, postgres_server

CHAINS = max(1, RUNS // 100)
PAIRS = max(1, RUNS // 100)

pytestmark = pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("postgres", {"MAIL_CRASH_POSTGRES": postgres_server().url()}) as process:
        yield process


def test_the_points_are_everywhere(zygote: Zygote) -> None:
    """Each round trip is one, before it is sent and once it was executed; so is each await of the engine at its ports."""
    seen = {label_of(point) for point in zygote.points}
    for when in ("before", "after"):
        for where in (
            "open", "commit", "save", "fetch",
            "submit", "store.open_turn", "store.save_checkpoint", "store.commit", "store.list_ready",
            "queue.publish", "queue.take", "agent clerk", "action book",
        ):  # fmt: skip
            assert f"{when} {where}" in seen, f"{when} {where}"


@pytest.mark.parametrize("part", range(PARTS))
def test_dying_at_every_point_once(zygote: Zygote, part: int) -> None:
    die_at_every_point(zygote, part)


@pytest.mark.parametrize("part", range(PARTS))
def test_dying_again_and_again_at_random(zygote: Zygote, part: int) -> None:
    chance = random.Random(f"{SEED} {part}")
    for number in range(part, CHAINS, PARTS):
        fates = [random_point(chance, len(zygote.points)) for _ in range(some_lives(chance))]
        assert zygote.must_survive(*fates, seed=SEED + number)


@pytest.mark.parametrize(
    "place", ["inside agent scout", "inside action book", "before store.commit [ann clerk"]
)
def test_leaving_a_mailbox_alone_until_the_lease_of_the_dead_has_expired(zygote: Zygote, place: str) -> None:
    assert len(zygote.must_survive({"at": place}, heirs=True)) == 1


@pytest.mark.parametrize("part", range(PARTS))
def test_two_servers_at_work_on_the_same_tasks(zygote: Zygote, part: int) -> None:
    """One or the other is killed, or held up until others have taken its turns over, and then goes on."""
    chance = random.Random(f"{SEED} {part} two")
    for number in range(part, PAIRS, PARTS):
        zygote.must_survive(twins=random_strokes(chance, len(zygote.points), 0.3), seed=SEED + number)


def test_two_servers_that_nothing_happens_to(zygote: Zygote) -> None:
    zygote.must_survive(twins={})


@pytest.mark.parametrize(
    ("sabotage", "place"),
    [
        ("torn pipelines", "after commit [ann chief Plan"),
        ("forgotten checkpoints", "inside action book"),
        ("no recovery", "after store.commit [ann chief Plan"),
        ("unordered pipelines", "nowhere"),
    ],
)
def test_the_suite_finds_bugs(zygote: Zygote, sabotage: str, place: str) -> None:
    zygote.must_notice(sabotage, [{"fates": [{"at": place}], "patience": 2.0}] * 10)


def test_the_suite_finds_thieves(zygote: Zygote) -> None:
    zygote.must_notice("stolen leases", [{"fates": [{"at": "inside agent scout"}], "heirs": True}])


def test_the_suite_finds_zombies(zygote: Zygote) -> None:
    held_up = {"at": "before commit [ann chief", "held_up": True}
    zygote.must_notice("living dead", [{"twins": {"ann": [held_up], "bob": [held_up]}}] * 10)
