"""Moments of a task in the table: large ones, those that are gone, and those that were never kept."""

from dataclasses import replace

import pytest
from support.engines.dynamodb import DynamoDBAdapter
from support.faults.dynamodb import Faults, refusal

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.store import DynamoDBStore
from mail.core.engine.watch import read_waiting
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.change import HistoryRecord, Inheritance, TaskChange
from mail.core.task.ports import read_history
from mail.core.task.task import Task, TaskKey
from mail.errors import PayloadTooLarge, SnapshotExpired, StoreUnavailable
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, open_turn

KEY, OTHER = TaskKey(ANN, "task-1"), TaskKey(ANN, "task-2")
LARGE = "x" * 450_000
DAY = 86_400
dead = refusal("ValidationException")
"""Ends a commit before its transaction, so that nothing is tidied up: as if its process had died there."""


class Clock(FakeClock):
    """Time as the test wants it, but real ids."""

    def new_id(self) -> str:
        return SYSTEM_CLOCK.new_id()


def with_histories(change: TaskChange, *contents: str) -> TaskChange:
    """A new task that brings one large entry for each of its agents."""
    records = tuple(HistoryRecord(f"agent-{n}", 1, [{"content": text}]) for n, text in enumerate(contents))
    histories = {record.agent: 1 for record in records}
    return replace(change, task=replace(change.task, histories=histories), histories=records)


def crowd(make: Maker, size: int, text: str = "old") -> TaskChange:
    letters = (Mail("alpha", body=str(n)) for n in range(size))
    return with_histories(make.begin(KEY, *letters), *(f"{text} {n}" for n in range(size)))


async def commit(store: DynamoDBStore, *changes: TaskChange) -> Task:
    for change in changes:
        await store.commit(change)
    return changes[-1].task


async def test_histories_and_states_past_400_kb(table: DynamoDBAdapter, make: Maker) -> None:
    begun = make.begin(KEY, Mail("alpha", body=LARGE), Mail("beta"), title=LARGE)
    change = await committed(table.store, with_histories(begun, *(f"{n}{LARGE}" for n in range(12))))
    await table.store.commit(make.change(change.task, Mail("gamma")))
    snapshot = await table.store.read_snapshot(KEY, 1)
    assert snapshot.task == change.task
    mail = [entry async for entry in read_waiting(table.store, snapshot)]
    assert [entry.message for entry in mail] == [entry.message for entry in change.deliveries]
    for record in change.histories:
        assert await read_history(table.store, KEY, record.agent, upto=1) == record.entries


async def test_state_and_events_that_fit_each_but_not_together(table: DynamoDBAdapter, make: Maker) -> None:
    half = "x" * 189_000
    begun = make.begin(KEY, *(Mail("alpha", body="y" * 1500) for _ in range(85)), title=half)
    await table.store.commit(begun)
    assert (await table.store.read_snapshot(KEY, 1)).task == begun.task


async def test_without_a_bucket_they_are_refused_as_a_whole(table: DynamoDBAdapter, make: Maker) -> None:
    change = with_histories(make.begin(KEY, Mail("alpha"), Mail("beta")), "small", LARGE)
    with pytest.raises(PayloadTooLarge):
        await table.another(blobs=None).commit(change)
    assert table.items() == []


async def test_what_a_dead_fork_has_left_counts_for_nothing(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    """The process dies between what is staged and the transaction; another task takes the place."""
    faults.plan("TransactWriteItems", dead)
    with pytest.raises(StoreUnavailable):
        await table.another(client).commit(crowd(make, 110, "never"))
    assert len(table.items("A#agent")) > 10
    assert await table.store.load(KEY) is None
    change = await committed(table.store, crowd(make, 110))
    for record in change.histories:
        assert await read_history(table.store, KEY, record.agent) == record.entries
    last = change.histories[-1].agent
    await table.store.commit(make.change(change.task, Mail(last, Tier.PERSON)))
    assert (await open_turn(table.store, KEY, last, make)).history == change.histories[-1].entries


async def test_what_a_dead_fork_has_left_of_its_mail_counts_for_nothing(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    """The process dies between the slices of the mail and the transaction; another attempt takes the place."""
    await table.store.commit(make.begin(KEY, *(Mail("alpha", body="x" * 50_000) for _ in range(6))))
    inherits = Inheritance(KEY, {}, 0, {n: n for n in range(1, 7)})

    def fork() -> TaskChange:
        return replace(make.begin(OTHER, *(Mail("alpha") for _ in range(6))), inherits=inherits)

    before = len(table.items("E#"))
    faults.plan("TransactWriteItems", dead)
    with pytest.raises(StoreUnavailable):
        await table.another(client).commit(fork())
    assert len(table.items("E#")) == before + 1
    assert await table.store.load(OTHER) is None
    change = await committed(table.store, fork())
    mail, events = await table.store.read_inbox(OTHER), await table.store.read_events(OTHER)
    assert [entry.message.id for entry in mail] == [entry.message.id for entry in change.deliveries]
    assert {len(entry.message.message.body) for entry in mail} == {50_000}
    assert [event.message for event in events] == [entry.message for entry in mail]
    assert await table.store.read_events(OTHER, limit=1) == events[:1]


async def test_moments_go_with_their_events(table: DynamoDBAdapter) -> None:
    clock = Clock()
    make, store = Maker(clock), table.another(retention_days=3, clock=clock)
    begun = make.begin(KEY, Mail("beta"), Mail("beta"))
    task = await commit(store, begun)
    clock.advance(2 * DAY)
    turn = await store.open_turn(
        KEY, "beta", make.lease(clock.now().timestamp() + 60), now=clock.now().timestamp(), history_after=0
    )
    task = await commit(store, read := make.change(task, turn=turn, note="one is read"))  # type: ignore[arg-type]
    clock.advance(2 * DAY)
    task = await commit(store, make.change(task, Mail("alpha", body="new")))
    for at in (1, 2):
        with pytest.raises(SnapshotExpired):
            await store.read_snapshot(KEY, at)
    with pytest.raises(SnapshotExpired, match="not all of the mail"):
        await store.read_snapshot(KEY, read.task.seq)
