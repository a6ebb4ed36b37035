"""Retention: what is past it isn't there, whether or not DynamoDB has come round to delete it."""

from dataclasses import replace

import pytest
from support.engines.dynamodb import LONG, DynamoDBAdapter

from mail.adapters.aws.store import DynamoDBStore
from mail.core.decisions.schedules import save
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.ports import Idle, TaskPage, WakeUp, read_history
from mail.core.task.schedules import Schedule
from mail.core.task.task import TaskKey, Transition
from mail.errors import LeaseLost, TaskNotFound, VersionConflict
from mail.testing.changes import ANN, SWARM, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, due_tasks, everything

KEY = TaskKey(ANN, "task-1")
DAY = 86_400
MARGIN = 120


class Clock(FakeClock):
    """Time as the test wants it, but real ids."""

    def new_id(self) -> str:
        return SYSTEM_CLOCK.new_id()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Maker:
    return Maker(clock)


@pytest.fixture
def store(table: DynamoDBAdapter, clock: Clock) -> DynamoDBStore:
    """A store that keeps things for three days."""
    return table.another(retention_days=3, clock=clock)


async def open_now(store: DynamoDBStore, make: Maker, mailbox: str = "alpha") -> object:
    now = make.clock.now().timestamp()
    return await store.open_turn(KEY, mailbox, make.lease(now + 60), now=now, history_after=0)


async def test_everything_that_is_written_gets_an_end(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), *(Mail(f"agent-{n}") for n in range(120))))
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    await store.save_checkpoint(turn, checkpoint("kept"))
    await store.commit(
        make.change(turn.task, Mail("beta"), turn=turn, history=[{"n": 1}], transition=Transition.COMPLETE)
    )
    end = clock.now().timestamp() + 3 * DAY
    ends = {item["SK"]["S"][0]: int(item["expires_at"]["N"]) for item in table.items()}
    assert {kind: abs(at - end) <= MARGIN for kind, at in ends.items()} == dict.fromkeys("MAER", True)
    assert ends["M"] > max(ends["A"], ends["E"], ends["R"]), "a task outlives its parts"


async def test_a_schedule_stays_though_its_parts_end(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    spec = Schedule(name="yearly", cron="0 0 1 1 *", body="look", caller=ANN)
    change = save(None, SWARM, spec, "admin:ops", clock)
    assert change is not None
    await store.commit(change)
    assert {item["SK"]["S"][0]: "expires_at" in item for item in table.items()} == {"M": False, "E": True}
    clock.advance(300 * DAY)
    assert await store.load(change.key) == change.task


async def test_without_retention_nothing_ends(table: DynamoDBAdapter, make: Maker) -> None:
    await table.store.commit(make.begin(KEY))
    assert not [item for item in table.items() if "expires_at" in item]


async def test_turned_off_it_ends_no_more(table: DynamoDBAdapter, store: DynamoDBStore, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY))
    await table.store.commit(make.change(begun.task))
    (item,) = table.items("META")
    assert "expires_at" not in item


async def test_a_task_past_it_is_gone(store: DynamoDBStore, make: Maker, clock: Clock) -> None:
    begun = await committed(store, make.begin(KEY, deadline=clock.now().timestamp() + 5))
    await store.commit(make.change(begun.task, history=[{}], transition=Transition.PAUSE))
    clock.advance(3 * DAY + MARGIN)
    assert await store.load(KEY) is None
    for read in (
        read_history(store, KEY, "alpha"),
        store.read_inbox(KEY),
        store.read_events(KEY),
        store.read_response(KEY, 1),
        store.wait_for_change(KEY, after=0, seconds=0),
        store.wait_for_response(KEY, 1, seconds=0),
    ):
        with pytest.raises(TaskNotFound):
            await read
    assert await store.list_tasks(ANN) == TaskPage([], None)


async def test_a_running_task_past_it_is_gone(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), deadline=clock.now().timestamp() + 5))
    clock.advance(3 * DAY + MARGIN)
    before = table.items()
    assert await open_now(store, make) == Idle(None)
    assert table.items() == before
    assert await store.list_ready() == []
    assert await due_tasks(store, clock.now().timestamp()) == []


async def test_each_commit_lets_the_task_live_longer(store: DynamoDBStore, make: Maker, clock: Clock) -> None:
    task = (await committed(store, make.begin(KEY))).task
    for _ in range(4):
        clock.advance(2 * DAY)
        task = (await committed(store, make.change(task))).task
    assert await store.load(KEY) == task
    assert [event.seq for event in await store.read_events(KEY)] == [task.seq - 1, task.seq]


async def test_another_task_may_take_its_place(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha", Tier.SYSTEM, LONG), title="old"))
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    await store.commit(
        make.change(
            turn.task, Mail("alpha", Tier.SYSTEM, LONG), turn=turn, history=[{"old": True}],
            transition=Transition.COMPLETE,
        )
    )  # fmt: skip
    with pytest.raises(VersionConflict):
        await store.commit(make.begin(KEY, title="too early"))
    clock.advance(3 * DAY + MARGIN)
    fresh = await committed(store, make.begin(KEY, Mail("alpha", Tier.AGENT, LONG), title="new"))
    assert len(table.items("A#alpha#")) == 3, "DynamoDB has deleted nothing yet"
    after = await everything(store, KEY)
    assert (after.task, after.events) == (fresh.task, list(fresh.events))
    assert (after.histories["alpha"], after.responses) == ([], [None])
    assert [entry["message"] for entry in after.inbox] == [fresh.deliveries[0].message]
    assert (await store.list_tasks(ANN)).tasks == [fresh.task]
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    assert (turn.entry, turn.history) == (fresh.deliveries[0], [])


async def test_mail_that_nobody_has_read_in_time_is_counted_no_more(
    store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    """The task lives on by its other commits; the mailbox must not look ready for ever."""
    begun = await committed(store, make.begin(KEY, Mail("alpha", body=LONG), Mail("beta")))
    clock.advance(2 * DAY)
    await store.commit(make.change(begun.task))
    clock.advance(2 * DAY)
    opened = await open_now(store, make)
    assert isinstance(opened, Idle)
    assert opened.task is not None
    assert list(opened.task.pending) == ["beta"]
    assert await store.load(KEY) == opened.task
    assert await store.list_ready() == [WakeUp(KEY, "beta", Tier.AGENT)]
    await store.commit(make.change(opened.task, Mail("alpha", body="news")))
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    assert turn.entry.message.message.body == "news"


async def test_a_commit_that_still_counts_expired_mail_is_refused(
    store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    """It was decided before the mail was found to be gone, and would bring its count back."""
    begun = await committed(store, make.begin(KEY, Mail("alpha", body=LONG)))
    clock.advance(2 * DAY)
    change = await committed(store, make.change(begun.task))
    clock.advance(2 * DAY)
    late = make.change(change.task)
    opened = await open_now(store, make)
    assert isinstance(opened, Idle)
    with pytest.raises(VersionConflict) as conflict:
        await store.commit(late)
    assert conflict.value.current == opened.task


async def test_newer_mail_behind_what_has_expired_is_read(
    store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha", Tier.AGENT, LONG)))
    clock.advance(2 * DAY)
    await store.commit(make.change(begun.task, Mail("alpha", Tier.AGENT, "new")))
    clock.advance(2 * DAY)
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    assert turn.entry.message.message.body == "new"


async def test_a_checkpoint_brings_no_part_of_a_deleted_message_back(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker
) -> None:
    """DynamoDB may delete the message while its turn runs."""
    await store.commit(make.begin(KEY, Mail("alpha", body=LONG)))
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    (item,) = table.items("A#alpha#I")
    await table.client.call(
        "delete_item", TableName=table.table, Key={name: item[name] for name in ("PK", "SK")}
    )
    with pytest.raises(LeaseLost):
        await store.save_checkpoint(turn, checkpoint(LONG))
    assert table.items("A#alpha#I") == []


async def test_of_a_task_that_waits_what_is_in_the_bucket_is_not_kept_longer_than_there(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha"), deadline=clock.now().timestamp() + 5))
    change = make.change(begun.task, Mail("beta"), Mail("gamma", body="x" * 300_000))
    waits = replace(change.task.waits, due=clock.now().timestamp() + 2 * DAY)
    await store.commit(replace(change, task=replace(change.task, waits=waits)))
    end = clock.now().timestamp() + 3 * DAY
    ends = {item["SK"]["S"]: int(item["expires_at"]["N"]) - end for item in table.items()}
    (small,), (large,) = [
        [ends[key] for key in ends if key.startswith(f"A#{name}#I")] for name in ("beta", "gamma")
    ]
    assert (small, large) == (2 * DAY, 0)
    assert ends["META"] > small


async def test_mail_in_the_item_of_its_task_is_kept_as_long_as_the_task(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    clock.advance(2 * DAY)
    await store.commit(make.change(begun.task))
    clock.advance(2 * DAY)
    turn = await open_now(store, make)
    assert isinstance(turn, Turn)
    assert turn.entry == begun.deliveries[0]
    await store.save_checkpoint(turn, checkpoint(LONG))
    (item,) = table.items("A#alpha#I")
    assert int(item["expires_at"]["N"]) == clock.now().timestamp() + 3 * DAY
