"""The same over DynamoDB: every request of the store is a point as well, leases outlive the dead, and many may live.

An engine outlives all processes of a run; each run has a table of its own. MAIL_CRASH_ENGINES names the engines of
`support.engines` to run on, such as `ministack,dynoxide`.
"""

import os
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
from support.dynamodb import ENGINES
from support.engines import aws_environment, endpoint

ENGINES_HERE = os.environ.get("MAIL_CRASH_ENGINES", "ministack").split(",")
CHAINS = max(1, RUNS // 50)
PAIRS = max(1, RUNS // 100)


@pytest.fixture(scope="module", params=[name for name in ENGINES if name in ENGINES_HERE])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    with Zygote("dynamodb", aws_environment(endpoint(request.param))) as process:
        yield process


def test_the_points_are_everywhere(zygote: Zygote) -> None:
    """Each request is one, before it is sent and once it was executed; so is each await of the engine at its ports."""
    seen = {label_of(point) for point in zygote.points}
    for when in ("before", "after"):
        for where in (
            "get_item", "query", "update_item", "transact_write_items",
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
def test_two_processes_at_work_on_the_same_tasks(zygote: Zygote, part: int) -> None:
    """One or the other is killed, or held up until others have taken its turns over, and then goes on."""
    chance = random.Random(f"{SEED} {part} two")
    for number in range(part, PAIRS, PARTS):
        zygote.must_survive(twins=random_strokes(chance, len(zygote.points), 0.5), seed=SEED + number)


def test_two_processes_that_nothing_happens_to(zygote: Zygote) -> None:
    zygote.must_survive(twins={})


def test_being_held_up_between_taking_a_lease_and_reading_the_mail(zygote: Zygote) -> None:
    zygote.must_survive(twins={"ann": [{"at": "after update_item [ann", "held_up": True}]})


@pytest.mark.parametrize(
    ("sabotage", "place"),
    [
        ("torn transactions", "before batch_write_item"),
        ("forgotten checkpoints", "inside action book"),
        ("no recovery", "after store.commit [ann chief Plan"),
        ("unordered commits", "nowhere"),
    ],
)
def test_the_suite_finds_bugs(zygote: Zygote, sabotage: str, place: str) -> None:
    zygote.must_notice(sabotage, [{"fates": [{"at": place}], "patience": 2.0}] * 10)


def test_the_suite_finds_thieves(zygote: Zygote) -> None:
    zygote.must_notice("ignored leases", [{"fates": [{"at": "inside agent scout"}], "heirs": True}])


def test_the_suite_finds_zombies(zygote: Zygote) -> None:
    held_up = {"at": "before transact_write_items [ann chief", "held_up": True}
    zygote.must_notice("zombies", [{"twins": {"ann": [held_up], "bob": [held_up]}}] * 10)
