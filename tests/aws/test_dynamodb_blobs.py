"""Texts too large for the table are in the bucket; without one, they are refused before anything is stored."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from support.engines.dynamodb import HAVE_BUCKETS, Calls, DynamoDBAdapter, make_client
from support.faults.dynamodb import Faults, lost_request, refusal

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.files import DynamoDBFiles
from mail.adapters.aws.store import DynamoDBStore
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.callbacks import LATER, CallResult, Later
from mail.core.task.change import Inheritance, TaskChange
from mail.core.task.files import FileRef
from mail.core.task.ports import read_history
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.core.turns.context import current_context
from mail.errors import (
    ConfigurationError,
    LeaseLost,
    MAILError,
    PayloadTooLarge,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
    TextGone,
    VersionConflict,
)
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.testing.changes import ANN, NOW, Mail, Maker, checkpoint
from mail.testing.contracts import committed, everything, first_turn, open_turn
from mail.testing.rig import Rig

KEY, SECOND = TaskKey(ANN, "task-1"), TaskKey(ANN, "task-2")
LARGE = "x" * 300_000
HUGE = "y" * 1_000_000


async def commit(store: DynamoDBStore, change: TaskChange) -> Task:
    await store.commit(change)
    return change.task


class Bucket:
    """A bucket for one test, and what is sent to it."""

    def __init__(self, engine: str, name: str) -> None:
        self.client = make_client(engine if engine in HAVE_BUCKETS else "ministack", "s3")
        self.name = name
        self.client.botocore.create_bucket(Bucket=name)
        self.blobs = Blobs(self.client, name)
        self.calls = Calls()
        self.calls.watch(self.client)

    def names(self) -> list[str]:
        answer = self.client.botocore.list_objects_v2(Bucket=self.name)
        return [found["Key"] for found in answer.get("Contents", [])]


@pytest.fixture
def bucket(table: DynamoDBAdapter) -> Iterator[Bucket]:
    made = Bucket(table.engine, f"mail-{uuid4().hex}")
    yield made
    made.client.close()


@pytest.fixture
def store(table: DynamoDBAdapter, bucket: Bucket) -> DynamoDBStore:
    return table.another(blobs=bucket.blobs)


class TestInTheBucket:
    async def test_what_is_small_never_goes_there(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", body="x" * 150_000))
        await store.save_checkpoint(turn, checkpoint("x" * 40_000))
        await store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
        await everything(store, KEY)
        assert bucket.calls.count == {}

    async def test_a_message_is_there_once_for_all_who_read_it(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("somebody")))
        change = make.change(begun.task, Mail("alpha", Tier.BROADCAST, LARGE))
        entry = change.deliveries[0]
        copies = [
            type(entry)(name, entry.tier, entry.seq, entry.message) for name in ("alpha", "beta", "gamma")
        ]
        pending: dict[str, tuple[int, ...]] = {entry.mailbox: (0, 0, 0, 1, 0) for entry in copies}
        task = replace(change.task, pending=pending)
        await store.commit(
            type(change)(
                task, 1, deliveries=tuple(copies), events=change.events, encoded_events=change.encoded_events
            )
        )
        assert len(bucket.names()) == 1
        for name in ("alpha", "beta", "gamma"):
            turn = await open_turn(store, KEY, name, make)
            assert turn.entry.message == entry.message
        assert (await store.read_events(KEY))[1:] == list(change.events)

    async def test_an_answer_is_there_once(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        change = await committed(store, make.change(begun.task, note=LARGE, transition=Transition.COMPLETE))
        assert await store.read_response(KEY, 1) == change.response
        assert await store.read_events(KEY, after=1) == list(change.events)
        assert len(bucket.names()) == 2, "the answer, and the events, whose text it is as well"

    async def test_history_and_state_may_be_there(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha"), Mail("alpha"), title=LARGE))
        turn = await open_turn(store, KEY, "alpha", make)
        assert turn.task == begun.task
        change = await committed(store, make.change(turn.task, turn=turn, history=[{"content": LARGE}]))
        turn = await open_turn(store, KEY, "alpha", make)
        assert turn.history == [{"content": LARGE}]
        assert await read_history(store, KEY, "alpha") == [{"content": LARGE}]
        assert (await store.list_tasks(ANN)).tasks == [change.task]
        with pytest.raises(VersionConflict) as conflict:
            await store.commit(make.change(begun.task))
        assert conflict.value.current == change.task

    async def test_many_messages_that_are_too_much_together(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        """None of them is too large, but a transaction holds 4 MB."""
        change = make.begin(
            KEY,
            *(Mail("alpha", body=f"{n}" * 150_000) for n in range(1, 10)),
            *(Mail("beta", body=f"{n}" * 75_000) for n in range(10, 40)),
        )
        await store.commit(change)
        assert 1 <= len(bucket.names()) < 25, "the largest go there, and no more than must"
        assert await store.read_inbox(KEY) == sorted(
            change.deliveries, key=lambda entry: (entry.tier, entry.seq)
        )
        assert await store.read_events(KEY) == list(change.events)

    async def test_a_history_of_many_pages(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker
    ) -> None:
        """A query brings 1 MB at a time."""
        task = (await committed(store, make.begin(KEY, Mail("alpha")))).task
        for n in range(20):
            task = (
                await committed(store, make.change(task, history=[{"n": n, "content": "x" * 100_000}]))
            ).task
        turn = await open_turn(store, KEY, "alpha", make)
        assert [entry["n"] for entry in turn.history] == list(range(20))
        turn = await open_turn(store, KEY, "alpha", make, now=NOW + 61, history_after=3)
        assert [entry["n"] for entry in turn.history] == list(range(3, 20))
        assert len(await store.read_events(KEY)) == 21


async def remembered(store: DynamoDBStore, make: Maker) -> tuple[Task, TaskChange]:
    """A task whose agents have histories, and a change that begins another one with them."""
    task = await commit(store, make.begin(KEY, Mail("alpha")))
    for agent, text in (("alpha", "small"), ("alpha", "short"), ("alpha", LARGE), ("beta", LARGE)):
        entries = [{"n": task.histories.get(agent, 0), "text": text}]
        task = await commit(store, make.change(task, history=entries, agent=agent))
    begun = make.begin(SECOND, Mail("alpha"))
    inherits = Inheritance(KEY, task.histories, task.history_bytes)
    return task, replace(begun, task=replace(begun.task, histories=task.histories), inherits=inherits)


class TestForks:
    async def test_they_keep_what_they_inherit(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        task, change = await remembered(store, make)
        with pytest.raises(TaskNotFound):
            await store.commit(replace(change, inherits=Inheritance(TaskKey(ANN, "gone"), {"alpha": 3}, 0)))
        await store.commit(change)
        assert len(bucket.names()) == 4, "the copies are its own"
        await store.delete(task)
        assert [each["n"] for each in await read_history(store, SECOND, "alpha")] == list(range(3))
        another = table.another(blobs=bucket.blobs)
        turn = await open_turn(another, SECOND, "alpha", make, history_after=1)
        assert [(each["n"], len(str(each["text"]))) for each in turn.history] == [(1, 5), (2, len(LARGE))]
        await store.release(turn)
        await store.delete(change.task)
        assert (table.items(), bucket.names()) == ([], [])

    async def test_a_copy_that_fails_leaves_nothing(
        self, table: DynamoDBAdapter, bucket: Bucket, client: AwsClient, faults: Faults, make: Maker
    ) -> None:
        store = table.another(client, blobs=bucket.blobs)
        _, change = await remembered(store, make)
        before = (len(table.items()), len(bucket.names()))
        faults.plan("BatchWriteItem", lambda request, send: send(request), refusal("ValidationException"))
        with pytest.raises(StoreUnavailable):
            await store.commit(change)
        assert (len(table.items()), len(bucket.names())) == before
        assert await store.load(SECOND) is None

    async def test_long_mail_is_copied_to_texts_of_their_own(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        task = await commit(store, make.begin(KEY, *(Mail("alpha", body=LARGE) for _ in range(3))))
        begun, mail = make.begin(SECOND, *(Mail("alpha") for _ in range(3))), {1: 1, 2: 2, 3: 3}
        before = (len(table.items()), len(bucket.names()))
        with pytest.raises(MAILError):
            await store.commit(replace(begun, inherits=Inheritance(KEY, {}, 0, {**mail, 3: 9})))
        assert (len(table.items()), len(bucket.names())) == before
        await store.commit(replace(begun, inherits=Inheritance(KEY, {}, 0, mail)))
        await store.delete(task)
        assert {entry.message.message.body for entry in await store.read_inbox(SECOND)} == {LARGE}
        assert len(await store.read_events(SECOND)) == 3
        assert (await open_turn(store, SECOND, "alpha", make)).entry.message.message.body == LARGE
        await store.delete(begun.task)
        assert (table.items(), bucket.names()) == ([], [])


class TestCheckpoint:
    async def test_a_large_one_is_there_and_the_one_before_it_is_not(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        for n in range(1, 4):
            await store.save_checkpoint(turn, checkpoint(*[LARGE] * n))
            assert len(bucket.names()) == 1
        heir = await open_turn(table.another(blobs=bucket.blobs), KEY, "alpha", make, now=NOW + 61)
        assert heir.checkpoint == checkpoint(LARGE, LARGE, LARGE)

    async def test_it_goes_with_its_turn(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("alpha"))
        await store.save_checkpoint(turn, checkpoint(LARGE))
        await store.release(turn)
        heir = await open_turn(table.another(blobs=bucket.blobs), KEY, "alpha", make)
        await store.commit(make.change(heir.task, turn=heir))
        turn = await open_turn(store, KEY, "alpha", make)
        await store.save_checkpoint(turn, checkpoint(LARGE))
        await store.commit(make.change(turn.task, turn=turn))
        assert len(bucket.names()) == 1, "that of the first turn, which another store has ended"

    async def test_it_stays_while_the_message_does(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        """A turn may end without having read its message, such as when the task ends by its limit."""
        turn = await first_turn(store, KEY, "alpha", make)
        await store.save_checkpoint(turn, checkpoint(LARGE))
        await store.commit(make.change(turn.task, turn=turn, consume=False))
        assert (await open_turn(store, KEY, "alpha", make)).checkpoint == checkpoint(LARGE)

    async def test_that_of_one_who_has_lost_the_lease_is_taken_back(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        heir = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        await store.save_checkpoint(heir, checkpoint(HUGE))
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(slow, checkpoint(LARGE))
        assert len(bucket.names()) == 1
        third = await open_turn(store, KEY, "alpha", make, now=NOW + 122)
        assert third.checkpoint == checkpoint(HUGE)


class TestFailure:
    async def test_a_refused_commit_leaves_nothing_in_the_bucket(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        await store.commit(make.change(begun.task))
        with pytest.raises(VersionConflict):
            await store.commit(make.change(begun.task, Mail("beta", body=LARGE)))
        assert bucket.names() == []

    async def test_what_cant_be_tidied_up_hides_nothing(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        await store.commit(make.change(begun.task))
        with Faults(bucket.client) as faults:
            faults.always = {"DeleteObject": lost_request}
            with pytest.raises(VersionConflict):
                await store.commit(make.change(begun.task, Mail("beta", body=LARGE)))
        assert len(bucket.names()) == 1

    async def test_when_the_bucket_is_out_of_reach_nothing_is_stored(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        with Faults(bucket.client) as faults:
            faults.always = {"PutObject": lost_request}
            with pytest.raises(StoreUnavailable):
                await store.commit(make.begin(KEY, Mail("alpha", body=LARGE)))
        assert table.items() == []

    async def test_a_text_that_does_not_come_gives_the_lease_back(
        self, table: DynamoDBAdapter, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha", body=LARGE)))
        with Faults(bucket.client) as faults:
            faults.always = {"GetObject": refusal("InternalError", 500)}
            with pytest.raises(StoreUnavailable):
                await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
        await open_turn(store, KEY, "alpha", make)


class TestWithoutABucket:
    @pytest.fixture
    def store(self, table: DynamoDBAdapter) -> DynamoDBStore:
        return table.another(blobs=None)

    @pytest.mark.parametrize(
        ("mail", "parts"),
        [
            ([Mail("beta", body="x" * 400_000)], {}),
            ([Mail("beta", body="x" * 150_000) for _ in range(13)], {}),
            ([], {"history": [{"content": "é" * 200_000}]}),
            ([], {"note": "x" * 500_000}),
        ],
        ids=["message", "messages", "history", "events"],
    )
    async def test_what_does_not_fit_is_refused_and_nothing_is_stored(
        self,
        table: DynamoDBAdapter,
        store: DynamoDBStore,
        make: Maker,
        mail: list[Mail],
        parts: dict[str, Any],
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        before = table.items()
        with pytest.raises(PayloadTooLarge, match="MAIL_BUCKET") as refused:
            await store.commit(make.change(turn.task, *mail, turn=turn, **parts))
        assert not isinstance(refused.value, StoreError)
        assert table.items() == before
        await store.commit(make.change(turn.task, Mail("beta"), turn=turn))

    async def test_what_just_fits_is_stored(self, store: DynamoDBStore, make: Maker) -> None:
        change = await committed(store, make.begin(KEY, Mail("alpha", body=LARGE)))
        assert (await open_turn(store, KEY, "alpha", make)).entry == change.deliveries[0]

    @pytest.mark.parametrize(("message", "output"), [(10, 200_000), (200_000, 100_000)])
    async def test_a_checkpoint_that_does_not_fit_beside_its_message_is_refused(
        self, store: DynamoDBStore, make: Maker, message: int, output: int
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", body="x" * message))
        with pytest.raises(PayloadTooLarge, match="MAIL_BUCKET"):
            await store.save_checkpoint(turn, checkpoint("y" * output))
        await store.save_checkpoint(turn, checkpoint("small"))

    async def test_what_was_stored_in_one_asks_for_it(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker
    ) -> None:
        await table.store.commit(make.begin(KEY, Mail("alpha", body=LARGE)))
        with pytest.raises(ConfigurationError, match="MAIL_BUCKET"):
            await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)

    def test_it_is_no_error_of_the_store(self) -> None:
        """A StoreError would have the turn run again, and again be too large."""
        assert issubclass(PayloadTooLarge, MAILError)
        assert not issubclass(PayloadTooLarge, StoreError)


class TestGone:
    """Objects that the bucket's lifecycle, or somebody, has deleted."""

    def lose(self, bucket: Bucket) -> None:
        for name in bucket.names():
            bucket.client.botocore.delete_object(Bucket=bucket.name, Key=name)

    async def test_a_task_whose_agent_must_read_one_ends_failed(
        self, store: DynamoDBStore, bucket: Bucket
    ) -> None:
        def chief(view: View) -> Sequence[Call]:
            return [call("render", title=LARGE)] if view.mail.sender_type == "user" else [complete("read")]

        tokens = list[str]()

        async def render(arguments: dict[str, Any]) -> Later:
            tokens.append(current_context().callback.token)
            return LATER

        action = ActionCore("render", render, finish_within=60.0)
        swarm = build_swarm({"chief": chief}, actions={"render": action})
        async with Rig(swarm, store=store, clock=SYSTEM_CLOCK) as rig:
            submitted = await rig.submit()
            async with asyncio.timeout(60):
                while not (task := await rig.task(submitted.key)).is_asleep:
                    await store.wait_for_change(submitted.key, after=task.seq, seconds=1)
            self.lose(bucket)
            await rig.restart()  # the history is in the cache of the process that wrote it
            await rig.runtime.callbacks.finish(tokens[0], CallResult("the film"))
            end = await rig.runtime.wait(submitted)
            assert end is not None
            assert "a long text that 'chief' must read is no longer stored" in end.message.body
            assert (await rig.task(submitted.key)).status is TaskStatus.FAILED
            again = await rig.ask(task_id=submitted.key.task_id)
        assert (again.task.status, again.answer) == (TaskStatus.FAILED, end.message.body)

    async def test_reading_one_is_an_error_that_no_retry_mends(
        self, store: DynamoDBStore, bucket: Bucket, make: Maker
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", body=LARGE))
        await store.put_content(KEY, "r1", LARGE)
        await store.release(turn)
        self.lose(bucket)
        with pytest.raises(TextGone):
            await open_turn(store, KEY, "alpha", make)
        with pytest.raises(TextGone):
            await store.read_events(KEY)
        assert await store.read_leases(KEY, now=0.0) == {}
        assert await store.read_content(KEY, "r1", offset=0, length=5) is None

    async def test_a_file_is_gone_too(self, table: DynamoDBAdapter, bucket: Bucket) -> None:
        files = DynamoDBFiles(table.client, table.table, bucket.blobs, SYSTEM_CLOCK, None)
        file, now = FileRef("f1", "a.txt", "text/plain", 3), SYSTEM_CLOCK.now().timestamp()
        await files.put_file(ANN, file, b"abc", secret="s", now=now)
        self.lose(bucket)
        assert await files.read_file(ANN, "f1") is None
        assert not await files.keep_file(KEY, file)
