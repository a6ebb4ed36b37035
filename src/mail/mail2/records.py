"""What a host of MAIL 2.0 stores: rows of JSON, each at a place."""

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Literal, Self, cast
from uuid import NAMESPACE_URL, UUID, uuid5

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter
from pydantic_core import from_json, to_json

from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.deletion import name_of
from mail.core.task.rows import RowKey, Rows, Times, Write
from mail.core.task.task import TaskKey
from mail.mail2 import WORK
from mail.mail2.addresses import AccountKind, Address, AddressText, Slug

ACCOUNTS, MESSAGES = "mail2:accounts", "mail2:messages"
REFERENCES = "mail2:references"
"""How many entries refer to each message, or will once it is delivered: with the last one, its text is deleted.

The row stays, so that a message that is filed again isn't delivered again.
"""

REFUSED = "mail2:refused"
"""The recipients here that each message of another host does not reach, if there are any: its host may ask again."""

MORE = "mail2:more"
"""What doesn't fit into the row of `WORK` of a delivery: boxes and agents, some in each row."""

THREADS, TASKS = "mail2:threads", "mail2:tasks"
"""The thread of each message to or from an agent, as long as its text; the mail of each task that began by mail."""

HELD = "mail2:held"
"""The mail that agents have got, which is stored as long as their tasks."""

SWARMS, LISTS, WEBHOOKS = "mail2:swarms", "mail2:lists", "mail2:webhooks"

BoxName = Literal["inbox", "outbox", "drafts", "trash"]
BOXES: tuple[BoxName, ...] = ("inbox", "outbox", "drafts", "trash")

MAX_RECIPIENTS = 1_000
MAX_TAGS = 100


LEASE_SECONDS = 30.0
"""Seconds after which another process takes up work."""

LONGEST_PAUSE = 3_600.0
"""The longest pause, in seconds, before work that keeps failing is tried again."""


def box(name: BoxName, of: str) -> str:
    """Return the place of a box; `of` is `Account.box`."""
    return f"mail2:{name}:{of}"


def sessions(account: str) -> str:
    """Return the place of the sessions of an account."""
    return f"mail2:sessions:{account}"


def format_utc(time: datetime) -> str:
    """Return a time in RFC 3339, in UTC, with microseconds: such texts sort as the times do."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_utc(text: str) -> str:
    """Return a time of another program as `format_utc` writes it. Raises ValueError."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("the time has no zone")
    return format_utc(time)


Subject = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Body = Annotated[str, StringConstraints(min_length=1, max_length=65_535)]
MessageId = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]
Tags = Annotated[tuple[Slug, ...], Field(max_length=MAX_TAGS)]
Recipients = Annotated[tuple[AddressText, ...], Field(min_length=1, max_length=MAX_RECIPIENTS)]


class Row:
    """A row. Fields that a later version has stored are ignored."""

    @property
    def text(self) -> str:
        """The text of the row."""
        return to_json(self).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what a row says."""
        return cast(Self, _reader(cast("Any", cls)).validate_json(text))

    @classmethod
    async def find(cls, rows: Rows, key: RowKey) -> tuple[Self, str] | None:
        """Return what a row says, and its text; None if there is none."""
        text = (await rows.read(key)).get(key)
        return None if text is None else (cls.read(text), text)


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@value
class Account(Row):
    """A user, admin, daemon or outside agent of this host.

    Attributes:
        box: names its boxes; an account that is made in place of a deleted one has others.
        epoch: changes with the password: sessions of an earlier epoch have ended.
        password: its hash; empty if the account has none, and its owner uses API keys.
    """

    kind: AccountKind
    name: str
    swarm: str
    box: str
    epoch: str
    password: str
    created: str

    @property
    def key(self) -> str:
        """The local address."""
        return Address(self.kind, self.name, self.swarm).key

    @property
    def purge(self) -> str:
        """The name of the row of `WORK` by which its boxes are emptied."""
        return f"{purges_of(self.key)}{self.box}"


def purges_of(key: str) -> str:
    """Return the beginning of the names of rows of `WORK` by which the boxes of deleted accounts are emptied."""
    return f"purge {key} "


@value
class Message(Row):
    """A message; it never changes."""

    message_id: MessageId
    sender: AddressText
    recipients: Recipients
    subject: Subject
    body: Body
    sent_at: Annotated[str, AfterValidator(read_utc)]
    reply_to: MessageId | None = None
    tags: Tags = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    mail_version: Literal["2.0"] = "2.0"


def own_ids(host: str) -> str:
    """Return the beginning of the ids that a host derives: no other host may bring a message with one of them."""
    text = sha256(host.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}"


def own_id(host: str, name: str) -> str:
    """Return the id of a message that a host writes itself, which derives from `name`."""
    beginning = own_ids(host)
    return f"{beginning}{str(uuid5(NAMESPACE_URL, name))[len(beginning) :]}"


@value
class Threaded(Row):
    """What entries of inbox, outbox and trash say of their thread."""

    thread: str = ""


@value
class InboxRow(Row):
    """An entry of an inbox; also one of a trash, with the time at which it came there.

    Attributes:
        thread: the id of the first message of its thread, as far as the sender knows that.
    """

    sender: str
    subject: str
    body_size: int
    sent_at: str
    received_at: str
    delivered_by: str
    is_read: bool = False
    trashed_at: str = ""
    tags: tuple[str, ...] = ()
    thread: str = ""

    @property
    def times(self) -> Times:
        """Where the entry stands in its box."""
        return Times(self.trashed_at or self.received_at, self.sent_at)


@value
class Undelivered(Row):
    """A recipient that a message could not be delivered to, and why."""

    recipient: str
    reason: str


@value
class Refused(Row):
    """The recipients here that a message of another host does not reach."""

    undelivered: tuple[Undelivered, ...]


@value
class OutboxRow(Row):
    """An entry of an outbox.

    Attributes:
        delivered_at: when the message was in all inboxes; None before, and if it can't be in all of them.
        undelivered: the recipients whom it does not reach.
        digest: of the request, if that had an idempotency key.
    """

    recipients: tuple[str, ...]
    subject: str
    body_size: int
    sent_at: str
    delivered_at: str | None = None
    delivered_by: str | None = None
    undelivered: tuple[Undelivered, ...] = ()
    digest: str = ""
    tags: tuple[str, ...] = ()
    thread: str = ""

    @property
    def times(self) -> Times:
        """Where the entry stands in its box."""
        return Times(self.sent_at, self.sent_at)


@value
class DraftRow(Row):
    """A draft."""

    subject: str
    body: str
    created_at: str
    updated_at: str
    reply_to: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def times(self) -> Times:
        """Where the draft stands in its box."""
        return Times(self.created_at, self.created_at)


WorkKind = Literal["deliver", "purge", "call", "forget", "tidy"]


@value
class Work(Row):
    """What any row of `WORK` says.

    Attributes:
        due: when to take it up, in seconds since the epoch; until then, the process that has set it may work on it.
        tries: how often it was taken up since something of it was done last.
    """

    due: float
    work: WorkKind
    tries: int = 0


def claimed(text: str, now: float) -> str:
    """Return work that a process takes up: the next one does later, the more often nothing was done."""
    tries = Work.read(text).tries
    due = now + min(LEASE_SECONDS * 2.0**tries, LONGEST_PAUSE)
    return to_json({**from_json(text), "due": due, "tries": min(tries + 1, 20)}).decode()


@value
class Delivery(Row):
    """The rest of a delivery.

    Attributes:
        outbox: the box of the sender; empty for a message from another host.
        left: the boxes that the message still has to get into.
        agents: the accounts among its recipients for which webhooks are called then, each with the list that it was
            addressed by, or an empty text.
        tasks: the agents of the swarm that the message still has to be given to, by their local addresses, and other
            hosts, each as `@HOST`.
        unseen: those of them that its sender doesn't know, as they are members of a list which the sender doesn't
            see, with the address of that.
        more_boxes, more_agents: the numbers of rows of `MORE` from which others come to `left` and `agents`.
    """

    due: float
    outbox: str
    left: tuple[str, ...]
    agents: tuple[tuple[str, str], ...] = ()
    tasks: tuple[str, ...] = ()
    thread: str = ""
    unseen: tuple[tuple[str, str], ...] = ()
    more_boxes: int = 0
    more_agents: int = 0
    work: Literal["deliver"] = "deliver"

    @property
    def rest(self) -> str | None:
        """The text of the row, or None if nothing is left."""
        files = self.left or self.more_boxes
        return self.text if files or self.agents or self.more_agents or self.tasks else None


@value
class More(Row):
    """A part of the boxes, or of the agents, of a delivery."""

    left: tuple[str, ...] = ()
    agents: tuple[tuple[str, str], ...] = ()


@value
class Purge(Row):
    """The boxes of a deleted account have to be emptied."""

    due: float
    box: str
    work: Literal["purge"] = "purge"


@value
class Held(Row):
    """A message that a task has got; `counts` is whether it is among the references to the message."""

    instance: str
    task_id: str
    counts: bool = False


def held_of(key: TaskKey) -> str:
    """Return the beginning of the names of rows of `HELD` that are a task's; a message and an agent follow."""
    return f"{uuid5(NAMESPACE_URL, name_of(key))} "


@value
class Forget(Row):
    """What is stored for the mail of a deleted task has to be deleted."""

    due: float
    instance: str
    task_id: str
    work: Literal["forget"] = "forget"


def forgets(key: TaskKey, now: float) -> Write:
    """Return what notes that a task is deleted."""
    return Write((WORK, f"forget {held_of(key)}"), Forget(now, key.instance, key.task_id).text)


@value
class Tidy(Row):
    """Boxes have to be looked through for mail that is too old, and `HELD` for tasks that are gone.

    Attributes:
        place, after: the row after which to continue.
    """

    due: float
    place: str = ACCOUNTS
    after: str = ""
    work: Literal["tidy"] = "tidy"


@value
class Call(Row):
    """A webhook has to be called for an account that has got a message; `agent` and `by_list` are local addresses."""

    due: float
    webhook_id: str
    message_id: str
    agent: str
    by_list: str
    attempt: int = 0
    work: Literal["call"] = "call"


class Stamps:
    """Times as MAIL 2.0 writes them; those of a process differ, so that boxes have an order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def now(self) -> str:
        """Return the time, or that of the last call and a microsecond."""
        self._last = max(int(self._clock.now().timestamp() * 1e6), self._last + 1)
        return format_utc(
            datetime.fromtimestamp(self._last // 10**6, UTC).replace(microsecond=self._last % 10**6)
        )
