"""Mail and mailboxes. A mailbox is a flow with an outbox, and an inbox for each sender with waiting mail.

Its name is its owner's id. It has no other progressions, and each mail is in exactly one of them.
"""

from collections.abc import Mapping
from typing import Any, Self
from uuid import UUID

from pydantic import ConfigDict, ValidationError

from mail.errors import BadRequest
from mail.exchange.elements import Element, Flow, Progression, unreadable


class AlreadyRegistered(BadRequest):
    """The entity is already registered."""


class NotRegistered(BadRequest):
    """The entity is not registered."""


class Mail(Element):
    """A message from one entity to another, or to all.

    Attributes:
        recipient: None for a broadcast.
        content: any value.
        channel: the name of the conversation, if there is one.
    """

    model_config = ConfigDict(validate_assignment=True)

    sender: UUID
    recipient: UUID | None = None
    content: Any = None
    channel: str | None = None

    @classmethod
    def of(
        cls,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Self:
        """Build a mail for an outbox. Raises BadRequest for an invalid id, channel or metadata."""
        if not isinstance(metadata, Mapping | None):
            raise BadRequest(f"metadata must be a dictionary, not {metadata!r:.100}")
        try:
            return cls(
                sender=sender,
                recipient=recipient,
                content=content,
                channel=channel,
                metadata=dict(metadata or {}),
            )
        except ValidationError as error:
            raise unreadable(cls, error) from error

    @property
    def is_broadcast(self) -> bool:
        """Whether it is for all entities but its sender."""
        return self.recipient is None

    @property
    def is_direct(self) -> bool:
        """Whether it is for one entity."""
        return self.recipient is not None

    def __repr__(self) -> str:
        recipient = "broadcast" if self.recipient is None else str(self.recipient)[:8]
        channel = "" if self.channel is None else f", channel={self.channel!r}"
        return f"Mail({str(self.sender)[:8]} -> {recipient}{channel})"

    __str__ = __repr__


OUTBOX = "outbox"
"""The progression of sent mail that is not collected yet."""

INBOX = "inbox_"

Mailbox = Flow[Mail, Progression]


def inbox_of(sender: UUID) -> str:
    """Return the name of the progression of mail from a sender."""
    return f"{INBOX}{sender}"


def new_mailbox(owner: UUID) -> Mailbox:
    """Return an empty mailbox."""
    box = Mailbox(name=str(owner))
    box.add_progression(Progression(name=OUTBOX))
    return box


def deliver(box: Mailbox, mail: Mail) -> None:
    """Append a mail to its sender's inbox."""
    name = inbox_of(mail.sender)
    if box.get_progression(name) is None:
        box.add_progression(Progression(name=name))
    box.add_item(mail, name)


def take(box: Mailbox, sender: UUID, mail_id: UUID | None = None) -> Mail | None:
    """Remove and return a mail of a sender, the oldest unless an id is given; None if it isn't there."""
    name = inbox_of(sender)
    mail = box.take_first(name) if mail_id is None else box.take(name, mail_id)
    inbox = box.get_progression(name)
    if inbox is not None and not len(inbox):
        box.drop_progression(name)
    return mail


def check_mailbox(box: Mailbox) -> UUID:
    """Check a mailbox from untrusted data, and return its owner. Raises ValueError for an invalid one."""
    owner = _read_id(box.name)
    if owner is None or box.name != str(owner):
        raise ValueError(f"mailbox {box.name!r} is not named after its owner, by the owner's id")
    if box.get_progression(OUTBOX) is None:
        box.add_progression(Progression(name=OUTBOX))
    seen: set[UUID] = set()
    for progression in box.progressions:
        _check_progression(box, owner, progression)
        if not seen.isdisjoint(progression.order):
            raise ValueError(f"mailbox {owner}: a mail is in two progressions")
        seen.update(progression.order)
    for mail in box.items:
        if mail.id not in seen:
            raise ValueError(f"mailbox {owner}: mail {mail.id} is in no progression")
    return owner


def _check_progression(box: Mailbox, owner: UUID, progression: Progression) -> None:
    name = progression.name or ""
    where = f"mailbox {owner}: mail in {progression.name!r}"
    if name == OUTBOX:
        for mail in box.list_items(name):
            if mail.sender != owner:
                raise ValueError(f"{where} must be the owner's own, but {mail.id} is from {mail.sender}")
        return
    sender = _read_id(name.removeprefix(INBOX))
    if sender is None or name != inbox_of(sender):
        raise ValueError(
            f"mailbox {owner}: {progression.name!r} is neither {OUTBOX!r} nor {INBOX}<id of a sender>"
        )
    for mail in box.list_items(name):
        if mail.sender != sender:
            raise ValueError(f"{where} must be from that sender, but {mail.id} is from {mail.sender}")
        if mail.recipient not in (None, owner):
            raise ValueError(f"{where} must be for the owner, but {mail.id} is for {mail.recipient}")


def _read_id(text: str | None) -> UUID | None:
    try:
        return UUID(text)
    except (ValueError, TypeError):
        return None
