"""Webhooks of a task: adding them, the requests they receive, and what success or failure does to the task.

Pure functions; `mail.core.engine.webhooks` performs them. Every event is sent at least once, in order per webhook: an
event that can't be sent delays those after it, and in the end they become one dead letter.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from pydantic_core import to_json

from mail.core.protocol.address import Principal
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import DeliveryExtra, FailedDeliveryExtra, RemovedWebhookExtra
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import hook_mailbox, hook_of
from mail.core.task.task import Task, TaskStatus
from mail.core.task.webhooks import (
    MAX_HOOKS,
    NO_REPLY,
    RUN_ENDS,
    Push,
    Reply,
    TaskWebhook,
    Webhook,
    add_events,
)
from mail.errors import BadRequest

MAX_RETRY_AFTER = 900.0
"""The longest pause that a receiver may request by `Retry-After`, in seconds."""

EVENTS_AT_ONCE = 50
"""The number of events sent under one lease; if the process crashes, they may be sent again."""

GONE = 410
"""The HTTP status by which a receiver refuses all further events."""


@value
class Batch:
    """The outcome of sending events one after the other, up to the first failure.

    Attributes:
        sent: the seqs of the accepted events, in order; `status` is the response to the last.
        failed: the seq of the event that failed, if any, and the `reply` to it.
    """

    sent: tuple[int, ...]
    status: int | None = None
    failed: int | None = None
    reply: Reply = NO_REPLY


def attach(before: Task | None, change: TaskChange, webhooks: Iterable[Webhook]) -> TaskChange:
    """Return the change with webhooks added to its task; they receive events from this change on.

    A webhook that the task has already keeps its position and gets the new secret reference. Raises BadRequest for too
    many.
    """
    hooks = dict(change.task.webhooks)
    after = 0 if before is None else before.seq
    for webhook in webhooks:
        known = hooks.get(webhook.id) or TaskWebhook(
            url=webhook.url, events=webhook.events, after=after, upto=after
        )
        hooks[webhook.id] = replace(known, secret_ref=webhook.secret_ref)
    if sum(not hook.asks for hook in hooks.values()) > MAX_HOOKS:
        raise BadRequest(f"a task has at most {MAX_HOOKS} webhooks, those included that you have registered")
    if not hooks:
        return change
    extended = add_events(hooks, change.events, change.task.generation.run)
    return replace(change, task=replace(change.task, webhooks=extended))


def add_push(draft: Draft, hook_id: str, url: str, push: Push) -> TaskChange:
    """Add a webhook that follows a run from now on, in place of those that have nothing more to send of earlier runs.

    Raises BadRequest for too many.
    """
    task = draft.before
    kept = {
        name: hook
        for name, hook in task.webhooks.items()
        if hook.push is None or hook.push.run == task.generation.run or hook.is_waiting
    }
    hook = TaskWebhook(url=url, events=RUN_ENDS, after=task.seq, upto=task.seq, push=push)
    draft.webhooks = {**kept, hook_id: hook}
    if sum(not hook.asks for hook in draft.webhooks.values()) > MAX_HOOKS:
        raise BadRequest(f"a task has at most {MAX_HOOKS} webhooks; delete one first")
    return draft.seal()


def push_body(push: Push, task: Task, event: Event) -> bytes:
    """Return what an event says of the run that a webhook follows."""
    from mail.core.decisions.runs import status_after  # few tasks have such a webhook

    status = status_after(TaskStatus.RUNNING, event)
    return to_json(
        {"id": push.run_id, "task_id": task.task_id, "status": status.value, "timestamp": event.timestamp}
    )


def called_by(change: TaskChange) -> Iterator[str]:
    """Yield the ids of the webhooks that must send an event of this change."""
    for hook_id, hook in change.task.webhooks.items():
        if hook.is_waiting and any(hook.wants(event) for event in change.events):
            yield hook_id


def event_id(task: Task, event: Event) -> str:
    """Return a stable event id, so that receivers can drop duplicates.

    It includes a digest of caller and task id, as tasks of different callers may have the same id.
    """
    return f"{sha256(to_json(task.key)).hexdigest()[:24]}:{event.seq}"


def body_of(task: Task, event: Event) -> bytes:
    """Return the request body: the event as in streams, its task, and the task's status."""
    return to_json(
        {
            "event": event.kind.value,
            "task_id": task.task_id,
            "seq": event.seq,
            "task_status": task.status.value,
            "data": event.data(task.task_id),
        }
    )


def settle(draft: Draft, claim: Claim, batch: Batch, retry_seconds: Sequence[float]) -> TaskChange:
    """End a claim on a webhook's mailbox: record the events sent, and pause or stop after a failure.

    If the position was changed meanwhile (`rewind`), it is kept, and sending continues from there.
    """
    hook_id = hook_of(claim.mailbox) or ""
    draft.end_claim(claim)
    is_removed = hook_id not in draft.webhooks  # by an admin, meanwhile
    hook = draft.webhooks.get(hook_id) or claim.task.webhooks[hook_id]
    attempts = hook.failures + 1
    is_moved = hook.after != claim.task.webhooks[hook_id].after
    if batch.sent:
        draft.emit(
            EventKind.WEBHOOK_DELIVERED,
            f"sent {_some(batch.sent)} to webhook {hook.shown}",
            DeliveryExtra(
                hook=hook_id,
                from_=batch.sent[0],
                to=batch.sent[-1],
                status=batch.status,
                attempts=attempts,
            ),
        )
        attempts = 1
        after = hook.after if is_moved else batch.sent[-1]
        hook = replace(hook, after=after, failures=0, retry_at=0.0)
    if is_removed:
        if not batch.sent:
            gone = RemovedWebhookExtra(hook=hook_id)
            draft.emit(EventKind.WEBHOOK_ERROR, f"webhook {hook.shown} is removed", gone)
        return draft.seal()
    if batch.failed is not None:
        first = hook.after + 1 if is_moved else batch.failed
        hook = _fail(draft, hook_id, hook, batch.failed, first, batch.reply, attempts, retry_seconds)
    draft.webhooks = {**draft.webhooks, hook_id: hook}
    return draft.seal()


def _fail(
    draft: Draft,
    hook_id: str,
    hook: TaskWebhook,
    seq: int,
    first: int,
    reply: Reply,
    attempts: int,
    retry_seconds: Sequence[float],
) -> TaskWebhook:
    """Return the webhook after a failure: paused, or past all waiting events, which become a dead letter."""
    is_final = reply.status == GONE or attempts > len(retry_seconds)
    pause = None
    if not is_final:
        pause = max(float(retry_seconds[attempts - 1]), min(reply.retry_after or 0.0, MAX_RETRY_AFTER))
    ending = "given up" if pause is None else f"will try again in {pause:g} s"
    draft.emit(
        EventKind.WEBHOOK_ERROR,
        f"can't send event {seq} to webhook {hook.shown}, {ending}: {reply.reason}",
        FailedDeliveryExtra(
            hook=hook_id,
            seq=seq,
            status=reply.status,
            reason=reply.reason,
            attempts=attempts,
            retry=pause,
        ),
    )
    if pause is not None:
        return replace(hook, failures=attempts, retry_at=draft.time_in(pause))
    mailbox = hook_mailbox(hook_id)
    draft.dead_letter(mailbox, reply.reason, attempts, message=None, message_seq=first, upto=hook.upto)
    return replace(hook, after=hook.upto, failures=0, retry_at=0.0)


def remove(draft: Draft, hook_id: str, by: Principal) -> TaskChange | None:
    """Remove a webhook, so that it receives no more events of the task; None if the task doesn't have it."""
    hook = draft.webhooks.get(hook_id)
    if hook is None:
        return None
    draft.webhooks = {name: hook for name, hook in draft.webhooks.items() if name != hook_id}
    reason = f"removed by {by}"
    gone = RemovedWebhookExtra(hook=hook_id, reason=reason)
    draft.emit(EventKind.WEBHOOK_ERROR, f"webhook {hook.shown} was {reason}", gone)
    return draft.seal()


def rewind(draft: Draft, hook_id: str, seq: int) -> None:
    """Make a webhook send the event with this seq and those after it again, immediately."""
    hook = draft.webhooks[hook_id]
    draft.webhooks = {
        **draft.webhooks,
        hook_id: replace(hook, after=min(hook.after, seq - 1), failures=0, retry_at=0.0),
    }


def _some(seqs: Sequence[int]) -> str:
    return f"event {seqs[0]}" if len(seqs) == 1 else f"{len(seqs)} events from {seqs[0]} to {seqs[-1]}"
