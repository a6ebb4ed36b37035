"""Webhooks: how a task comes by them, what they are sent, and what becomes of the task when that has been sent, or can't be.

Pure functions; `mail.core.engine.webhooks` carries them out. Every event is sent at least once, each webhook's in their
order: one that can't be sent keeps those behind it waiting, until it is given up with them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Protocol

from pydantic_core import to_json

from mail.core.protocol.clock import Clock
from mail.core.task.change import Claim, TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import Event, EventKind
from mail.core.task.mailboxes import hook_mailbox, hook_of
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.core.task.webhooks import MAX_HOOKS, RETRY_SECONDS, TaskWebhook, Webhook, add_events
from mail.errors import BadRequest

__all__ = [
    "RETRY_SECONDS",
    "Batch",
    "Reply",
    "Webhooks",
    "attach",
    "body_of",
    "called_by",
    "event_id",
    "rewind",
    "settle",
]

LONGEST_REST = 900.0
"""Seconds that a receiver may ask for by `Retry-After`."""

EVENTS_AT_ONCE = 50
"""How many events are sent under one lease, and so may be sent again where the process dies."""

GONE = 410
"""The status by which a receiver says that it never wants to be called again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request to a webhook.

    Attributes:
        status: of the answer; None where there was none.
        reason: why it is no success, for the task's owner.
        retry_after: the seconds that the receiver wants to be left alone for, where it says so.
    """

    status: int | None
    reason: str = ""
    retry_after: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the event was taken: by any status of 2xx."""
        return self.status is not None and 200 <= self.status < 300


NO_REPLY = Reply(None)


class Webhooks(Protocol):
    """How events reach webhooks."""

    @property
    def retry_seconds(self) -> Sequence[float]:
        """How long one rests after each failure in a row."""
        ...

    async def check(self, webhook: Webhook) -> None:
        """Raise BadRequest for a URL that may not be called, or a secret that is not there."""
        ...

    async def registered(self, caller: str) -> Sequence[Webhook]:
        """The webhooks of the tasks that a caller (`role:id@swarm`) begins."""
        ...

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        """Send a hook an event, within so many seconds; the id is the same each time that it is sent."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of sending events, one after the other: the last of them may have failed.

    Attributes:
        sent: the seqs of those that were taken, in order; `status` was the answer to the last one.
        failed: the seq of the one that was not, if any, and the `reply` to it.
    """

    sent: tuple[int, ...]
    status: int | None = None
    failed: int | None = None
    reply: Reply = NO_REPLY


def attach(before: Task | None, change: TaskChange, webhooks: Iterable[Webhook]) -> TaskChange:
    """The change, by which the task gets these webhooks: they are sent what happens from this very change on.

    One that it has already keeps its place, and takes over the reference to the secret. Raises BadRequest where they
    become too many.
    """
    hooks = dict(change.task.webhooks)
    after = 0 if before is None else before.seq
    for webhook in webhooks:
        known = hooks.get(webhook.id) or TaskWebhook(
            url=webhook.url, events=webhook.events, after=after, upto=after
        )
        hooks[webhook.id] = replace(known, secret_ref=webhook.secret_ref)
    if len(hooks) > MAX_HOOKS:
        raise BadRequest(f"a task has at most {MAX_HOOKS} webhooks, those included that you have registered")
    if not hooks:
        return change
    return replace(change, task=replace(change.task, webhooks=add_events(hooks, change.events)))


def called_by(change: TaskChange) -> Iterator[str]:
    """The ids of the webhooks that have something of this very change to be sent."""
    for hook_id, hook in change.task.webhooks.items():
        if hook.is_waiting and any(hook.wants(event) for event in change.events):
            yield hook_id


def event_id(task: Task, event: Event) -> str:
    """By what a receiver knows an event again that it has got already.

    Tasks of different callers may have one id, and one receiver: so it is made of both, which also keeps it short.
    """
    return f"{sha256(to_json(task.key)).hexdigest()[:24]}:{event.seq}"


def body_of(task: Task, event: Event) -> bytes:
    """What is sent: the event as streams show it, whose it is, and the state of the task."""
    return to_json(
        {
            "event": event.kind.value,
            "task_id": task.task_id,
            "seq": event.seq,
            "task_status": task.status.value,
            "data": event.data(task.task_id),
        }
    )


def settle(
    task: Task, swarm: SwarmCore, claim: Claim, batch: Batch, retry_seconds: Sequence[float], clock: Clock
) -> TaskChange:
    """End a claim on a webhook's mailbox: log what was sent, and rest or give up where something failed.

    A place that somebody has changed meanwhile (`rewind`) is left where it is: then events are sent again, or given up
    from there on.
    """
    hook_id = hook_of(claim.mailbox) or ""
    draft = Draft(task, swarm, clock)
    draft.end_claim(claim)
    hook = draft.webhooks[hook_id]
    attempts = hook.failures + 1
    is_moved = hook.after != claim.task.webhooks[hook_id].after
    if batch.sent:
        extra: dict[str, Any] = {"hook": hook_id, "from": batch.sent[0], "to": batch.sent[-1]}
        extra |= {"status": batch.status, "attempts": attempts}
        draft.emit(EventKind.WEBHOOK_DELIVERED, f"sent {_some(batch.sent)} to webhook {hook.shown}", **extra)
        attempts = 1
        after = hook.after if is_moved else batch.sent[-1]
        hook = replace(hook, after=after, failures=0, retry_at=0.0)
    if batch.failed is not None:
        first = hook.after + 1 if is_moved else batch.failed
        hook = _fail(draft, hook_id, hook, batch.failed, first, batch.reply, attempts, retry_seconds)
    draft.webhooks[hook_id] = hook
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
    """The webhook after an event could not be sent: at rest, or past all that waits, from the event `first` on."""
    gives_up = reply.status == GONE or attempts > len(retry_seconds)
    rest = None
    if not gives_up:
        rest = max(float(retry_seconds[attempts - 1]), min(reply.retry_after or 0.0, LONGEST_REST))
    ending = "given up" if rest is None else f"will try again in {rest:g} s"
    draft.emit(
        EventKind.WEBHOOK_ERROR,
        f"can't send event {seq} to webhook {hook.shown}, {ending}: {reply.reason}",
        hook=hook_id,
        seq=seq,
        status=reply.status,
        reason=reply.reason,
        attempts=attempts,
        retry=rest,
    )
    if rest is not None:
        return replace(hook, failures=attempts, retry_at=draft.time_in(rest))
    mailbox = hook_mailbox(hook_id)
    draft.dead_letter(mailbox, reply.reason, attempts, message=None, message_seq=first, upto=hook.upto)
    return replace(hook, after=hook.upto, failures=0, retry_at=0.0)


def rewind(draft: Draft, hook_id: str, seq: int) -> None:
    """Let a webhook be sent the event with this seq, and those after it, again. It is called at once."""
    hook = draft.webhooks[hook_id]
    draft.webhooks[hook_id] = replace(hook, after=min(hook.after, seq - 1), failures=0, retry_at=0.0)


def _some(seqs: Sequence[int]) -> str:
    return f"event {seqs[0]}" if len(seqs) == 1 else f"{len(seqs)} events from {seqs[0]} to {seqs[-1]}"
