"""Webhooks: deaths of the process at every await of a delivery, and what is decided beside deliveries that go well."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.decisions.webhooks import EVENTS_AT_ONCE, Batch, attach, rewind, settle
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.engine.webhooks import EVENTS_PER_READ
from mail.core.protocol.address import Principal
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.leases import WebhookClaim
from mail.core.task.mailboxes import hook_mailbox
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.webhooks import Reply, TaskWebhook, Webhook
from mail.errors import BadRequest, ConfigurationError
from mail.testing.agents import NAME, Call, View, build_swarm, complete
from mail.testing.clock import FakeClock
from mail.testing.faults import Dead, FaultyPort, Points, at_number

ANN = Principal(role="user", id="ann", swarm=NAME)
EVERY = Webhook(url="https://example.com/hook?secret=1", events=())
MAILBOX = hook_mailbox(EVERY.id)
SWARM = build_swarm({"supervisor": lambda _view: [complete("done")]})


class Receiver:
    """`Webhooks` that keep what they are to send."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, int]] = []
        self.points = Points()
        self.retry_seconds: Sequence[float] = (1, 2)

    async def check(self, webhook: Webhook) -> None:
        pass

    async def registered(self, caller: str) -> Sequence[Webhook]:
        return ()

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        self.points.hit("before send")
        self.sent.append((event_id, int(event_id.rpartition(":")[2])))
        self.points.hit("after send")
        return self.replies.pop(0) if self.replies else Reply(200)


@contextmanager
def opened[S: SQLiteStore](
    path: Path,
    receiver: Receiver | None,
    clock: FakeClock,
    make: Callable[[SQLiteDatabase], S] = SQLiteStore,  # type: ignore[assignment]
    swarm: SwarmCore = SWARM,
) -> Iterator[tuple[S, Runtime, LocalQueue]]:
    with SQLiteDatabase(path) as database:
        store, queue = make(database), LocalQueue(lambda: clock.now().timestamp())
        yield store, Runtime(swarm, store, queue, clock, webhooks=receiver), queue


async def work_off(engine: Runtime, queue: LocalQueue) -> None:
    """Run whatever has a token, agents first."""
    while len(queue.turns) or len(queue.outbound):
        take = queue.take if len(queue.turns) else queue.take_outbound
        await engine.run_turn(*await take())


async def begin(path: Path, clock: FakeClock, receiver: Receiver) -> TaskKey:
    """A task that has ended, whose events nobody has sent yet."""
    with opened(path, receiver, clock) as (_, engine, queue):
        submitted = await engine.submit(ANN, Submission(body="hi", task_id="t", webhook=EVERY))
        await engine.run_turn(*await queue.take())
        return submitted.key


async def test_whenever_the_process_dies_nothing_is_lost_and_order_holds(tmp_path: Path) -> None:
    deaths = 0

    def faulty(database: SQLiteDatabase) -> SQLiteStore:
        return cast(SQLiteStore, FaultyPort(SQLiteStore(database), "store", receiver.points))

    while True:
        path, clock, receiver = tmp_path / f"{deaths}.db", FakeClock(), Receiver()
        key = await begin(path, clock, receiver)
        receiver.points = Points(at_number(deaths + 1))
        with opened(path, receiver, clock, faulty) as (_, engine, queue):
            try:
                await engine.run_turn(key, MAILBOX)
            except Dead:
                died = True
            else:
                died = False
        receiver.points = Points()
        with opened(path, receiver, clock) as (store, engine, queue):
            await engine.recover()
            await work_off(engine, queue)
            task = await store.load(key)
            events = await store.read_events(key)
        assert task is not None
        assert not task.has_outbound_mail
        wanted = [event.seq for event in events if event.kind is not EventKind.WEBHOOK_DELIVERED]
        assert list(dict.fromkeys(seq for _, seq in receiver.sent)) == wanted
        assert len(set(receiver.sent)) == len(wanted)
        if not died:
            assert len(receiver.sent) == len(wanted)
            assert deaths > 2 * len(wanted)
            return
        deaths += 1


async def test_what_was_sent_before_a_failure_is_not_sent_again(tmp_path: Path) -> None:
    clock, receiver = FakeClock(), Receiver(Reply(200), Reply(500, "it answered 500"))
    key = await begin(tmp_path / "db", clock, receiver)
    with opened(tmp_path / "db", receiver, clock) as (store, engine, _):
        await engine.run_turn(key, MAILBOX)
        hook = (await _load(store, key)).webhooks[EVERY.id]
        assert (hook.after, hook.failures, hook.retry_at) == (1, 1, clock.now().timestamp() + 1)
        report = await engine.run_turn(key, MAILBOX)
        assert report.outcome is TurnReport.Outcome.HANDED_BACK
        assert len(receiver.sent) == 2
        clock.advance(1)
        await engine.run_turn(key, MAILBOX)
        seqs = [seq for _, seq in receiver.sent]
        assert seqs[:3] == [1, 2, 2]
        assert len(set(seqs)) == len(seqs) - 1


async def test_it_is_not_called_for_what_is_said_about_it(tmp_path: Path) -> None:
    """The log of a webhook that gets everything, and its dead letters, would have no end."""
    clock, receiver = FakeClock(), Receiver(Reply(410, "it answered 410"))
    key = await begin(tmp_path / "db", clock, receiver)
    with opened(tmp_path / "db", receiver, clock) as (store, engine, queue):
        await engine.run_turn(key, MAILBOX)
        task = await _load(store, key)
        assert (len(task.dead_letters), task.has_outbound_mail) == (1, False)
        events = await store.read_events(key)
        assert "secret=1" not in str(events)
        await work_off(engine, queue)
        assert len(receiver.sent) == 1


async def test_a_server_without_webhooks_counts_failures(tmp_path: Path) -> None:
    clock = FakeClock()
    key = await begin(tmp_path / "db", clock, Receiver())
    with opened(tmp_path / "db", None, clock) as (store, engine, _):
        await engine.run_turn(key, MAILBOX)
        assert (await _load(store, key)).webhooks[EVERY.id].failures == 1
        with pytest.raises(BadRequest, match="sends no webhooks"):
            await engine.submit(ANN, Submission(body="hi", webhook=EVERY))


async def test_a_long_timeline_is_sent_in_parts(tmp_path: Path) -> None:
    clock, receiver = FakeClock(), Receiver()
    with opened(tmp_path / "db", receiver, clock) as (store, engine, queue):
        key = (await engine.submit(ANN, Submission(body="0", task_id="t", webhook=EVERY))).key
        for n in range(EVENTS_AT_ONCE + 1):
            await engine.submit(ANN, Submission(body=str(n), task_id="t"))
        await engine.run_turn(key, MAILBOX)
        assert len(receiver.sent) == EVENTS_AT_ONCE
        await work_off(engine, queue)
        assert not (await _load(store, key)).has_outbound_mail


async def test_one_that_is_rewound_meanwhile_stays_so(tmp_path: Path) -> None:
    clock, receiver = FakeClock(), Receiver()
    key = await begin(tmp_path / "db", clock, receiver)
    with opened(tmp_path / "db", receiver, clock) as (store, engine, queue):
        await engine.run_turn(key, MAILBOX)
        before = await _load(store, key)
        await engine.submit(ANN, Submission(body="again", task_id="t"))
        held = await store.claim(key, MAILBOX, engine.turns._lease(0.0, 60, 1), now=clock.now().timestamp())
        draft = Draft(await _load(store, key), SWARM, clock)
        draft.emit(EventKind.DEAD_LETTER_REDRIVEN, "again")
        rewind(draft, EVERY.id, 2)
        await store.commit(draft.seal())
        last = before.webhooks[EVERY.id].upto + 1
        await store.commit(
            settle(Draft(await _load(store, key), SWARM, clock), held, Batch((last,), 200), (1,))  # type: ignore[arg-type]
        )
        assert (await _load(store, key)).webhooks[EVERY.id].after == 1
        await engine.recover()
        await work_off(engine, queue)
        seqs = [seq for _, seq in receiver.sent]
        assert (seqs.count(1), seqs.count(2)) == (1, 2)
        assert seqs[seqs.index(2, 2) :] == sorted(seqs[seqs.index(2, 2) :])


async def test_what_could_not_be_sent_again_is_listed_from_its_first_event_on(tmp_path: Path) -> None:
    """A send is under way when what was given up before it is redriven, and then fails for good."""
    clock, receiver = FakeClock(), Receiver(Reply(410, "it answered 410"))
    key = await begin(tmp_path / "db", clock, receiver)
    with opened(tmp_path / "db", receiver, clock) as (store, engine, _):
        await engine.run_turn(key, MAILBOX)
        await engine.submit(ANN, Submission(body="again", task_id="t"))
        held = await store.claim(key, MAILBOX, engine.turns._lease(0.0, 60, 1), now=clock.now().timestamp())
        assert isinstance(held, WebhookClaim)
        failed = held.task.webhooks[EVERY.id].upto
        await engine.dead_letters.redrive(ANN, key)
        task = await _load(store, key)
        assert (task.webhooks[EVERY.id].after, task.dead_letters) == (0, ())
        gone = Batch((), None, failed, Reply(410, "it answered 410"))
        await store.commit(settle(Draft(task, SWARM, clock), held, gone, (1,)))
        task = await _load(store, key)
        (dead,) = [event for event in await store.read_events(key) if event.seq in task.dead_letters]
        upto = task.webhooks[EVERY.id].after
        assert (dead.extra.as_json()["message_seq"], dead.extra.as_json()["upto"]) == (1, upto)
        assert upto >= failed


@pytest.mark.parametrize("fails", [False, True])
async def test_redriving_sends_events_and_no_mail(tmp_path: Path, fails: bool) -> None:
    """Its dead letter begins with an event that is a message, which is for an agent and not for the webhook."""

    def supervisor(_view: View) -> Sequence[Call]:
        if fails:
            raise RuntimeError("no model")
        return [complete("done")]

    clock, receiver = FakeClock(), Receiver(Reply(410, "it answered 410"))
    swarm = build_swarm({"supervisor": supervisor})
    with opened(tmp_path / "db", receiver, clock, swarm=swarm) as (store, engine, queue):
        key = (await engine.submit(ANN, Submission(body="hi", task_id="t", webhook=EVERY))).key
        await work_off(engine, queue)
        before = await _load(store, key)
        letters = [listed.dead_letter for listed in await engine.dead_letters.of(before)]
        (letter,) = [letter for letter in letters if letter.mailbox == MAILBOX]
        assert letter.message_seq == 1
        (redriven,) = await engine.dead_letters.redrive(ANN, key, letter.seq)
        assert (redriven.seq, redriven.refusal) == (None, "")
        await work_off(engine, queue)
        task = await _load(store, key)
        assert (task.status, task.generation.number, task.has_outbound_mail) == (
            before.status,
            before.generation.number,
            False,
        )
        assert await store.read_inbox(key) == []
        assert [seq for _, seq in receiver.sent][:2] == [1, 1]


class CountingStore(SQLiteStore):
    """Counts the events that are read, and how many at once at most."""

    read = most = 0

    async def read_events(self, *arguments: Any, **named: Any) -> Any:
        events = await super().read_events(*arguments, **named)
        self.read += len(events)
        self.most = max(self.most, len(events))
        return events


@pytest.mark.parametrize("webhook", [EVERY, Webhook(url=EVERY.url)])
async def test_a_long_timeline_is_read_about_once(tmp_path: Path, webhook: Webhook) -> None:
    clock, receiver = FakeClock(), Receiver()
    with opened(tmp_path / "db", receiver, clock, CountingStore) as (store, engine, queue):
        key = (await engine.submit(ANN, Submission(body="0", task_id="t", webhook=webhook))).key
        for n in range(300):
            await engine.submit(ANN, Submission(body=str(n), task_id="t"))
        while len(queue.turns):
            await engine.run_turn(*await queue.take())
        length = (await _load(store, key)).seq
        store.read = 0
        await work_off(engine, queue)
        assert receiver.sent
        assert store.most <= EVENTS_PER_READ
        assert store.read <= 3 * length


async def test_what_came_before_is_not_searched_for_what_it_wants(tmp_path: Path) -> None:
    clock, receiver = FakeClock(), Receiver()
    ends = Webhook(url=EVERY.url)
    with opened(tmp_path / "db", receiver, clock, CountingStore) as (store, engine, queue):
        key = (await engine.submit(ANN, Submission(body="0", task_id="t", webhook=ends))).key
        for n in range(300):
            await engine.submit(ANN, Submission(body=str(n), task_id="t"))
        await engine.run_turn(*await queue.take())
        hook = (await _load(store, key)).webhooks[ends.id]
        assert (hook.after, hook.is_waiting) == (hook.upto - 1, True)
        store.read = 0
        await engine.run_turn(key, hook_mailbox(ends.id))
        assert len(receiver.sent) == 1
        assert store.read == 1


def test_a_task_has_eight_at_most() -> None:
    from mail.testing.changes import Mail, Maker

    many = [Webhook(url=f"https://example.com/{n}") for n in range(9)]
    begun = Maker().begin(TaskKey(str(ANN), "t"), Mail("alpha"))
    assert len(attach(None, begun, many[:8]).task.webhooks) == 8
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
