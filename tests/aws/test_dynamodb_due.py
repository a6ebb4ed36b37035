"""When a sweep looks at a task: what is due is found in time, and a task at work costs nothing for that."""

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest
from support.engines.dynamodb import DynamoDBAdapter
from support.plugins.tiers import sized

from bench.aws_meter import Meter
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import CHECK_SECONDS
from mail.adapters.aws.store import DynamoDBStore
from mail.core.task.change import Turn
from mail.core.task.leases import AHEAD_SECONDS, QUIET_SECONDS
from mail.core.task.task import TaskKey
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, open_turn

KEY = TaskKey(ANN, "task-1")
MINUTE, HOUR = 60.0, 3600.0
LATEST = QUIET_SECONDS + CHECK_SECONDS + MINUTE
"""Seconds after its last commit in which a task is looked at, at the latest: a sweep comes each minute."""

REQUESTS, READS = 40, 100
"""The budget of a sweep beside 10,000 running tasks."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(run=random.getrandbits(32))  # an engine remembers ids, across tables


@pytest.fixture
def make(clock: FakeClock) -> Maker:
    return Maker(clock)


@pytest.fixture
def store(table: DynamoDBAdapter, client: AwsClient, clock: FakeClock) -> DynamoDBStore:
    return table.another(client, clock=clock)


@pytest.fixture
def due(table: DynamoDBAdapter) -> Callable[[], float]:
    """What the index has for the only task."""

    def read() -> float:
        (item,) = table.items("META")
        return float(item["due"]["N"])

    return read


async def found(store: DynamoDBStore, clock: FakeClock) -> bool:
    """Whether a sweep that comes now looks at the task."""
    return bool(await store.list_due(clock.now().timestamp() + AHEAD_SECONDS))


async def open_now(store: DynamoDBStore, mailbox: str, make: Maker) -> Turn:
    return await open_turn(store, KEY, mailbox, make, now=make.clock.now().timestamp())


@pytest.mark.usefixtures("two_shards")
async def test_a_task_at_work_moves_in_the_index_once_a_minute_and_is_not_read(
    store: DynamoDBStore, clock: FakeClock, make: Maker, due: Callable[[], float]
) -> None:
    change = await committed(store, make.begin(KEY, Mail("alpha")))
    seen = {due()}
    for _ in range(30):
        clock.advance(10)
        assert not await found(store, clock)
        change = await committed(store, make.change(change.task))
        seen.add(due())
    assert len(seen) <= 300 / CHECK_SECONDS + 1


@pytest.mark.usefixtures("two_shards")
async def test_so_does_one_whose_turn_lasts(
    store: DynamoDBStore, clock: FakeClock, make: Maker, due: Callable[[], float]
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), deadline=NOW + HOUR))
    turn = await open_now(store, "alpha", make)
    seen = {due()}
    for _ in range(24):
        clock.advance(13)
        assert not await found(store, clock)
        assert await store.renew([turn], expires=clock.now().timestamp() + 40) == set()
        seen.add(due())
    assert len(seen) <= 312 / CHECK_SECONDS + 1
    assert max(seen) < NOW + HOUR


async def test_a_renewal_puts_off_no_deadline(
    store: DynamoDBStore, clock: FakeClock, make: Maker, due: Callable[[], float]
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), deadline=NOW + 130))
    turn = await open_now(store, "alpha", make)
    clock.advance(13)
    assert await store.renew([turn], expires=NOW + 53) == set()
    assert due() == NOW + 130


@pytest.mark.usefixtures("two_shards")
@pytest.mark.parametrize("how", ["renews", "commits"])
async def test_a_dead_turn_is_found_whatever_others_do(
    store: DynamoDBStore, clock: FakeClock, make: Maker, how: str
) -> None:
    """Its message was lost, too; else its queue brings it back."""
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    dead = await open_now(store, "alpha", make)
    clock.advance(61)
    turn = await open_now(store, "beta", make)
    sweeps = 0
    while not (listed := await store.list_due(clock.now().timestamp() + AHEAD_SECONDS)):
        sweeps += 1
        assert sweeps * 13 < LATEST
        if how == "renews":
            await store.renew([turn], expires=clock.now().timestamp() + 40)
        else:
            await store.commit(make.change(turn.task, Mail("beta"), turn=turn))
            turn = await open_now(store, "beta", make)
        clock.advance(13)
    (ended,) = await store.end_expired(listed[0], now=clock.now().timestamp())
    assert ended.lease.token == dead.lease.token


@pytest.mark.usefixtures("two_shards")
async def test_mail_that_waits_is_looked_at_less_and_less_often(
    store: DynamoDBStore, clock: FakeClock, make: Maker
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha")))
    times = []
    for minute in range(1, 61):
        clock.advance(MINUTE)
        now = clock.now().timestamp()
        for each in await store.list_due(now + AHEAD_SECONDS):
            times.append(minute)
            assert await store.end_expired(each, now=now) == []
    assert times[0] * MINUTE <= LATEST
    assert 4 <= len(times) <= 7
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == sorted(pauses)


async def test_a_sweep_pays_nothing_for_tasks_at_work(
    store: DynamoDBStore, client: AwsClient, clock: FakeClock, make: Maker
) -> None:
    count = sized(fast=20, full=100, soak=10_000)
    changes = [make.begin(TaskKey(ANN, f"task {n}"), Mail("alpha")) for n in range(count)]
    for start in range(0, count, 50):
        await asyncio.gather(*map(store.commit, changes[start : start + 50]))
    clock.advance(QUIET_SECONDS - 1)
    meter = Meter(lambda _table, _key: {})
    meter.watch(client.botocore)
    assert not await found(store, clock)
    usage = meter.take()
    print(f"{count} tasks at work: {usage.calls.total()} requests, {usage.read_units} read units")
    assert usage.calls.total() <= REQUESTS
    assert usage.read_units <= READS
    clock.advance(LATEST)
    assert await found(store, clock)
