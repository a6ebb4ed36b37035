"""DynamoDB under stress: whatever the network does, a write happens once, or its caller knows that it may not have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from email.utils import formatdate
from time import time

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from support.engines.dynamodb import LONG, DynamoDBAdapter
from support.faults.dynamodb import (
    Fault,
    Faults,
    Late,
    Send,
    broken,
    broken_after,
    cancelled,
    conflict,
    hiding,
    lost_answer,
    lost_request,
    new_token,
    out_of_capacity,
    refusal,
    throttled,
)
from support.services.loopback import Handler, serve

from mail.adapters.aws.client import Aws, AwsClient
from mail.adapters.aws.items import events_key
from mail.adapters.aws.store import DynamoDBStore
from mail.core.protocol.message import Tier
from mail.core.task.change import TaskChange, Turn
from mail.core.task.ports import Busy, Idle
from mail.core.task.task import TaskKey, Transition
from mail.errors import LeaseLost, StoreUnavailable, VersionConflict
from mail.testing.changes import ANN, NOW, Mail, Maker, checkpoint
from mail.testing.contracts import committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")

PASSING: dict[str, Fault] = {
    "throttled": throttled,
    "out of capacity": out_of_capacity,
    "broken": broken,
    "request lost": lost_request,
    "answer lost": lost_answer,
    "broken after": broken_after,
}
"""What botocore tries again after."""

BUSY_TRANSACTION: dict[str, Fault] = {
    "conflict": conflict,
    "throttled inside": cancelled("None", "ThrottlingError"),
    "capacity inside": cancelled("ProvisionedThroughputExceeded", "None"),
}
"""What we try again after."""


def faulty(faults: dict[str, Fault]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in faults.items()])


@pytest.fixture
async def store(table: DynamoDBAdapter, client: AwsClient, faults: Faults) -> AsyncIterator[DynamoDBStore]:
    """A store whose requests meet faults; `table.store` is one whose don't."""
    yield table.another(client)
    assert faults.are_over


class TestCommit:
    @faulty(PASSING | BUSY_TRANSACTION)
    async def test_of_a_new_task(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        faults.plan("TransactWriteItems", fault)
        change = await committed(store, make.begin(KEY, Mail("alpha", Tier.PERSON)))
        after = await everything(table.store, KEY)
        assert (after.task, after.events) == (change.task, list(change.events))
        assert len(after.inbox) == 1

    @faulty(PASSING | BUSY_TRANSACTION)
    async def test_of_a_turn(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("alpha"))
        change = make.change(turn.task, Mail("beta"), turn=turn, history=[{"n": 1}])
        faults.plan("TransactWriteItems", fault)
        await store.commit(change)
        after = await everything(table.store, KEY)
        assert after.task == change.task
        assert [entry["mailbox"] for entry in after.inbox] == ["alpha", "beta"]
        assert after.histories["alpha"] == [{"n": 1}]
        await open_turn(table.store, KEY, "alpha", make)

    @faulty({"answer lost": lost_answer, "broken after": broken_after})
    @pytest.mark.parametrize("with_turn", [True, False])
    async def test_that_went_through_is_known_by_its_events(
        self,
        table: DynamoDBAdapter,
        store: DynamoDBStore,
        faults: Faults,
        make: Maker,
        fault: Fault,
        with_turn: bool,
    ) -> None:
        """The repeated request is refused, as the task has moved on: by the commit itself."""
        begun = await committed(store, make.begin(KEY, Mail("alpha")))
        turn = await open_turn(store, KEY, "alpha", make) if with_turn else None
        change = make.change(begun.task, Mail("beta"), turn=turn)
        faults.plan("TransactWriteItems", fault, new_token)
        await store.commit(change)
        assert await table.store.load(KEY) == change.task
        assert await table.store.read_events(KEY) == [*begun.events, *change.events]

    async def test_that_went_through_is_known_though_others_have_followed(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha")))
        turn = await open_turn(store, KEY, "alpha", make)
        change = make.change(turn.task, Mail("beta"), turn=turn)
        next_change = make.change(change.task, Mail("gamma"))
        loop = asyncio.get_running_loop()

        def overtake(request: AWSPreparedRequest, send: Send) -> AWSResponse:
            asyncio.run_coroutine_threadsafe(table.store.commit(next_change), loop).result(10)
            return new_token(request, send)

        faults.plan("TransactWriteItems", lost_answer, overtake)
        await store.commit(change)
        assert await table.store.load(KEY) == next_change.task

    async def test_that_lost_against_another_is_told_so(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        winner, loser = make.change(begun.task, Mail("beta")), make.change(begun.task, Mail("gamma"))
        await table.store.commit(winner)
        before = await everything(table.store, KEY)
        faults.plan("TransactWriteItems", lost_request, conflict)
        with pytest.raises(VersionConflict) as refused:
            await store.commit(loser)
        assert refused.value.current == winner.task
        assert await everything(table.store, KEY) == before

    async def test_of_one_who_has_lost_the_lease_is_refused_even_if_repeated(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        heir = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
        faults.plan("TransactWriteItems", lost_request, conflict)
        with pytest.raises(LeaseLost):
            await store.commit(make.change(slow.task, Mail("beta"), turn=slow))
        await table.store.commit(make.change(heir.task, turn=heir))

    async def test_whose_request_arrives_late_counts_once(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        change, late = make.change(begun.task, Mail("beta")), Late()
        faults.plan("TransactWriteItems", late)
        await store.commit(change)
        before = await everything(table.store, KEY)
        late.arrive()
        assert await everything(table.store, KEY) == before

    async def test_without_any_answer_may_have_happened(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        change = make.begin(KEY)
        faults.always = dict.fromkeys(("TransactWriteItems", "GetItem"), lost_answer)
        with pytest.raises(StoreUnavailable) as failure:
            await store.commit(change)
        assert failure.value.__cause__ is not None
        assert await table.store.load(KEY) == change.task

    async def test_that_happened_counts_though_no_answer_ever_came(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        change = make.begin(KEY)
        faults.always = {"TransactWriteItems": lost_answer}
        await store.commit(change)
        assert await table.store.load(KEY) == change.task

    @faulty({"conflict": conflict, "request lost": lost_request})
    async def test_gives_up_after_a_while(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        faults.always = {"TransactWriteItems": fault}
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable):
                await store.commit(make.begin(KEY))
        assert 1 < faults.met <= 20
        assert await table.store.load(KEY) is None

    @faulty({"not valid": refusal("ValidationException"), "bad reason": cancelled("ValidationError", "None")})
    async def test_what_can_never_succeed_is_not_repeated(
        self, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        faults.plan("TransactWriteItems", fault)
        with pytest.raises(StoreUnavailable):
            await store.commit(make.begin(KEY))
        assert faults.met == 1

    async def test_in_a_busy_task_everyone_gets_through(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), Mail("gamma")))
        faults.plan("TransactWriteItems", *[conflict] * 9)
        faults.plan("UpdateItem", *[conflict] * 6)

        async def work(name: str) -> None:
            turn = await open_turn(store, KEY, name, make)
            task = turn.task
            while True:
                try:
                    await store.commit(make.change(task, turn=turn, history=[{"by": name}]))
                    return
                except VersionConflict as conflict_:
                    task = conflict_.current

        async with asyncio.timeout(30):
            await asyncio.gather(*map(work, ("alpha", "beta", "gamma")))
        after = await everything(table.store, KEY)
        assert after.task is not None
        assert (after.task.version, after.inbox) == (4, [])
        assert [event.seq for event in after.events] == list(range(1, 7))


class TestOpenTurn:
    @faulty(PASSING | {"conflict": conflict})
    async def test_gives_the_turn_and_its_lease(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha")))
        faults.plan("UpdateItem", fault)
        turn = await open_turn(store, KEY, "alpha", make)
        assert (turn.task, turn.entry) == (begun.task, begun.deliveries[0])
        assert await table.store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
        await store.commit(make.change(turn.task, turn=turn))

    @faulty(PASSING)
    async def test_reads_again(self, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault) -> None:
        await store.commit(make.begin(KEY, Mail("alpha", body=LONG)))
        faults.plan("Query", fault)
        await open_turn(store, KEY, "alpha", make)

    @pytest.mark.parametrize("operation", ["UpdateItem", "Query"])
    async def test_that_fails_leaves_no_lease_behind(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, operation: str
    ) -> None:
        """Nobody runs the turn, so nobody shall wait for the lease to expire."""
        await store.commit(make.begin(KEY, Mail("alpha", body=LONG)))
        faults.plan(operation, *[lost_answer] * 4)
        with pytest.raises(StoreUnavailable):
            await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
        await open_turn(table.store, KEY, "alpha", make)

    async def test_that_is_cancelled_leaves_no_lease_behind(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha", body=LONG)))
        loop, reading = asyncio.get_running_loop(), asyncio.Event()

        def tell(request: object, send: object) -> None:
            loop.call_soon_threadsafe(reading.set)

        faults.plan("Query", tell)
        opening = asyncio.create_task(store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0))
        await reading.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await open_turn(table.store, KEY, "alpha", make)

    async def test_sees_that_there_is_nothing_to_do(
        self, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha")))
        faults.plan("UpdateItem", conflict, broken)
        assert await store.open_turn(KEY, "beta", make.lease(), now=NOW, history_after=0) == Idle(begun.task)


class TestCheckpoint:
    @faulty(PASSING | {"conflict": conflict})
    async def test_is_saved(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        faults.plan("UpdateItem", fault)
        await store.save_checkpoint(turn, checkpoint("done"))
        assert await kept(table, make) == checkpoint("done")

    @faulty(PASSING | BUSY_TRANSACTION)
    async def test_is_saved_with_its_message(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        faults.plan("TransactWriteItems", fault)
        await store.save_checkpoint(turn, checkpoint(LONG))
        assert await kept(table, make) == checkpoint(LONG)

    async def test_saved_but_forgotten_is_saved_again(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        faults.plan("TransactWriteItems", lost_answer, new_token)
        await store.save_checkpoint(turn, checkpoint(LONG))
        assert await kept(table, make) == checkpoint(LONG)

    @faulty({"request lost": lost_request, "answer lost": lost_answer, "conflict": conflict})
    async def test_of_one_who_has_lost_the_lease_is_refused(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        """It must know before its action starts: the heir may have started the same one."""
        slow = await first_turn(store, KEY, "alpha", make)
        heir = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
        await table.store.save_checkpoint(heir, checkpoint("the heir's"))
        faults.plan("UpdateItem", fault)
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(slow, checkpoint("late"))
        assert await kept(table, make, now=NOW + 122) == checkpoint("the heir's")

    async def test_that_arrives_late_does_not_overwrite_what_the_heir_saved(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        late = Late()
        faults.plan("UpdateItem", late, *[lost_request] * 3)
        with pytest.raises(StoreUnavailable):
            await store.save_checkpoint(slow, checkpoint("late"))
        heir = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
        await table.store.save_checkpoint(heir, checkpoint("the heir's"))
        assert late.arrive().status_code == 400
        assert await kept(table, make, now=NOW + 122) == checkpoint("the heir's")

    @pytest.mark.parametrize(("early", "later"), [("early", "later"), ("early", LONG), (LONG, "later")])
    async def test_that_arrives_late_does_not_overwrite_a_later_one_of_its_turn(
        self,
        table: DynamoDBAdapter,
        store: DynamoDBStore,
        faults: Faults,
        make: Maker,
        early: str,
        later: str,
    ) -> None:
        """It would forget that an action has begun."""
        turn = await first_turn(store, KEY, "alpha", make)
        late = Late()
        faults.plan("TransactWriteItems" if early == LONG else "UpdateItem", late, *[lost_request] * 3)
        with pytest.raises(StoreUnavailable):
            await store.save_checkpoint(turn, checkpoint(early))
        await store.save_checkpoint(turn, checkpoint(later))
        assert late.arrive().status_code == 400
        assert await kept(table, make) == checkpoint(later)


class TestRelease:
    @faulty(PASSING | {"conflict": conflict})
    async def test_gives_the_lease_back(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        faults.plan("UpdateItem", fault)
        await store.release(turn)
        await open_turn(table.store, KEY, "alpha", make)


class TestReads:
    @faulty(PASSING)
    async def test_are_made_again(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, fault: Fault
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha")))
        await store.commit(make.change(begun.task, history=[{"n": 1}], transition=Transition.COMPLETE))
        for operation in ("GetItem", "Query"):
            faults.plan(operation, fault)
        assert await everything(store, KEY) == await everything(table.store, KEY)

    async def test_say_when_the_table_is_out_of_reach(self, store: DynamoDBStore, faults: Faults) -> None:
        faults.always = dict.fromkeys(("GetItem", "Query"), lost_request)
        with pytest.raises(StoreUnavailable):
            await store.load(KEY)
        with pytest.raises(StoreUnavailable):
            await store.list_tasks(ANN)
        faults.always = {}

    @pytest.mark.parametrize("after", [0, 1, 2])
    async def test_that_seem_to_have_a_gap_are_made_again(
        self, table: DynamoDBAdapter, store: DynamoDBStore, faults: Faults, make: Maker, after: int
    ) -> None:
        """Two commits may come in while a query passes, so that it meets the second one and not the first."""
        changes = await commit_some(store, make)
        gap = hiding(events_key(changes[1].task.seq, changes[1].task.version))
        faults.plan("Query", gap)
        events = [event for change in changes for event in change.events]
        assert await store.read_events(KEY, after=after) == events[after:]

    async def test_give_nothing_from_behind_a_gap(
        self, store: DynamoDBStore, faults: Faults, make: Maker
    ) -> None:
        """The next request asks for the events after the last one that it got."""
        changes = await commit_some(store, make)
        gap = hiding(events_key(changes[1].task.seq, changes[1].task.version))
        faults.plan("Query", gap, gap)
        assert await store.read_events(KEY) == list(changes[0].events)
        assert await store.read_events(KEY, after=changes[0].task.seq) == [
            *changes[1].events,
            *changes[2].events,
        ]


async def commit_some(store: DynamoDBStore, make: Maker) -> list[TaskChange]:
    changes = [make.begin(KEY)]
    await store.commit(changes[0])
    for n in range(2):
        changes.append(make.change(changes[-1].task, *(Mail("beta") for _ in range(n))))
        await store.commit(changes[-1])
    return changes


async def kept(table: DynamoDBAdapter, make: Maker, now: float = NOW + 61) -> object:
    """The checkpoint that the next runner of the turn gets."""
    turn = await open_turn(table.another(), KEY, "alpha", make, now=now)
    assert isinstance(turn, Turn)
    return turn.checkpoint


class Dated(Handler):
    """Answers every request with an empty object, dated some seconds off."""

    seconds = 0.0

    def respond(self) -> None:
        self.body()
        self.answer(body=b"{}", headers={"Content-Type": "application/x-amz-json-1.0"})

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time() + self.seconds, usegmt=True)


@pytest.mark.parametrize(
    ("seconds", "warning"), [(-120.0, "s ahead of that of AWS"), (90.0, "s behind that of AWS"), (1.0, "")]
)
async def test_a_clock_that_is_far_from_the_dates_of_answers_is_reported_once(
    seconds: float, warning: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mail.adapters.aws.client.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Dated, "seconds", seconds)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with serve(Dated) as url, closing(Aws("us-east-1", url).client("dynamodb")) as client:
        for _ in range(3):
            await client.call("get_item", TableName="mail", Key={"PK": {"S": "t"}})
    told = [record.message for record in caplog.records if "the clock of this process" in record.message]
    assert len(told) == bool(warning)
    assert all(warning in each for each in told)
