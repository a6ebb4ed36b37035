"""Webhooks: deaths of the process at every await of a delivery, and what is decided beside deliveries that go well."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.agents import complete
from support.stamp import FakeStamp
from support.swarms import NAME, build_swarm

from mail.core.address import Principal
from mail.core.draft import Draft
from mail.core.events import EventKind
from mail.core.hooks import Hook, Webhook
from mail.core.intake import Submission
from mail.core.peers import hook_mailbox
from mail.core.runtime import Runtime
from mail.core.tasks import Task, TaskKey
from mail.core.turn_work import TurnReport
from mail.core.webhooks import EVENTS_AT_ONCE, Batch, Reply, attach, rewind, settle
from mail.errors import BadRequest, ConfigurationError
from mail.queues.local import LocalQueue
from mail.stores.sqlite import SQLiteStore
from mail.stores.sqlite_database import SQLiteDatabase

ANN = Principal(role="user", id="ann", swarm=NAME)
EVERY = Webhook(url="https://example.com/hook?secret=1", events=())
MAILBOX = hook_mailbox(EVERY.id)
SWARM = build_swarm({"supervisor": lambda _view: [complete("done")]})


class Died(BaseException):
    """The process is gone."""


class Points:
    """Counts awaits; at the fatal one, the process dies."""

    def __init__(self, fatal: int | None = None) -> None:
        self.count = 0
        self.fatal = fatal

    def hit(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            raise Died


class Receiver:
    """`Webhooks` that keep what they are to send."""

    def __init__(self, *replies: Reply, points: Points | None = None) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, int]] = []
        self.points = points or Points()
        self.retry_seconds: Sequence[float] = (1, 2)

    async def check(self, webhook: Webhook) -> None:
        pass

    async def registered(self, caller: str) -> Sequence[Webhook]:
        return ()

    async def send(self, hook: Hook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        self.points.hit()
        self.sent.append((event_id, int(event_id.rpartition(":")[2])))
        self.points.hit()
        return self.replies.pop(0) if self.replies else Reply(200)


class DyingStore(SQLiteStore):
    """A store of a process that dies before or after one of its requests."""

    def __init__(self, database: SQLiteDatabase, points: Points) -> None:
        super().__init__(database)
        self._points = points

    async def claim(self, *arguments: Any, **named: Any) -> Any:
        self._points.hit()
        claimed = await super().claim(*arguments, **named)
        self._points.hit()
        return claimed

    async def read_events(self, *arguments: Any, **named: Any) -> Any:
        self._points.hit()
        return await super().read_events(*arguments, **named)

    async def commit(self, *arguments: Any, **named: Any) -> None:
        self._points.hit()
        await super().commit(*arguments, **named)
        self._points.hit()


def runtime(store: SQLiteStore, receiver: Receiver | None, stamp: FakeStamp) -> tuple[Runtime, LocalQueue]:
    queue = LocalQueue(lambda: stamp.now().timestamp())
    return Runtime(SWARM, store, queue, stamp, webhooks=receiver), queue


async def work_off(engine: Runtime, queue: LocalQueue) -> None:
    """Run whatever has a token, agents first."""
    while len(queue.turns) or len(queue.deliveries):
        take = queue.take if len(queue.turns) else queue.take_delivery
        await engine.run_turn(*await take())


async def begin(path: Path, stamp: FakeStamp, receiver: Receiver) -> TaskKey:
    """A task that has ended, whose events nobody has sent yet."""
    with SQLiteDatabase(path) as database:
        engine, queue = runtime(SQLiteStore(database), receiver, stamp)
        submitted = await engine.submit(ANN, Submission(body="hi", task_id="t", webhook=EVERY))
        await engine.run_turn(*await queue.take())
        return submitted.key


async def test_whenever_the_process_dies_nothing_is_lost_and_order_holds(tmp_path: Path) -> None:
    deaths = 0
    while True:
        path, stamp, receiver = tmp_path / f"{deaths}.db", FakeStamp(), Receiver()
        key = await begin(path, stamp, receiver)
        receiver.points = points = Points(fatal=deaths + 1)
        with SQLiteDatabase(path) as database:
            engine, queue = runtime(DyingStore(database, points), receiver, stamp)
            try:
                await engine.run_turn(key, MAILBOX)
            except Died:
                died = True
            else:
                died = False
        receiver.points = Points()
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            engine, queue = runtime(store, receiver, stamp)
            await engine.recover()
            await work_off(engine, queue)
            task = await store.load(key)
            events = await store.read_events(key)
        assert task is not None
        assert not task.is_delivering
        wanted = [event.seq for event in events if event.kind is not EventKind.WEBHOOK_DELIVERED]
        assert list(dict.fromkeys(seq for _, seq in receiver.sent)) == wanted
        assert len(set(receiver.sent)) == len(wanted)
        if not died:
            assert len(receiver.sent) == len(wanted)
            assert deaths > 2 * len(wanted)
            return
        deaths += 1


async def test_what_was_sent_before_a_failure_is_not_sent_again(tmp_path: Path) -> None:
    stamp, receiver = FakeStamp(), Receiver(Reply(200), Reply(500, "it answered 500"))
    key = await begin(tmp_path / "db", stamp, receiver)
    with SQLiteDatabase(tmp_path / "db") as database:
        store = SQLiteStore(database)
        engine, _ = runtime(store, receiver, stamp)
        await engine.run_turn(key, MAILBOX)
        hook = (await _load(store, key)).hooks[EVERY.id]
        assert (hook.after, hook.failures, hook.retry_at) == (1, 1, stamp.now().timestamp() + 1)
        report = await engine.run_turn(key, MAILBOX)
        assert report.outcome is TurnReport.Outcome.HANDED_BACK
        assert len(receiver.sent) == 2
        stamp.advance(1)
        await engine.run_turn(key, MAILBOX)
        seqs = [seq for _, seq in receiver.sent]
        assert seqs[:3] == [1, 2, 2]
        assert len(set(seqs)) == len(seqs) - 1


async def test_it_is_not_called_for_what_is_said_about_it(tmp_path: Path) -> None:
    """The log of a webhook that gets everything, and its dead letters, would have no end."""
    stamp, receiver = FakeStamp(), Receiver(Reply(410, "it answered 410"))
    key = await begin(tmp_path / "db", stamp, receiver)
    with SQLiteDatabase(tmp_path / "db") as database:
        store = SQLiteStore(database)
        engine, queue = runtime(store, receiver, stamp)
        await engine.run_turn(key, MAILBOX)
        task = await _load(store, key)
        assert (len(task.dead), task.is_delivering) == (1, False)
        events = await store.read_events(key)
        assert "secret=1" not in str(events)
        await work_off(engine, queue)
        assert len(receiver.sent) == 1


async def test_a_server_without_webhooks_counts_failures(tmp_path: Path) -> None:
    stamp = FakeStamp()
    key = await begin(tmp_path / "db", stamp, Receiver())
    with SQLiteDatabase(tmp_path / "db") as database:
        store = SQLiteStore(database)
        engine, _ = runtime(store, None, stamp)
        await engine.run_turn(key, MAILBOX)
        assert (await _load(store, key)).hooks[EVERY.id].failures == 1
        with pytest.raises(BadRequest, match="sends no webhooks"):
            await engine.submit(ANN, Submission(body="hi", webhook=EVERY))


async def test_a_long_timeline_is_sent_in_parts(tmp_path: Path) -> None:
    stamp, receiver = FakeStamp(), Receiver()
    with SQLiteDatabase(tmp_path / "db") as database:
        store = SQLiteStore(database)
        engine, queue = runtime(store, receiver, stamp)
        key = (await engine.submit(ANN, Submission(body="0", task_id="t", webhook=EVERY))).key
        for n in range(EVENTS_AT_ONCE + 1):
            await engine.submit(ANN, Submission(body=str(n), task_id="t"))
        await engine.run_turn(key, MAILBOX)
        assert len(receiver.sent) == EVENTS_AT_ONCE
        await work_off(engine, queue)
        assert not (await _load(store, key)).is_delivering


async def test_one_that_is_rewound_meanwhile_stays_so(tmp_path: Path) -> None:
    stamp, receiver = FakeStamp(), Receiver()
    key = await begin(tmp_path / "db", stamp, receiver)
    with SQLiteDatabase(tmp_path / "db") as database:
        store = SQLiteStore(database)
        engine, queue = runtime(store, receiver, stamp)
        await engine.run_turn(key, MAILBOX)
        before = await _load(store, key)
        await engine.submit(ANN, Submission(body="again", task_id="t"))
        held = await store.claim(key, MAILBOX, engine._lease(60), now=stamp.now().timestamp())
        draft = Draft(await _load(store, key), SWARM, stamp)
        draft.emit(EventKind.DEAD_LETTER_REDRIVEN, "again")
        rewind(draft, EVERY.id, 2)
        await store.commit(draft.seal())
        last = before.hooks[EVERY.id].upto + 1
        await store.commit(
            settle(await _load(store, key), SWARM, held, Batch((last,), 200), (1,), stamp)  # type: ignore[arg-type]
        )
        assert (await _load(store, key)).hooks[EVERY.id].after == 1
        await engine.recover()
        await work_off(engine, queue)
        seqs = [seq for _, seq in receiver.sent]
        assert (seqs.count(1), seqs.count(2)) == (1, 2)
        assert seqs[seqs.index(2, 2) :] == sorted(seqs[seqs.index(2, 2) :])


def test_a_task_has_eight_at_most() -> None:
    from support.changes import Mail, Maker

    many = [Webhook(url=f"https://example.com/{n}") for n in range(9)]
    begun = Maker().begin(TaskKey(str(ANN), "t"), Mail("alpha"))
    assert len(attach(None, begun, many[:8]).task.hooks) == 8
    with pytest.raises(BadRequest, match="at most 8"):
        attach(None, begun, many)
    assert attach(None, begun, []) is begun


def test_no_agent_has_a_webhooks_name() -> None:
    with pytest.raises(ConfigurationError, match="doesn't begin with '!'"):
        build_swarm({"!a": lambda _view: [complete("done")]})


async def _load(store: SQLiteStore, key: TaskKey) -> Task:
    task = await store.load(key)
    assert task is not None
    return task
