"""Webhooks: URLs that receive the events of tasks.

A webhook is a mailbox of a task whose mail is the task's timeline, so a task stores only its position there.
`mail.core.decisions.webhooks` decides what is sent, `mail.core.engine.webhooks` sends it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from urllib.parse import urlsplit

from pydantic_core import to_json

from mail.core.protocol.values import Value, value
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import DeadLetterExtra, ReviewExtra
from mail.core.task.mailboxes import hook_of

MAX_HOOKS = 8
"""The number of webhooks that a task may have, and that a caller may register."""

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 30, 60, 60, *(300,) * 11)
"""Pauses after each consecutive failure; sending fails for good after the last, about an hour later."""

DEFAULT_EVENTS = (
    EventKind.TASK_COMPLETE,
    EventKind.TASK_ERROR,
    EventKind.BREAKPOINT_TOOL_CALL,
    EventKind.TASK_CANCELLED,
)
"""The events sent by default: those that a task's owner must know of or act on."""

RUN_ENDS = (EventKind.TASK_COMPLETE, EventKind.TASK_ERROR, EventKind.TASK_CANCELLED)
"""The events by which a run pauses or ends."""

NEVER_SENT = frozenset({EventKind.WEBHOOK_DELIVERED, EventKind.WEBHOOK_ERROR})
"""Events about what webhooks were sent; sending those too would never end."""


class Webhook(Value):
    """A webhook as a caller asks for it.

    Attributes:
        secret_ref: reference to the secret that signs its requests (`${WEBHOOK_SECRET_X}`); empty for none.
        events: the kinds to send; empty for all.
    """

    url: str
    secret_ref: str = ""
    events: tuple[EventKind, ...] = DEFAULT_EVENTS

    @property
    def id(self) -> str:
        """Its identity: the same URL with the same events is the same webhook."""
        return sha256(to_json([self.url, sorted(self.events)])).hexdigest()[:16]


class WebhookRecord(Webhook):
    """A webhook that a caller has registered for its future tasks.

    Attributes:
        created: when, in ISO 8601, UTC.
    """

    created: str = ""


def in_order(webhooks: Iterable[WebhookRecord]) -> list[WebhookRecord]:
    """Return registered webhooks, oldest first."""
    return sorted(webhooks, key=lambda webhook: (webhook.created, webhook.id))


def host_of(url: str) -> str:
    """Return the scheme, host and port of a URL: no user, path or query, which may be secrets."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"


@value(kw_only=True)
class Push:
    """What sends how one run of a task fares, in the form of another protocol (`mail.net.webhooks`).

    Attributes:
        id: the client's name for it.
        run: the number of the run, as in `Generation.run`; `run_id` names it to the receiver.
        token: sent back to the receiver with each request.
        scheme, credentials: those of the header `Authorization`; empty for none.
    """

    id: str
    run: int
    run_id: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""


@value(kw_only=True)
class TaskWebhook:
    """A webhook of a task, with its position in the timeline.

    Attributes:
        push: of one that follows a single run.
        asks: its id, if it is that of reviewers: then it gets the requests that name it, and nothing else.
        after: the seq of the last event that is sent or skipped.
        upto: the seq of the last event to send; events wait if it is higher than `after`.
        failures: consecutive failures to send the next event.
        retry_at: when it is tried again, in seconds since the epoch.
    """

    url: str
    secret_ref: str = ""
    events: tuple[EventKind, ...] = ()
    after: int = 0
    upto: int = 0
    failures: int = 0
    retry_at: float = 0.0
    push: Push | None = None
    asks: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether events wait to be sent."""
        return self.upto > self.after

    @property
    def shown(self) -> str:
        """The URL for display, without its query and user, which may be secrets; of reviewers, without its path."""
        return host_of(self.url) + ("" if self.asks else urlsplit(self.url).path)

    def wants(self, event: Event) -> bool:
        """Return whether it receives an event; events about webhooks and their dead letters are never sent."""
        if self.asks:
            return isinstance(event.extra, ReviewExtra) and event.extra.hook == self.asks
        if event.kind in NEVER_SENT or (self.events and event.kind not in self.events):
            return False
        return not (isinstance(event.extra, DeadLetterExtra) and hook_of(event.extra.mailbox) is not None)


def add_events(
    webhooks: Mapping[str, TaskWebhook], events: Sequence[Event], run: int
) -> dict[str, TaskWebhook]:
    """Return the webhooks after these events of a run: each that wants one of them has it to send.

    A webhook without waiting events skips those before the first that it wants, so that they need not be read.
    """
    extended = dict(webhooks)
    for hook_id, hook in webhooks.items():
        wanted = [event.seq for event in events if hook.wants(event)]
        if (
            hook.push is not None
        ):  # one event says how the run has ended, the first, and later runs are none of its
            wanted = wanted[:1] if hook.push.run == run else []
        if wanted:
            after = hook.after if hook.is_waiting else max(hook.after, wanted[0] - 1)
            extended[hook_id] = replace(hook, after=after, upto=wanted[-1])
    return extended


@value
class Reply:
    """The outcome of one request to a webhook.

    Attributes:
        status: the HTTP status; None without a response.
        reason: why it failed, for the task's owner.
        retry_after: the pause that the receiver requests, in seconds; None without one.
    """

    status: int | None
    reason: str = ""
    retry_after: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the event was accepted, by any 2xx status."""
        return self.status is not None and 200 <= self.status < 300


NO_REPLY = Reply(None)
