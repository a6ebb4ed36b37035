"""The change that one commit makes to a task, as data: pure functions decide it, a store applies it as a whole."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from pydantic_core import to_json

from mail.core.protocol.message import MAILMessage, Tier
from mail.core.protocol.values import value
from mail.core.protocol.xml import MAIL, Markup, render_message
from mail.core.task.approvals import NO_ASKS, Ask
from mail.core.task.context import Portion
from mail.core.task.events import Event
from mail.core.task.extras import DeadLetterExtra
from mail.core.task.files import files_in, with_files
from mail.core.task.leases import Claim, Lease
from mail.core.task.size import message_size
from mail.core.task.swarm import History
from mail.core.task.task import Task, TaskKey
from mail.core.task.timers import Timer
from mail.core.task.turn_state import Checkpoint, Resumption
from mail.core.task.waits import Wait

Position = tuple[Tier, int, str]
"""The place of a message among all mail of a task: its tier, its seq and its mailbox."""


@value(slots=False)
class InboxEntry:
    """One message in one mailbox, ordered by (tier, seq).

    Attributes:
        size: the size of the message (`mail.core.task.size`).
    """

    mailbox: str
    tier: Tier
    seq: int
    message: MAILMessage
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.size = message_size(self.message)  # type: ignore[misc]  # while it is made

    def without_texts(self) -> "InboxEntry":
        """Return the entry without the texts of its message; its size stays that of the whole one."""
        fields = {**self.message, "message": self.message.message.without_texts()}
        light = replace(self, message=MAILMessage(**fields))
        light.size = self.size  # type: ignore[misc]  # while it is made
        return light

    @cached_property
    def prompt(self) -> dict[str, Any]:
        """The user turn that shows the message to its reader's model."""
        shown = {"role": "user", "content": render_message(self.message)}
        routing_info = self.message.message.routing_info
        return with_files(shown, files_in(routing_info)) if routing_info else shown


@value
class HistoryRecord:
    """Entries that one commit appends to an agent's history: the agent's `n`-th such portion, counted from 1.

    Raises ValueError for entries that are not JSON.

    Attributes:
        encoded: its entries as JSON, as stores keep them.
    """

    agent: str
    n: int
    entries: History
    encoded: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.encoded = to_json(self.entries)  # type: ignore[misc]  # while it is made


@value
class Turn:
    """A turn that a worker has opened: the first message of a mailbox, and everything needed to process it.

    Attributes:
        portions: the portions of the history that the worker did not have yet, of those that the agent reads.
        checkpoint: the progress of an earlier, interrupted attempt at this turn.
        running_turns: how many other mailboxes of the task were leased when the turn was opened.
        also_read: other mail of the mailbox that is read in the same turn; only in manual mode.
        replaced: the lease of an earlier attempt, which ended without a commit or a release, or with a park.
        mailbox: the mailbox of its message.
        is_resumption: whether its message resumes the agent at a breakpoint, whose results are the end of its history.
    """

    task: Task
    entry: InboxEntry
    lease: Lease
    portions: Sequence[Portion]
    checkpoint: Checkpoint | None
    running_turns: int = 0
    also_read: tuple[InboxEntry, ...] = ()
    replaced: Lease | None = None
    mailbox: str = field(init=False, repr=False, compare=False)
    is_resumption: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.mailbox = self.entry.mailbox  # type: ignore[misc]  # while it is made
        self.is_resumption = bool(self.task.resumptions) and self._resumes(self.entry)  # type: ignore[misc]

    @property
    def history(self) -> History:
        """The entries of the portions."""
        return [entry for portion in self.portions for entry in portion.entries]

    @property
    def prompts(self) -> History:
        """The user turns that show the agent what it reads in this turn; none if the system has just resumed it."""
        if self.is_resumption and self.entry.message.sender.address_type == "system":
            return []
        return [self.entry.prompt]

    def _resumes(self, entry: InboxEntry) -> bool:
        portions = self.task.histories.get(self.mailbox, 0)
        return Resumption(seq=entry.seq, agent=self.mailbox, portions=portions) in self.task.resumptions

    @property
    def markup(self) -> Markup:
        """The elements around the texts of its prompts."""
        return MAIL


@value
class Inheritance:
    """What a new task takes over from another one: portions of histories, under their numbers, and waiting mail.

    Attributes:
        key: the other task.
        portions: the number of the last portion of each agent that has any.
        size: the bytes of all the other task's histories at that time.
        mail: the seqs of messages in the other task, by their seqs in the new one. In the change, these messages may
            lack their texts.
    """

    key: TaskKey
    portions: Mapping[str, int]
    size: int
    mail: Mapping[int, int] = field(default_factory=dict)


@value
class Past:
    """What a commit drops of a task that has ended: what came before its last answer and the oldest unread message.

    Attributes:
        portions: the first portion of each agent's history that is read again; absent if that is the first one.
        generation: the one whose answer is kept.
    """

    portions: Mapping[str, int]
    generation: int


@value
class TaskChange:
    """Everything that one commit writes; it is applied as a whole or not at all.

    A change without events keeps the task's seq: it sends nothing, and adds to no history.

    Attributes:
        task: the new state; its `version` is `expected_version` + 1.
        expected_version: the version it was decided on; 0 for a new task.
        turn: the turn, or another claim, that ends with this commit; its lease is released.
        consumed: the message that leaves its mailbox.
        also_read: further messages that leave it; see `Turn.also_read`.
        deliveries: the messages that enter mailboxes.
        histories: additions to the history of the turn's agent; a new task may have one for each agent, and at least
            as many events.
        inherits: for a new task, the histories and the mail that the store copies; nobody sees the task before it has
            all of them.
        encoded_events: the events as stores keep them.
        waits: the calls that finish later and the timers whose records change.
        asks, unasks: what waits for whom from now on, and what no longer does (`Task.asks`).
        response: the finishing message, if this commit ends the generation with the number `ended`.
        dropped: what is deleted of the task; without events. A store whose data expires deletes nothing.
    """

    task: Task
    expected_version: int
    turn: Claim | None = None
    consumed: InboxEntry | None = None
    also_read: tuple[InboxEntry, ...] = ()
    deliveries: tuple[InboxEntry, ...] = ()
    histories: tuple[HistoryRecord, ...] = ()
    inherits: Inheritance | None = None
    events: tuple[Event, ...] = ()
    encoded_events: bytes = b"[]"
    waits: tuple[Wait, ...] = ()
    asks: Set[Ask] = NO_ASKS
    unasks: Set[Ask] = NO_ASKS
    response: MAILMessage | None = None
    ended: int | None = None
    dropped: Past | None = None

    @property
    def key(self) -> TaskKey:
        """The task it changes."""
        return self.task.key

    @property
    def last_seq(self) -> int:
        """The seq of its last event, or of the task if it has none."""
        return self.events[-1].seq if self.events else self.task.seq

    @property
    def stored_waits(self) -> list[Wait]:
        """The calls and timers whose records it stores."""
        return [each for each in self.waits if not (isinstance(each, Timer) and each.is_over)]

    @property
    def ended_waits(self) -> list[str]:
        """The ids of the timers whose records it deletes."""
        return [each.id for each in self.waits if isinstance(each, Timer) and each.is_over]

    @property
    def has_records(self) -> bool:
        """Whether it changes more than the task: records of waits, or of what waits for whom, or its past."""
        return bool(self.waits or self.asks or self.unasks or self.dropped)

    @property
    def timers(self) -> list[Timer]:
        """The timers that it sets."""
        return [each for each in self.stored_waits if isinstance(each, Timer)]

    @property
    def dead_letters(self) -> list[DeadLetterExtra]:
        """The dead letters that it creates."""
        return [event.extra for event in self.events if isinstance(event.extra, DeadLetterExtra)]


@value
class Commit:
    """A commit as it was stored.

    Attributes:
        task: the task after it.
        events: the events of this commit.
        read: the mailbox and seq of each message that left a mailbox with it.
    """

    task: Task
    events: Sequence[Event]
    read: Sequence[tuple[str, int]]


@value
class Snapshot:
    """A task as one of its commits left it.

    Attributes:
        waiting: the mail that waited, in order; the messages are in the events of these seqs.
    """

    task: Task
    waiting: Sequence[Position]
