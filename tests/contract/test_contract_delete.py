"""Deletions of callers and outdated tasks, and holds: on every store, whichever processes die meanwhile."""

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from support.engines.adapters import SQLiteAdapter, StoreAdapter, searched
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.postgres import PostgresAdapter

from mail.adapters.local.queue import LocalQueue
from mail.adapters.postgres.schema import TABLES
from mail.core.decisions.submit import Submission
from mail.core.engine.delete import CLAIM_SECONDS, LOOK_SECONDS, PASS_SECONDS
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.task.deletion import CallerDeletion
from mail.core.task.documents import ClaimedKey, StoredToken
from mail.core.task.files import File
from mail.core.task.ports import Store
from mail.core.task.schedules import Schedule
from mail.core.task.search import Search
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.webhooks import WebhookRecord
from mail.errors import CallerHeld, HoldNotFound, StoreUnavailable, TaskHeld, TaskNotFound
from mail.testing.agents import NAME, build_swarm, complete, turns
from mail.testing.changes import ANN, BOB
from mail.testing.clock import FakeClock
from mail.testing.faults import FaultyPort, Points, Verdict

DAY = 86_400.0
ADMIN = f"admin:root@{NAME}"
SWARM = build_swarm({"supervisor": turns([complete("done")])})
MARKER = "5vN2rQ8xTz0LkWc7"
"""A text that nothing else has; it is too short to be compressed."""


class Server:
    """A process that deletes; its turns are taken one by one, if at all."""

    def __init__(
        self, adapter: StoreAdapter, clock: FakeClock, *, retention: float | None = None, store: Any = None
    ) -> None:
        self.clock = clock
        self.queue = LocalQueue(lambda: clock.now().timestamp())
        self.runtime = Runtime(
            SWARM,
            cast(Store, store or adapter.store),
            self.queue,
            clock,
            documents=adapter.records,
            files=adapter.files,
            retention=retention,
        )
        self.deletions = self.runtime.deletions

    async def submit(self, caller: str = ANN, task_id: str | None = None, **given: Any) -> Submitted:
        return await self.runtime.submit(
            Principal.parse(caller), Submission(body=MARKER, task_id=task_id, begins=bool(task_id), **given)
        )

    async def ask(self, caller: str = ANN, task_id: str | None = None, **given: Any) -> TaskKey:
        submitted = await self.submit(caller, task_id, **given)
        key, mailbox = await self.queue.take()
        await self.runtime.run_turn(key, mailbox)
        return submitted.key

    async def work(self) -> None:
        """Look for deletions, as is due."""
        self.clock.advance(LOOK_SECONDS)
        await self.deletions.work()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=datetime.now(UTC))


@pytest.fixture
def server(adapter: StoreAdapter, clock: FakeClock) -> Server:
    return Server(adapter, clock)


async def deletion_of(adapter: StoreAdapter, caller: str = ANN) -> CallerDeletion:
    found = await adapter.records.caller_deletion(caller)
    assert found is not None
    return found


async def traces(adapter: StoreAdapter, *texts: str) -> list[str]:
    """Return where any of these texts stands."""
    found: dict[str, bytes] = {}
    match adapter:
        case DynamoDBAdapter():
            found = {str(n): repr(item).encode() for n, item in enumerate(adapter.items())}
        case PostgresAdapter():
            for table in TABLES:
                rows = await adapter._open[-1][0].fetch(f"SELECT row::text FROM mail.{table} AS row")
                found[table] = repr(rows).encode()
        case SQLiteAdapter():
            path = Path(adapter._path)
            if path.name == "mail.db":
                found = {each.name: each.read_bytes() for each in path.parent.glob("mail.db*")}
    return [name for name, data in found.items() if any(text.encode() in data for text in texts)]


async def test_everything_of_a_caller_goes_and_everything_of_others_stays(
    adapter: StoreAdapter, server: Server
) -> None:
    records, files, now = adapter.records, server.runtime.caller_files, server.runtime.now()
    used, unused = [await files.put(ANN, File(data, "a.txt")) for data in (b"one " * 9, b"two " * 9)]
    shared = await files.put(BOB, File(b"one " * 9, "a.txt"))
    for caller, file in ((ANN, used), (BOB, shared)):
        await server.ask(caller, "named", files=(file.id,))
        await server.submit(caller)
        await searched(adapter.store, caller, Search((MARKER.lower(),)))  # then the index has the texts
        await records.set_webhook(caller, WebhookRecord(url="https://a.example/x"), limit=9)
        await records.claim_key(caller, "key", ClaimedKey("digest", "named", now + DAY), now=now)
        role, name = caller.partition("@")[0].split(":")
        await records.add_token(StoredToken(name, cast(Any, role), name, "2026-01-01"))
        await server.runtime.schedules.save(
            Schedule(name=name, cron="0 8 * * *", body="look", caller=caller), ADMIN, is_new=True
        )
    begun = await server.deletions.begin(ANN, ADMIN)
    assert (begun.ended, await server.deletions.begin(ANN, BOB)) == (None, begun)
    await server.work()
    assert [token.id for token in await records.tokens()] == ["bob"]
    ended = await deletion_of(adapter)
    assert (ended.by, ended.tasks, ended.left, ended.ended is None) == (ADMIN, 2, 0, False)
    assert (await adapter.store.list_tasks(ANN)).tasks == []
    assert await records.webhooks(ANN) == []
    assert await adapter.files.find_file(ANN, used.id) is None
    assert await adapter.files.read_file(ANN, unused.id) is None
    assert len((await adapter.store.list_tasks(BOB)).tasks) == 2
    assert [webhook.url for webhook in await records.webhooks(BOB)] == ["https://a.example/x"]
    assert await adapter.files.read_file(BOB, shared.id) == b"one " * 9
    claim = ClaimedKey("other", "new", now + DAY)
    assert await records.claim_key(ANN, "key", claim, now=now) == claim
    assert (await records.claim_key(BOB, "key", claim, now=now)).task_id == "named"
    assert [each.spec.name for each in await server.runtime.schedules.all()] == ["bob"]
    await server.deletions.begin(BOB, ADMIN)
    await server.work()
    assert await traces(adapter, MARKER, MARKER.lower(), "a.txt", "https://a.example/x") == []


async def test_space_is_given_back_in_steps(adapter: StoreAdapter, clock: FakeClock) -> None:
    async def scrub(*, is_quiet: bool) -> bool:
        steps.append(is_quiet)
        if len(steps) == 2:
            await server.deletions.begin(ANN, ADMIN)
        return len(steps) < 4

    steps: list[bool] = []
    server = Server(adapter, clock, store=FaultyPort(adapter.store, "store", Points(), scrub=scrub))
    await server.work()
    assert steps == [True] * 2, "a deletion comes first"
    await server.deletions.work()
    assert (steps, (await deletion_of(adapter)).ended is None) == ([True] * 4, False)


async def test_it_resumes_after_its_process_has_died(adapter: StoreAdapter, clock: FakeClock) -> None:
    deletes = count(1)

    def die(_: int, name: str) -> Verdict:
        is_dead = name == "before store.delete" and next(deletes) > 3
        return StoreUnavailable() if is_dead else 0.0

    first = Server(adapter, clock, store=FaultyPort(adapter.store, "store", Points(die)))
    for _ in range(5):
        await first.ask()
    await first.deletions.begin(ANN, ADMIN)
    with pytest.raises(StoreUnavailable):
        await first.work()
    assert len((await adapter.store.list_tasks(ANN)).tasks) == 2
    second = Server(adapter, clock)
    await second.work()
    assert len((await adapter.store.list_tasks(ANN)).tasks) == 2, "the first one may still be at it"
    clock.advance(CLAIM_SECONDS)
    await second.work()
    assert (await deletion_of(adapter)).ended
    assert await traces(adapter, MARKER) == []


async def test_a_task_with_a_running_turn_is_deleted_when_that_has_ended(
    adapter: StoreAdapter, server: Server
) -> None:
    await server.submit()
    key, mailbox = await server.queue.take()
    now = server.runtime.now()
    lease = server.runtime.new_lease()
    await adapter.store.open_turn(key, mailbox, lease, now=now, history_after=0)
    await server.deletions.begin(ANN, ADMIN)
    await server.work()
    deletion = await deletion_of(adapter)
    assert (deletion.ended, deletion.left) == (None, 1)
    assert "has a turn that has not ended" in deletion.problem
    task = await adapter.store.load(key)
    assert getattr(task, "status", None) is TaskStatus.CANCELLED
    server.clock.advance(CLAIM_SECONDS * 20)
    await server.work()
    assert await adapter.store.load(key) is None


class TestHolds:
    async def test_nobody_deletes_a_task_on_hold(self, adapter: StoreAdapter, server: Server) -> None:
        key = await server.ask()
        await server.deletions.hold(ANN, key.task_id, "a lawsuit", ADMIN)
        with pytest.raises(TaskHeld, match="on hold since 20"):
            await server.runtime.delete(*key)
        with pytest.raises(CallerHeld, match=key.task_id):
            await server.deletions.begin(ANN, ADMIN)
        assert [hold.reason for hold in await adapter.records.holds()] == ["a lawsuit"]
        await server.deletions.lift(ANN, key.task_id)
        await server.runtime.delete(*key)
        with pytest.raises(HoldNotFound):
            await server.deletions.lift(ANN, key.task_id)

    async def test_a_hold_that_comes_during_a_deletion(self, adapter: StoreAdapter, clock: FakeClock) -> None:
        """The deletion has looked for holds, and not deleted yet."""

        async def delete(task: Any) -> None:
            if not await adapter.records.holds():
                await Server(adapter, clock).deletions.hold(ANN, task.task_id, "late", ADMIN)
            await adapter.store.delete(task)

        store = FaultyPort(adapter.store, "store", Points(), delete=delete)
        server = Server(adapter, clock, store=store)
        key = await server.ask()
        with pytest.raises(TaskHeld):
            await server.runtime.delete(*key)
        assert await adapter.store.load(key) is not None

    async def test_a_task_that_is_gone_can_not_be_held(self, adapter: StoreAdapter, server: Server) -> None:
        with pytest.raises(TaskNotFound):
            await server.deletions.hold(ANN, "gone", "late", ADMIN)
        assert await adapter.records.holds() == []

    async def test_a_caller_on_hold(self, adapter: StoreAdapter, server: Server) -> None:
        key, other = await server.ask(), await server.ask(BOB)
        await server.deletions.hold(ANN, None, "an audit", ADMIN)
        with pytest.raises(TaskHeld, match=f"with everything of {ANN}"):
            await server.runtime.delete(*key)
        await server.runtime.delete(*other)

    async def test_a_deletion_waits_for_a_hold_that_came_later(
        self, adapter: StoreAdapter, server: Server
    ) -> None:
        keys = [await server.ask() for _ in range(3)]
        await server.deletions.begin(ANN, ADMIN)
        await server.deletions.hold(ANN, keys[1].task_id, "late", ADMIN)
        await server.work()
        assert [task.key for task in (await adapter.store.list_tasks(ANN)).tasks] == [keys[1]]
        assert (await deletion_of(adapter)).ended is None
        await server.deletions.lift(ANN, keys[1].task_id)
        await server.work()
        assert (await deletion_of(adapter)).ended


async def test_tasks_in_which_nothing_happens_are_deleted_after_the_retention(
    adapter: StoreAdapter, clock: FakeClock
) -> None:
    """Not those that run or are on hold. On DynamoDB they expire (`tests/aws/test_dynamodb_retention.py`)."""
    server = Server(adapter, clock, retention=30 * DAY)
    old, held = await server.ask(), await server.ask()
    await server.deletions.hold(ANN, held.task_id, "a lawsuit", ADMIN)
    resumed = await server.ask(BOB)
    running = (await server.submit(BOB)).key
    clock.advance(20 * DAY)
    await server.runtime.submit(Principal.parse(BOB), Submission(body="more", task_id=resumed.task_id))
    while len(server.queue):
        key, mailbox = await server.queue.take()
        if key == resumed:
            await server.runtime.run_turn(key, mailbox)
    await server.work()
    assert len((await adapter.store.list_tasks(None)).tasks) == 4
    clock.advance(10 * DAY - 60)
    await server.work()
    clock.advance(PASS_SECONDS)
    await server.work()
    left = {task.key for task in (await adapter.store.list_tasks(None)).tasks}
    is_ordered = (await adapter.store.list_oldest(limit=1)).is_ordered
    assert left == {held, resumed, running} | (set() if is_ordered else {old})


async def test_a_deleted_task_is_remembered_as_long_as_keys_are(
    adapter: StoreAdapter, server: Server
) -> None:
    recent, old = await server.ask(), await server.ask()
    await server.runtime.delete(*recent)
    assert await adapter.records.deleted_at(recent) == server.runtime.now()
    server.clock.advance(DAY + 1)
    await server.runtime.delete(*old)
    assert await adapter.records.deleted_at(old) is None
