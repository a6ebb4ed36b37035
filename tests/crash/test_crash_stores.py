"""The same over DynamoDB and PostgreSQL: every request is a point as well, leases outlive the dead, and many may live.

The engine outlives all processes of a run; each run has a table or a database of its own. On PostgreSQL, the processes
share the queue in it. MAIL_CRASH_ENGINES names the DynamoDB engines of `support.engines.aws` to run on, such as
`ministack,dynoxide`.
"""

import os
import random
from collections.abc import Iterator
from typing import NamedTuple

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
from support.engines.aws import aws_environment, endpoint
from support.engines.dynamodb import SERVERS
from support.engines.postgres import has_postgres, postgres_server

ENGINES = [name for name in os.environ.get("MAIL_CRASH_ENGINES", "ministack").split(",") if name in SERVERS]
PAIRS = max(1, RUNS // 100)


class Store(NamedTuple):
    """What differs from store to store: points, and the bugs that are built in."""

    requests: tuple[str, ...]
    commit: str
    chains: int
    latest: float
    torn: tuple[str, str]
    unordered: str
    thieves: str
    zombies: str


STORES = {
    "dynamodb": Store(
        requests=tuple(
            f"dynamodb.{name}" for name in ("get_item", "query", "update_item", "transact_write_items")
        ),
        commit="dynamodb.transact_write_items",
        chains=max(1, RUNS // 50),
        latest=0.5,
        torn=("torn transactions", "before dynamodb.batch_write_item"),
        unordered="unordered commits",
        thieves="ignored leases",
        zombies="zombies",
    ),
    "postgres": Store(
        requests=("postgres.open", "postgres.commit", "postgres._change_locked", "postgres.fetch"),
        commit="postgres.commit",
        chains=max(1, RUNS // 100),
        latest=0.3,
        torn=("torn pipelines", "after postgres.commit [ann chief Plan"),
        unordered="unordered pipelines",
        thieves="stolen leases",
        zombies="living dead",
    ),
}


@pytest.fixture(scope="module", params=[*(f"dynamodb-{name}" for name in ENGINES), "postgres"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    world, _, engine = request.param.partition("-")
    if engine:
        environment = aws_environment(endpoint(engine))
    elif has_postgres():
        environment = {"MAIL_CRASH_POSTGRES": postgres_server().url()}
    else:
        pytest.skip("PostgreSQL is not installed")
    with Zygote(world, environment) as process:
        yield process


@pytest.fixture
def store(zygote: Zygote) -> Store:
    return STORES[zygote.world]


@pytest.mark.soak
def test_the_points_are_everywhere(zygote: Zygote, store: Store) -> None:
    """Each request is one, before it is sent and after it was executed; so is each await of the engine at its ports.

    Where requests are slow, other wake-ups may come before the sweep that ends the parks.
    """
    seen = {label_of(point) for point in zygote.points}
    for _ in range(24):
        if "after store.end_expired" in seen:
            break
        seen |= {label_of(point) for point in zygote.run()["points"]}
    for when in ("before", "after"):
        for where in (
            *store.requests,
            "submit", "store.open_turn", "store.save_checkpoint", "store.commit", "store.list_ready",
            "store.park", "store.end_expired", "queue.publish", "queue.take",
            "agent clerk", "action book", "summary scout",
        ):  # fmt: skip
            assert f"{when} {where}" in seen, f"{when} {where}"


@pytest.mark.soak(on="ministack")
@pytest.mark.parametrize("part", range(PARTS))
def test_dying_at_every_point_once(zygote: Zygote, part: int) -> None:
    die_at_every_point(zygote, part)


@pytest.mark.parametrize("part", range(PARTS))
def test_dying_again_and_again_at_random(zygote: Zygote, store: Store, part: int) -> None:
    chance = random.Random(f"{SEED} {part}")
    for number in range(part, store.chains, PARTS):
        fates = [random_point(chance, len(zygote.points)) for _ in range(some_lives(chance))]
        assert zygote.must_survive(*fates, seed=SEED + number)


@pytest.mark.soak(on=("ministack", "inside agent scout", "inside action book"))
@pytest.mark.parametrize(
    "point", ["inside agent scout", "inside action book", "before store.commit [ann clerk"]
)
def test_leaving_a_mailbox_alone_until_the_lease_of_the_dead_has_expired(zygote: Zygote, point: str) -> None:
    assert len(zygote.must_survive({"at": point}, heirs=True)) == 1


@pytest.mark.soak(on="ministack")
@pytest.mark.parametrize("part", range(PARTS))
def test_two_processes_at_work_on_the_same_tasks(zygote: Zygote, store: Store, part: int) -> None:
    """One or the other is killed, or stopped until its turns were taken over, and then continued."""
    chance = random.Random(f"{SEED} {part} two")
    for number in range(part, PAIRS, PARTS):
        strokes = random_strokes(chance, len(zygote.points), store.latest)
        zygote.must_survive(twins=strokes, seed=SEED + number)


@pytest.mark.soak
def test_two_processes_that_nothing_happens_to(zygote: Zygote) -> None:
    zygote.must_survive(twins={})


@pytest.mark.soak(on="ministack")
def test_being_held_up_between_taking_a_lease_and_reading_the_mail(zygote: Zygote, store: Store) -> None:
    if "dynamodb.update_item" not in store.requests:
        pytest.skip("one statement takes the lease and reads the mail")
    zygote.must_survive(twins={"ann": [{"at": "after dynamodb.update_item [ann", "held_up": True}]})


@pytest.mark.soak(on=("ministack", "scout", "clerk"))
@pytest.mark.parametrize("agent", ["chief", "scout", "clerk"])
def test_the_end_of_a_process_between_a_commit_and_the_turn_that_it_opened(
    zygote: Zygote, store: Store, agent: str
) -> None:
    """It dies, and the turn is taken over; or it is stopped until that has happened, and may then not run the turn
    again.
    """
    if store.commit != "postgres.commit":
        pytest.skip("its commits open no turns")
    point = f"between commit and begin [ann {agent}"
    assert len(zygote.must_survive({"at": point})) == 1
    zygote.must_survive(twins={"ann": [{"at": point, "held_up": True}]})


@pytest.mark.soak
@pytest.mark.parametrize("bug", ["torn", "forgotten checkpoints", "no recovery", "unordered"])
def test_the_suite_finds_bugs(zygote: Zygote, store: Store, bug: str) -> None:
    sabotage, point = {
        "torn": store.torn,
        "forgotten checkpoints": (bug, "inside action book"),
        "no recovery": (bug, "after store.commit [ann chief Plan"),
        "unordered": (store.unordered, "nowhere"),
    }[bug]
    zygote.must_notice(sabotage, [{"fates": [{"at": point}], "patience": 2.0}] * 10)


@pytest.mark.soak
def test_the_suite_finds_thieves(zygote: Zygote, store: Store) -> None:
    zygote.must_notice(store.thieves, [{"fates": [{"at": "inside agent scout"}], "heirs": True}])


@pytest.mark.soak
def test_the_suite_finds_zombies(zygote: Zygote, store: Store) -> None:
    held_up = {"at": f"before {store.commit} [ann chief", "held_up": True}
    zygote.must_notice(store.zombies, [{"twins": {"ann": [held_up], "bob": [held_up]}}] * 40)
