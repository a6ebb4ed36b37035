"""Retention: what is past it isn't there, whether or not DynamoDB has come round to delete it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from support.engines.adapters import loaded
from support.engines.dynamodb import BUCKET, LONG, DynamoDBAdapter

from mail.adapters.aws.documents import DynamoDBDocuments
from mail.adapters.aws.files import DynamoDBFiles
from mail.adapters.aws.items import blobs_of
from mail.adapters.aws.store import DynamoDBStore
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.schedules import save
from mail.core.decisions.submit import ResumeFrom
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.callbacks import LATER, CallResult, Later
from mail.core.task.change import Turn
from mail.core.task.context import AgentContext, Cut
from mail.core.task.deletion import LegalHold
from mail.core.task.documents import Document, Kind
from mail.core.task.files import FileRef
from mail.core.task.ports import Idle, TaskPage, WakeUp, read_history
from mail.core.task.schedules import Schedule
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.core.turns.context import current_context
from mail.errors import LeaseLost, SnapshotExpired, TaskNotFound, VersionConflict
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.testing.changes import ANN, BOB, SWARM, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, due_tasks, everything, open_turn
from mail.testing.rig import Rig

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


async def sweep(store: DynamoDBStore, clock: Clock) -> None:
    """Look after what is due, as the engine's sweep does where nothing is to be done for the tasks themselves."""
    now = clock.now().timestamp()
    for due in await store.list_due(now + MARGIN):
        await store.end_expired(due, now=now)


async def open_now(store: DynamoDBStore, make: Maker, mailbox: str = "alpha") -> object:
    now = make.clock.now().timestamp()
    return await store.open_turn(KEY, mailbox, make.lease(now + 60), now=now, history_after=0)


async def turn_now(store: DynamoDBStore, make: Maker) -> Turn:
    return await open_turn(store, KEY, "alpha", make, now=make.clock.now().timestamp())


async def test_everything_that_is_written_gets_an_end(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), *(Mail(f"agent-{n}") for n in range(120))))
    turn = await turn_now(store, make)
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
    turn = await turn_now(store, make)
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
    turn = await turn_now(store, make)
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
    turn = await turn_now(store, make)
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
    turn = await turn_now(store, make)
    assert turn.entry.message.message.body == "new"


async def test_a_checkpoint_brings_no_part_of_a_deleted_message_back(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker
) -> None:
    """DynamoDB may delete the message while its turn runs."""
    await store.commit(make.begin(KEY, Mail("alpha", body=LONG)))
    turn = await turn_now(store, make)
    (item,) = table.items("A#alpha#I")
    await table.client.call(
        "delete_item", TableName=table.table, Key={name: item[name] for name in ("PK", "SK")}
    )
    with pytest.raises(LeaseLost):
        await store.save_checkpoint(turn, checkpoint(LONG))
    assert table.items("A#alpha#I") == []


async def test_mail_in_the_item_of_its_task_is_kept_as_long_as_the_task(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    clock.advance(2 * DAY)
    await store.commit(make.change(begun.task))
    clock.advance(2 * DAY)
    turn = await turn_now(store, make)
    assert turn.entry == begun.deliveries[0]
    await store.save_checkpoint(turn, checkpoint(LONG))
    (item,) = table.items("A#alpha#I")
    assert int(item["expires_at"]["N"]) == clock.now().timestamp() + 3 * DAY


class TestOpenTasks:
    """Tasks that run, wait or are paused for longer than their items are stored."""

    async def test_a_sweep_keeps_all_that_a_running_task_has_stored(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha"), Mail("beta", body=LONG)))
        turn = await turn_now(store, make)
        change = make.change(turn.task, Mail("gamma", body="x" * 300_000), turn=turn, history=[{"n": 1}])
        await store.commit(change)
        await store.put_content(KEY, "ref", "a long text")
        before = await everything(store, KEY)
        for _ in range(5):
            clock.advance(DAY)
            await sweep(store, clock)
        assert await everything(store, KEY) == before
        assert await store.read_content(KEY, "ref", offset=0, length=6) == ("a long", 11)
        assert (await store.read_events(KEY))[0].seq == begun.events[0].seq
        ends = {item["SK"]["S"]: int(item["expires_at"]["N"]) for item in table.items()}
        assert min(ends.values()) > clock.now().timestamp() + DAY

    async def test_no_sweep_before_writes_anything_for_that(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), deadline=clock.now().timestamp() + 90 * DAY))
        before = table.items()
        clock.advance(DAY)
        await store.list_due(clock.now().timestamp() + MARGIN)
        assert table.items() == before
        clock.advance(DAY)
        await store.list_due(clock.now().timestamp() + MARGIN)
        assert table.items() != before

    async def test_a_paused_task_is_kept_until_it_is_resumed_and_ends(
        self, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha", body=LONG)))
        await store.commit(make.change(begun.task, history=[{"n": 1}], transition=Transition.PAUSE))
        assert await store.count_active_instances() == 0
        assert await store.list_ready() == []
        for _ in range(5):
            clock.advance(DAY)
            await sweep(store, clock)
        paused = await loaded(store, KEY)
        assert (await read_history(store, KEY, "alpha"), len(await store.read_inbox(KEY))) == ([{"n": 1}], 1)
        await store.commit(make.change(paused, transition=Transition.CANCEL))
        assert await store.list_due(1e12) == []
        clock.advance(3 * DAY + MARGIN)
        await sweep(store, clock)
        assert await store.load(KEY) is None

    async def test_a_task_that_is_resumed_late_is_kept_at_once(
        self, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        """Its next sweep finds it, though it may run for long from now on."""
        begun = await committed(store, make.begin(KEY))
        ended = await committed(
            store, make.change(begun.task, history=[{"n": 1}], transition=Transition.COMPLETE)
        )
        clock.advance(3 * DAY - 600)
        resumed = make.change(ended.task, Mail("alpha"), transition=Transition.RESUME)
        await store.commit(resumed)
        await sweep(store, clock)
        clock.advance(DAY)
        assert await read_history(store, KEY, "alpha") == [{"n": 1}]
        assert (await store.read_events(KEY))[0].seq == 1

    async def test_objects_in_the_bucket_are_kept_with_the_items(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        await store.commit(make.begin(KEY, Mail("alpha", body="x" * 300_000)))
        renewed = [name for item in table.items() for name in blobs_of(item)]
        assert renewed, "the message is in the bucket"
        s3 = table.blobs._client.botocore
        written = {name: s3.head_object(Bucket=BUCKET, Key=name)["LastModified"] for name in renewed}
        clock.advance(2.5 * DAY)
        await asyncio.sleep(1.1)  # times of objects have whole seconds
        await sweep(store, clock)
        for name, before in written.items():
            assert s3.head_object(Bucket=BUCKET, Key=name)["LastModified"] > before
        assert len((await store.read_inbox(KEY))[0].message.message.body) == 300_000

    async def test_what_is_too_much_for_one_sweep_is_left_to_the_next(
        self, store: DynamoDBStore, make: Maker, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.adapters.aws.retention.KEPT_IN_A_SWEEP", 2)
        task = (await committed(store, make.begin(KEY, deadline=clock.now().timestamp() + 90 * DAY))).task
        for _ in range(6):
            task = (await committed(store, make.change(task))).task
        clock.advance(2.5 * DAY)
        for _ in range(5):
            await sweep(store, clock)
        clock.advance(DAY)
        assert [event.seq for event in await store.read_events(KEY)] == [*range(1, task.seq + 1)]

    async def test_the_version_that_it_runs_on_is_kept(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        change = make.begin(KEY, deadline=clock.now().timestamp() + 90 * DAY)
        generation = replace(change.task.generation, versions=("5d0c4e9a31f7",))
        await store.commit(replace(change, task=replace(change.task, generation=generation)))
        documents, end = DynamoDBDocuments(table.client, table.table), clock.now().timestamp() + 5 * DAY
        version = Document(("5d0c4e9a31f7",), {"specification": "…"}, end)
        await documents.put(Kind.SWARM_VERSION, version)
        clock.advance(2 * DAY)
        await sweep(store, clock)
        kept = await documents.get(Kind.SWARM_VERSION, *version.key)
        assert kept is not None
        assert kept.expires is not None
        assert (kept.fields, kept.expires > end) == (version.fields, True)

    async def test_files_are_kept(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        files = DynamoDBFiles(table.client, table.table, table.blobs, clock, 3 * DAY)
        file = FileRef("file-1", "a.txt", "text/plain", 4)
        await store.commit(make.begin(KEY, Mail("alpha")))
        await files.put_file(ANN, file, b"text", secret="s", now=clock.now().timestamp())
        assert await files.keep_file(KEY, file)
        for _ in range(5):
            clock.advance(DAY)
            await sweep(store, clock)
        assert await files.files_of(KEY) == [file]
        assert await files.read_file(ANN, file.id) == b"text"
        ends = [int(item["expires_at"]["N"]) for item in table.items() if item["PK"]["S"].startswith("FILE#")]
        assert min(ends) < clock.now().timestamp(), "the count of a day's uploads is not kept"
        assert sum(end > clock.now().timestamp() + DAY for end in ends) == 2
        assert await files.keep_file(TaskKey(ANN, "task-2"), file), "the object is as new as the reference"
        assert await files.read_file(ANN, file.id) == b"text"


@pytest.mark.soak
async def test_a_call_and_an_approval_may_wait_for_longer_than_data_is_stored(
    store: DynamoDBStore, clock: Clock
) -> None:
    tokens: list[str] = []

    async def sign(_arguments: Mapping[str, Any]) -> Later:
        tokens.append(current_context().callback.token)
        return LATER

    async def pay(_arguments: Mapping[str, Any]) -> str:
        return "paid"

    def chief(view: View) -> Sequence[Call]:
        if "signed" in view.mail.body:
            return [call("pay")]
        if view.results:
            return [complete(f"{view.results[-1]} after {view.messages[0].body}")]
        return [call("sign")]

    swarm = build_swarm(
        {"supervisor": chief},
        actions={
            "sign": ActionCore("sign", sign, finish_within=300 * DAY),
            "pay": ActionCore("pay", pay, needs_approval=True),
        },
    )
    async with Rig(swarm, store=store, clock=clock) as rig:
        submitted = await rig.submit("the contract")

        async def wait(days: int, until: Callable[[Task], bool]) -> Task:
            async with asyncio.timeout(60):
                while not until(task := await rig.task(submitted.key)):  # noqa: ASYNC110 - of a store
                    await asyncio.sleep(0.001)
            for _ in range(days):
                await rig.pass_time(DAY)
            return task

        await wait(5, lambda task: task.is_asleep)
        await rig.runtime.callbacks.finish(tokens[0], CallResult("signed"))
        paused = await wait(4, lambda task: task.status is TaskStatus.PAUSED)
        (waiting,) = paused.generation.waiting_calls
        resumed = await rig.submit(
            task_id=submitted.key.task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            approvals=(GivenApproval(call_id=waiting.call_id, decision="approve"),),
        )
        outcome = await rig.outcome(resumed)
    assert outcome.answer == "SUCCESS: paid after the contract"


@pytest.mark.parametrize("task_id", [KEY.task_id, pytest.param(None, marks=pytest.mark.soak)])
async def test_what_is_on_hold_does_not_expire(table: DynamoDBAdapter, task_id: str | None) -> None:
    """A task that has ended, with a message in the bucket; one of another caller expires.

    It begins now: ministack deletes what has expired by the system's time.
    """
    clock = Clock(start=datetime.now(UTC))
    make, store = Maker(clock), table.another(retention_days=3, clock=clock)
    other = TaskKey(BOB, KEY.task_id)
    for key in (KEY, other):
        begun = await committed(store, make.begin(key, Mail("alpha", body="x" * 400_000)))
        await store.commit(make.change(begun.task, transition=Transition.CANCEL))
    hold = LegalHold(caller=ANN, task_id=task_id, reason="a lawsuit", by="admin:root", since="2026-01-01")
    await table.records.set_hold(hold)
    before = await everything(store, KEY)
    for _ in range(10):
        clock.advance(DAY)
        await sweep(store, clock)
    assert await everything(store, KEY) == before
    assert await store.load(other) is None
    await table.records.lift_hold(hold.name)
    clock.advance(4 * DAY)
    await sweep(store, clock)
    assert await store.load(KEY) is None


class TestLatest:
    """`keep = "latest"`: a task that has ended is kept, and its past expires."""

    @pytest.fixture
    def store(self, table: DynamoDBAdapter, clock: Clock) -> DynamoDBStore:
        return table.another(retention_days=3, keeps_latest=True, clock=clock)

    async def ended(self, store: DynamoDBStore, make: Maker, clock: Clock) -> Task:
        """A task of two generations; in the second, the history of its agent is cut."""
        task = (
            await committed(store, make.begin(KEY, Mail("alpha", body=LONG), Mail("beta", body=LONG)))
        ).task
        for n in (1, 2):
            turn = await turn_now(store, make)
            change = make.change(turn.task, turn=turn, history=[{"n": n}], transition=Transition.COMPLETE)
            context = {"alpha": AgentContext(cut=Cut(begin=2))}
            await store.commit(replace(change, task=replace(change.task, contexts=context)))
            task = change.task
            if n == 1:
                resumed = make.change(
                    replace(change.task, contexts=context), Mail("alpha"), transition=Transition.RESUME
                )
                await store.commit(resumed)
        return task

    async def days(self, store: DynamoDBStore, clock: Clock, count: int) -> None:
        for _ in range(2 * count):
            clock.advance(DAY / 2)
            await sweep(store, clock)

    @pytest.mark.soak
    async def test_a_task_that_has_ended_stays_without_its_past(
        self, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        task = await self.ended(store, make, clock)
        answer = await store.read_response(KEY, 2)
        assert answer is not None
        assert await store.read_response(KEY, 1) is not None
        await self.days(store, clock, 7)
        kept = await loaded(store, KEY)
        assert kept.seq == task.seq
        assert await store.read_response(KEY, 2) == answer
        assert await store.read_response(KEY, 1) is None
        assert [portion.n for portion in await store.read_portions(KEY, "alpha")] == [2]
        left = await store.read_events(KEY)
        assert 1 < left[0].seq <= left[-1].seq == task.seq
        with pytest.raises(SnapshotExpired):
            await store.read_snapshot(KEY, 1)
        assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["beta"]
        await store.commit(make.change(kept, Mail("alpha"), transition=Transition.RESUME))
        turn = await turn_now(store, make)
        assert turn.history == [{"n": 2}]

    @pytest.mark.soak
    async def test_what_is_on_hold_keeps_its_past(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        await self.ended(store, make, clock)
        await self.days(store, clock, 2)
        hold = LegalHold(caller=ANN, task_id=KEY.task_id, reason="a lawsuit", by="admin:root", since="2026")
        await table.records.set_hold(hold)
        before = await everything(store, KEY)
        await self.days(store, clock, 7)
        assert await everything(store, KEY) == before

    async def test_it_costs_no_write_before_half_of_the_retention(
        self, table: DynamoDBAdapter, store: DynamoDBStore, make: Maker, clock: Clock
    ) -> None:
        await self.ended(store, make, clock)
        before = table.items()
        await self.days(store, clock, 1)
        assert table.items() == before
        assert await store.list_ready() == []
        assert await store.count_active_instances() == 0
