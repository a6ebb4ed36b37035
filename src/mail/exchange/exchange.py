"""`Exchange`: mailboxes in memory, and the mail between them."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self
from uuid import UUID

from pydantic import Field, PrivateAttr, field_validator, model_validator

from mail.exchange.elements import Element
from mail.exchange.errors import AlreadyRegistered, NotRegistered
from mail.exchange.flows import Flow, Pile, Progression
from mail.exchange.mail import Mail
from mail.exchange.mailboxes import INBOX, OUTBOX, Mailbox, check_mailbox, deliver, inbox_of, new_mailbox
from mail.exchange.repeating import Repeater

BATCH = 64
"""How much mail is collected before others get their turn."""

logger = logging.getLogger(__name__)


class Exchange(Element):
    """Moves mail from the outboxes of entities to the inboxes of others.

    Several threads and event loops may use one exchange. A lock is held while a batch of mail is moved, so each mail
    is either where it was or where it goes, and that of one sender stays in its order.

    Attributes:
        flows: the mailboxes; use `register` and `unregister` to change which there are.
    """

    flows: Pile[Flow[Mail, Progression]] = Field(default_factory=Pile[Flow[Mail, Progression]])
    _boxes: dict[UUID, Mailbox] = PrivateAttr(default_factory=dict)
    _lock: threading.RLock = PrivateAttr(default_factory=threading.RLock)
    _repeater: Repeater = PrivateAttr(default_factory=Repeater)

    @field_validator("flows", mode="before")
    @classmethod
    def _default(cls, given: Any) -> Any:
        return Pile[Flow[Mail, Progression]]() if given is None else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        for box in self.flows:
            owner = check_mailbox(box)
            if owner in self._boxes:
                raise ValueError(f"there are two mailboxes of {owner}")
            self._boxes[owner] = box
        return self

    # ------------------------------------------------------------------------------------- who takes part

    @property
    def owner_ids(self) -> list[UUID]:
        """Who is registered, in the order in which they came."""
        with self._lock:
            return list(self._boxes)

    def register(self, owner_id: UUID) -> Flow[Mail, Progression]:
        """Give an entity a mailbox, which is returned. Raises AlreadyRegistered, a ValueError."""
        with self._lock:
            if owner_id in self._boxes:
                raise AlreadyRegistered(f"{owner_id} is already registered")
            box = new_mailbox(owner_id)
            self.flows.add(box)
            self._boxes[owner_id] = box
            return box

    def unregister(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Take an entity's mailbox away, with the mail in it; what it has sent and others have got stays with them.

        Returns the mailbox, or None where there was none.
        """
        with self._lock:
            box = self._boxes.pop(owner_id, None)
            if box is not None:
                self.flows.pop(box.id)
            return box

    def get(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """The mailbox of an entity."""
        return self._boxes.get(owner_id)

    def has(self, owner_id: UUID) -> bool:
        """Whether an entity is registered."""
        return owner_id in self._boxes

    def __contains__(self, owner_id: object) -> bool:
        return owner_id in self._boxes

    def __len__(self) -> int:
        return len(self._boxes)

    # ----------------------------------------------------------------------------------- to send and to read

    def send(
        self,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Mail:
        """Put a mail into the sender's outbox; it goes on its way when it is collected.

        Args:
            recipient: None for all others. Nobody need be registered yet who is when the mail is collected.
            metadata: what goes with the content.

        Raises NotRegistered, a ValueError, for the sender.
        """
        mail = Mail(
            sender=sender,
            recipient=recipient,
            content=content,
            channel=channel,
            metadata=dict(metadata or {}),
        )
        with self._lock:
            self._box(mail.sender).add_item(mail, OUTBOX)
        return mail

    def receive(self, owner_id: UUID, sender: UUID | None = None) -> list[Mail]:
        """The mail that waits for an entity, of one sender or of all, grouped by sender; it stays where it is."""
        with self._lock:
            box = self._boxes.get(owner_id)
            if box is None:
                return []
            if sender is not None:
                return box.list_items(inbox_of(sender))
            inboxes = [str(order.name) for order in box.progressions if str(order.name).startswith(INBOX)]
            return [mail for name in inboxes for mail in box.list_items(name)]

    def pop_mail(self, owner_id: UUID, sender: UUID) -> Mail | None:
        """Take the oldest mail from a sender; None where there is none."""
        with self._lock:
            box = self._boxes.get(owner_id)
            return None if box is None else box.take_first(inbox_of(sender))

    def remove_mail(self, owner_id: UUID, mail: Mail) -> bool:
        """Take a mail that was received, wherever in the inbox it is; returns whether it was still there."""
        with self._lock:
            box = self._boxes.get(owner_id)
            return box is not None and box.take(inbox_of(mail.sender), mail.id) is not None

    # ------------------------------------------------------------------------------------- to move the mail

    async def sync(self) -> int:
        """Collect what everyone has sent; returns how many mails have reached somebody."""
        return await self.collect_all()

    async def collect(self, owner_id: UUID) -> int:
        """Move an entity's mail from its outbox to the recipients' inboxes.

        Returns how many mails have reached somebody; a broadcast is one. Mail for nobody who is registered is dropped.

        Raises NotRegistered, a ValueError.
        """
        with self._lock:
            order = self._box(owner_id).get_progression(OUTBOX)
            left = 0 if order is None else len(order)
        routed = 0
        while left > 0:  # what is sent meanwhile is left to the next time
            routed += self._move(owner_id, min(left, BATCH))
            left -= BATCH
            if left > 0:
                await asyncio.sleep(0)
        return routed

    async def collect_all(self) -> int:
        """`collect` of all who are registered, but for those that leave meanwhile."""
        routed = 0
        for n, owner_id in enumerate(self.owner_ids, 1):
            try:
                routed += await self.collect(owner_id)
            except NotRegistered:
                continue
            if n % BATCH == 0:
                await asyncio.sleep(0)
        return routed

    async def run(self, interval: float = 1.0) -> None:
        """Sync every `interval` seconds, until `stop`."""
        await self._repeater.run(self.sync, interval)

    def stop(self) -> None:
        """Let `run` end, in whichever thread. Where it doesn't run yet, it ends at once when it does."""
        self._repeater.stop()

    # --------------------------------------------------------------------------------------------- inside

    def _box(self, owner_id: UUID) -> Mailbox:
        box = self._boxes.get(owner_id)
        if box is None:
            raise NotRegistered(f"{owner_id} is not registered")
        return box

    def _move(self, owner_id: UUID, most: int) -> int:
        """Move mail of an outbox, `most` of it; returns how many mails have reached somebody."""
        routed = 0
        with self._lock:
            box = self._boxes.get(owner_id)
            for mail in [] if box is None else _first(box, most):
                deliveries = self._deliveries(owner_id, mail)
                if box is not None and box.take(OUTBOX, mail.id) is not None:
                    for to, its in deliveries:
                        deliver(to, its)
                    routed += bool(deliveries)
        return routed

    def _deliveries(self, owner_id: UUID, mail: Mail) -> list[tuple[Mailbox, Mail]]:
        """Where a mail goes, and what is put there."""
        if mail.sender != owner_id:
            logger.warning("%r was dropped: it was in the outbox of %s", mail, owner_id)
            return []
        if mail.recipient is None:
            others = [box for owner, box in self._boxes.items() if owner != owner_id]
            return [(box, _copy(mail)) for box in others if mail.id not in box.items]
        to = self._boxes.get(mail.recipient)
        is_new = to is not None and (mail.recipient == owner_id or mail.id not in to.items)
        return [(to, mail)] if to is not None and is_new else []

    def to_dict(self) -> dict[str, Any]:
        """The exchange with all mailboxes, as of one moment, as JSON values. Raises BadRequest."""
        with self._lock:
            return super().to_dict()

    def to_json(self) -> str:
        """The exchange with all mailboxes, as of one moment, as JSON text. Raises BadRequest."""
        with self._lock:
            return super().to_json()

    def __repr__(self) -> str:
        return f"Exchange({str(self.id)[:8]}, {len(self)} registered)"

    __str__ = __repr__


def _first(box: Mailbox, most: int) -> list[Mail]:
    order = box.get_progression(OUTBOX)
    ids = [] if order is None else [id_ for id_, _ in zip(order.order, range(most), strict=False)]
    return [box.items[id_] for id_ in ids]


def _copy(mail: Mail) -> Mail:
    """A mail of the same id with a content of its own, where that can be copied."""
    return mail.model_copy(update={"content": _copied(mail.content), "metadata": _copied(mail.metadata)})


def _copied[T](value: T) -> T:
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __deepcopy__ raises, the mail has to arrive
        return value
