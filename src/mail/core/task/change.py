"""What one commit does to a task, as data: decided by pure functions, applied by a store in one go."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from mail.core.protocol.message import MAILMessage, Tier
from mail.core.protocol.xml import build_mail_xml
from mail.core.task.events import Event, EventKind
from mail.core.task.swarm import History
from mail.core.task.task import Checkpoint, Task, TaskKey


@dataclass(frozen=True)
class InboxEntry:
    """One message in one mailbox. Its place there is (tier, seq)."""

    mailbox: str
    tier: Tier
    seq: int
    message: MAILMessage

    @cached_property
    def prompt(self) -> dict[str, str]:
        """The user turn that brings the message to its reader's model."""
        return build_mail_xml(self.message)


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """What one commit appended to an agent's history; the agent's `n`-th record, counted from 1."""

    agent: str
    n: int
    entries: History


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run the turns of one mailbox, until `expires` (seconds since the epoch)."""

    token: str
    expires: float


class Claim(Protocol):
    """A mailbox of a task that a worker has leased, whatever it is going to do with it."""

    @property
    def task(self) -> Task:
        """The task, as it was then."""
        ...

    @property
    def mailbox(self) -> str:
        """The mailbox."""
        ...

    @property
    def lease(self) -> Lease:
        """What the worker shows for it."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookClaim:
    """A claim on a mailbox that holds no messages: a webhook's, whose mail is the timeline of the task."""

    task: Task
    mailbox: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that a worker has opened: the head of a mailbox, and all it needs to run it.

    Attributes:
        history: the records that the worker did not know yet, joined.
        others: how many other mailboxes of the task were leased when the turn was opened.
        checkpoint: where an earlier, interrupted run of this very turn had come to.
        along: other mail of the mailbox that is read in the same turn; only in manual mode.
    """

    task: Task
    entry: InboxEntry
    lease: Lease
    history: History
    checkpoint: Checkpoint | None
    others: int = 0
    also_read: tuple[InboxEntry, ...] = ()

    @property
    def prompts(self) -> History:
        """The user turns that bring the agent what it reads in this turn."""
        return [self.entry.prompt]

    @property
    def mailbox(self) -> str:
        """The mailbox whose head this is."""
        return self.entry.mailbox


@dataclass(frozen=True, slots=True)
class TaskChange:
    """Everything one commit writes; it applies as a whole or not at all.

    Attributes:
        task: the new state; its `version` is `expected_version` + 1.
        expected_version: the version it was decided on; 0 where the task is new.
        turn: the turn, or another claim, that ends with this commit and gives its lease back.
        consumed: the message that leaves its mailbox.
        along: what leaves it besides; see `Turn.along`.
        deliveries: the messages that enter one.
        histories: what the turn (or a resume) appends to its agent's history; only a new task has more of them, one
            of each agent at most, and at least as many events.
        response: the finishing message, where this commit ends a generation, which is then `ended`.
    """

    task: Task
    expected_version: int
    turn: Claim | None = None
    consumed: InboxEntry | None = None
    also_read: tuple[InboxEntry, ...] = ()
    deliveries: tuple[InboxEntry, ...] = ()
    histories: tuple[HistoryRecord, ...] = ()
    events: tuple[Event, ...] = ()
    response: MAILMessage | None = None
    ended: int | None = None

    @property
    def key(self) -> TaskKey:
        """The task it changes."""
        return self.task.key

    @property
    def buried(self) -> list[Event]:
        """The dead letters that it makes."""
        return [event for event in self.events if event.kind is EventKind.DEAD_LETTER]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task as one of its commits left it.

    Attributes:
        events: those up to then.
        mail: what waited, in (tier, seq) order.
    """

    task: Task
    events: list[Event]
    mail: list[InboxEntry]
