"""Store: webhooks of tasks, whose mailboxes are leased without a message, and those that callers register."""

from dataclasses import replace

import pytest
from support.engines.adapters import StoreAdapter

from mail.core.decisions.webhooks import Batch, add_push, attach, settle
from mail.core.engine.documents import ServerDocuments
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.leases import WebhookClaim
from mail.core.task.mailboxes import hook_mailbox
from mail.core.task.ports import Busy, Idle, Store
from mail.core.task.task import Task, TaskKey, Transition
from mail.core.task.webhooks import RETRY_SECONDS, Push, Reply, Webhook, WebhookRecord
from mail.errors import LeaseLost, VersionConflict
from mail.testing.changes import ANN, NOW, SWARM, Mail, Maker
from mail.testing.contracts import committed, open_turn

KEY = TaskKey(ANN, "task-1")
EVERY = Webhook(url="https://example.com/hook?key=ü", secret_ref="${WEBHOOK_SECRET_A}", events=())
ENDS = Webhook(url="https://example.com/ends", events=(EventKind.TASK_COMPLETE,))
MAILBOX, OF_ENDS = hook_mailbox(EVERY.id), hook_mailbox(ENDS.id)


def begin(make: Maker) -> TaskChange:
    return attach(None, make.begin(KEY, Mail("alpha")), [EVERY, ENDS])


async def claim(store: Store, make: Maker, *, now: float = NOW, expires: float = NOW + 60) -> WebhookClaim:
    claimed = await store.claim(KEY, MAILBOX, make.lease(expires), now=now)
    assert isinstance(claimed, WebhookClaim), claimed
    return claimed


def delivered(make: Maker, hold: WebhookClaim, *seqs: int) -> TaskChange:
    return settle(Draft(hold.task, SWARM, make.clock), hold, Batch(seqs, 200), RETRY_SECONDS)


async def test_a_webhook_is_claimed_and_given_back_by_a_commit(store: Store, make: Maker) -> None:
    begun = await committed(store, begin(make))
    assert (await store.load(KEY)) == begun.task
    assert {token.mailbox for token in await store.list_ready()} == {"alpha", MAILBOX}
    hold = await claim(store, make)
    assert (hold.task, hold.mailbox) == (begun.task, MAILBOX)
    assert await store.claim(KEY, MAILBOX, make.lease(), now=NOW) == Busy()
    assert set(await store.read_leases(KEY, now=NOW)) == {MAILBOX}
    change = await committed(store, delivered(make, hold, 1))
    assert await store.read_leases(KEY, now=NOW) == {}
    assert {token.mailbox for token in await store.list_ready()} == {"alpha"}
    events = await store.read_events(KEY, after=1)
    assert [(event.kind, event.extra.as_json()["to"]) for event in events] == [
        (EventKind.WEBHOOK_DELIVERED, 1)
    ]
    assert await store.load(KEY) == change.task


async def test_one_that_follows_a_run_is_added_without_an_event_and_ends_with_the_run(
    store: Store, make: Maker
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))

    async def follow(task: Task, name: str) -> Task:
        push = Push(id=name, run=task.generation.run, run_id=f"task-1.{task.generation.run}", token="ü")
        return (await committed(store, add_push(Draft(task, SWARM, make.clock), name, EVERY.url, push))).task

    task = await follow(begun.task, "first")
    assert await store.load(KEY) == task
    assert (task.seq, len(await store.read_events(KEY))) == (begun.task.seq, begun.task.seq)
    ended = await committed(store, make.change(task, transition=Transition.COMPLETE))
    assert ended.task.webhooks["first"].is_waiting
    resumed = await committed(store, make.change(ended.task, Mail("alpha"), transition=Transition.RESUME))
    task = await follow(resumed.task, "second")
    assert task.webhooks.keys() == {"first", "second"}, "the first has something to send"
    again = await committed(store, make.change(task, transition=Transition.COMPLETE))
    hooks = again.task.webhooks
    assert hooks["first"] == ended.task.webhooks["first"], "this run is none of its"
    assert hooks["second"].upto == again.task.seq
    sent = replace(hooks["first"], after=hooks["first"].upto)
    idle = replace(again.task, webhooks={**hooks, "first": sent})
    third = Push(id="third", run=idle.generation.run, run_id="task-1.2")
    assert add_push(Draft(idle, SWARM, make.clock), "third", EVERY.url, third).task.webhooks.keys() == {
        "second",
        "third",
    }


async def test_it_is_ready_when_the_task_has_stopped(store: Store, make: Maker) -> None:
    begun = await committed(store, begin(make))
    await store.commit(make.change(begun.task, transition=Transition.COMPLETE))
    assert {token.mailbox for token in await store.list_ready()} == {MAILBOX, OF_ENDS}
    hold = await claim(store, make)
    last = hold.task.webhooks[EVERY.id].upto
    await store.commit(delivered(make, hold, 1, last))
    assert {token.mailbox for token in await store.list_ready()} == {OF_ENDS}


async def test_a_lease_that_is_released_or_expired_is_free(store: Store, make: Maker) -> None:
    await store.commit(begin(make))
    first = await claim(store, make)
    await store.release(first)
    second = await claim(store, make, expires=NOW + 5)
    third = await claim(store, make, now=NOW + 6, expires=NOW + 60)
    await store.release(second)
    assert set(await store.read_leases(KEY, now=NOW + 6)) == {MAILBOX}
    with pytest.raises(LeaseLost):
        await store.commit(delivered(make, second, 1))
    await store.commit(delivered(make, third, 1))


async def test_others_commit_meanwhile(store: Store, make: Maker) -> None:
    await store.commit(begin(make))
    hold = await claim(store, make)
    turn = await open_turn(store, KEY, "alpha", make)
    assert turn.running_turns == 0
    other = await committed(store, make.change(turn.task, turn=turn))
    with pytest.raises(VersionConflict):
        await store.commit(delivered(make, hold, 1))
    change = settle(Draft(other.task, SWARM, make.clock), hold, Batch((1,), 200), RETRY_SECONDS)
    await store.commit(change)
    hook = change.task.webhooks[EVERY.id]
    assert (hook.after, hook.upto) == (1, other.task.seq)
    assert MAILBOX in {token.mailbox for token in await store.list_ready()}


async def test_one_that_rests_has_its_token_later(store: Store, make: Maker) -> None:
    await store.commit(begin(make))
    hold = await claim(store, make)
    batch = Batch((), None, 1, Reply(500, "it answered 500"))
    await store.commit(settle(Draft(hold.task, SWARM, make.clock), hold, batch, RETRY_SECONDS))
    (token,) = [token for token in await store.list_ready() if token.mailbox == MAILBOX]
    assert token.not_before == make.clock.now().timestamp() + RETRY_SECONDS[0]


async def test_there_is_nothing_to_claim_of_no_task(store: Store, make: Maker) -> None:
    assert await store.claim(KEY, MAILBOX, make.lease(), now=NOW) == Idle(None)


async def test_there_is_nothing_to_claim_where_nothing_waits(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY))
    stopped = await committed(store, make.change(begun.task, transition=Transition.COMPLETE))
    assert await store.claim(KEY, MAILBOX, make.lease(), now=NOW) == Idle(stopped.task)


# ------------------------------------------------------------------------------------------------ records

FIRST = WebhookRecord(**EVERY.model_dump(), created="2026-01-01T00:00:00+00:00")
SECOND = WebhookRecord(**ENDS.model_dump(), created="2026-01-02T00:00:00+00:00")


async def test_webhooks_are_their_callers(records: ServerDocuments) -> None:
    assert await records.webhooks("user:a@s") == []
    assert await records.delete_webhook("user:a@s", FIRST.id) is False
    assert await records.set_webhook("user:a@s", SECOND, limit=2)
    assert await records.set_webhook("user:a@s", FIRST, limit=2)
    assert await records.webhooks("user:a@s") == [FIRST, SECOND]
    assert await records.webhooks("user:b@s") == []
    assert await records.all_webhooks() == [("user:a@s", FIRST), ("user:a@s", SECOND)]
    assert await records.delete_webhook("user:b@s", FIRST.id) is False
    assert await records.delete_webhook("user:a@s", FIRST.id) is True
    assert await records.delete_webhook("user:a@s", FIRST.id) is False
    assert await records.webhooks("user:a@s") == [SECOND]


async def test_admins_read_the_webhooks_of_all_callers(records: ServerDocuments) -> None:
    callers = ["agent:c@s", "user:a#b@s", "user:b@s"]
    for caller in callers:
        assert await records.set_webhook(caller, FIRST, limit=1)
    assert await records.delete_webhook("user:b@s", FIRST.id)
    assert await records.all_webhooks() == [(caller, FIRST) for caller in callers[:2]]


async def test_a_caller_has_so_many_at_most(records: ServerDocuments) -> None:
    assert await records.set_webhook("user:a@s", FIRST, limit=1)
    assert await records.set_webhook("user:a@s", SECOND, limit=1) is False
    again = FIRST.model_copy(update={"secret_ref": ""})
    assert await records.set_webhook("user:a@s", again, limit=1)
    assert await records.webhooks("user:a@s") == [again]
    assert await records.set_webhook("user:b@s", SECOND, limit=1)


async def test_webhooks_survive_reopening(durable: StoreAdapter, make: Maker) -> None:
    await durable.records.set_webhook("user:a@s", FIRST, limit=8)
    begun = await committed(durable.store, begin(make))
    await durable.reopen()
    assert await durable.records.webhooks("user:a@s") == [FIRST]
    assert await durable.store.load(KEY) == begun.task
    assert {token.mailbox for token in await durable.store.list_ready()} == {"alpha", MAILBOX}
