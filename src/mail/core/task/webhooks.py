"""Webhooks as values: what a caller asks for, and how far a task has come with it.

A webhook is a mailbox of a task whose mail is the task's own timeline: it only remembers up to which event it has been
sent that. `mail.core.decisions.webhooks` decides what becomes of it, `mail.core.engine.webhooks` sends.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from pydantic_core import to_json

from mail.core.protocol.values import Value
from mail.core.task.events import Event, EventKind
from mail.core.task.interswarm import hook_of

MAX_HOOKS = 8
"""How many webhooks a task may have, and a caller may register."""

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 30, 60, 60, *(300,) * 11)
"""How long a webhook rests after each failure in a row; the one after the last, about an hour later, is given up."""

DEFAULT_EVENTS = (
    EventKind.TASK_COMPLETE,
    EventKind.TASK_ERROR,
    EventKind.BREAKPOINT_TOOL_CALL,
    EventKind.TASK_CANCELLED,
)
"""What is sent where the caller names no events: what a task's owner has to know, and to act on."""

NEVER_SENT = frozenset({EventKind.WEBHOOK_DELIVERED, EventKind.WEBHOOK_ERROR})
"""The kinds that log what webhooks were sent: to send those as well would have no end."""


class Webhook(Value):
    """A URL that events are to be sent to.

    Attributes:
        secret_ref: where the secret is that requests are signed with (`${WEBHOOK_SECRET_X}`); empty for unsigned ones.
        events: the kinds that are sent; empty for all.
    """

    url: str
    secret_ref: str = ""
    events: tuple[EventKind, ...] = DEFAULT_EVENTS

    @property
    def id(self) -> str:
        """By what it is known: the same URL with the same events is the same webhook."""
        return sha256(to_json([self.url, sorted(self.events)])).hexdigest()[:16]


class WebhookRecord(Webhook):
    """A webhook that a caller has registered, for the tasks that it begins from then on.

    Attributes:
        created: when, in ISO 8601, UTC.
    """

    created: str = ""


def in_order(records: Iterable[WebhookRecord]) -> list[WebhookRecord]:
    """Registered webhooks, the oldest first."""
    return sorted(records, key=lambda record: (record.created, record.id))


class Hook(Value):
    """A webhook of a task.

    Attributes:
        after: the seq of the last event that needs not be sent any more.
        upto: that of the last one to be sent; there is something to be sent where it is higher.
        failures: how often in a row the next one could not be sent.
        retry_at: when that is tried again, in seconds since the epoch.
    """

    url: str
    secret_ref: str = ""
    events: tuple[EventKind, ...] = ()
    after: int = 0
    upto: int = 0
    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether an event waits to be sent."""
        return self.upto > self.after

    @property
    def shown(self) -> str:
        """The URL for others to read: without its query and user, which may be secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def wants(self, event: Event) -> bool:
        """Whether an event is sent to it; what is about webhooks, or the dead letters of one, never is."""
        if event.kind in NEVER_SENT or (self.events and event.kind not in self.events):
            return False
        return hook_of(str(event.extra.get("mailbox", ""))) is None


def call(hooks: Mapping[str, Hook], events: Sequence[Event]) -> dict[str, Hook]:
    """The webhooks once these events are committed: those that want one of them have it to send.

    What nothing waited for is passed over, so that nobody has to read it in search of what is wanted.
    """
    called = dict(hooks)
    for hook_id, hook in hooks.items():
        wanted = [event.seq for event in events if hook.wants(event)]
        if wanted:
            after = hook.after if hook.is_waiting else max(hook.after, wanted[0] - 1)
            called[hook_id] = hook.model_copy(update={"after": after, "upto": wanted[-1]})
    return called
