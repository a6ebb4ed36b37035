"""`Exchange`: mailboxes in memory, and the mail between them."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from typing import Any, Self
from uuid import UUID

from pydantic import Field, PrivateAttr, field_validator, model_validator

from mail.errors import BadRequest
from mail.exchange.elements import Element, Flow, Pile, Progression, as_id
from mail.exchange.mailboxes import (
    INBOX,
    OUTBOX,
    AlreadyRegistered,
    Mail,
    Mailbox,
    NotRegistered,
    check_mailbox,
    deliver,
    inbox_of,
    new_mailbox,
    take,
)
from mail.exchange.repeating import Repeater, coroutine_function

BATCH = 64
"""Deliveries before the event loop gets control; a broadcast is always delivered as a whole."""

logger = logging.getLogger(__name__)


class Exchange(Element):
    """Moves mail from outboxes to inboxes, in memory.

    Thread-safe, and usable from several event loops. A lock makes each move atomic, and mails of one sender stay in
    order. Ids may be given as text; all methods raise BadRequest, a ValueError, for an invalid id.

    Attributes:
        flows: the mailboxes; use `register` and `unregister` to add and remove them.
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
                raise ValueError(f"{owner} has two mailboxes")
            self._boxes[owner] = box
        return self

    # ------------------------------------------------------------------------------------- members

    @property
    def owner_ids(self) -> list[UUID]:
        """The registered entities, in order of registration."""
        with self._lock:
            return list(self._boxes)

    def register(self, owner_id: UUID) -> Flow[Mail, Progression]:
        """Create a mailbox for an entity, and return it. Raises AlreadyRegistered, a ValueError."""
        owner_id = as_id(owner_id)
        with self._lock:
            if owner_id in self._boxes:
                raise AlreadyRegistered(f"{owner_id} is already registered")
            box = new_mailbox(owner_id)
            self.flows.add(box)
            self._boxes[owner_id] = box
            return box

    def unregister(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Delete an entity's mailbox with the mail in it; mail that it has sent and that was delivered stays.

        Returns the mailbox, or None if there was none.
        """
        with self._lock:
            box = self._boxes.pop(as_id(owner_id), None)
            if box is not None:
                self.flows.pop(box.id)
            return box

    def get(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Return the mailbox of an entity."""
        return self._boxes.get(as_id(owner_id))

    def has(self, owner_id: UUID) -> bool:
        """Return whether an entity is registered."""
        return as_id(owner_id) in self._boxes

    def __contains__(self, owner_id: object) -> bool:
        try:
            return self.has(owner_id)  # type: ignore[arg-type]  # any object may be passed
        except BadRequest:
            return False

    def __len__(self) -> int:
        return len(self._boxes)

    # ----------------------------------------------------------------------------------- mail

    def send(
        self,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Mail:
        """Put a mail into the sender's outbox, from which `collect` delivers it.

        Args:
            recipient: None for a broadcast. Recipients need not be registered before the mail is collected.
            content: passed on as it is, not copied: what the sender changes before the mail is collected, arrives
                changed.
            metadata: further data beside the content.

        Raises NotRegistered, a ValueError, for the sender.
        """
        mail = Mail.of(sender, recipient, content, channel, metadata)
        with self._lock:
            self._box(mail.sender).add_item(mail, OUTBOX)
        return mail

    def receive(self, owner_id: UUID, sender: UUID | None = None) -> list[Mail]:
        """Return the mail that waits for an entity, of one sender or all, grouped by sender; it stays in the inbox."""
        owner_id, by = as_id(owner_id), None if sender is None else as_id(sender)
        with self._lock:
            box = self._boxes.get(owner_id)
            if box is None:
                return []
            if by is not None:
                return box.list_items(inbox_of(by))
            inboxes = [str(order.name) for order in box.progressions if str(order.name).startswith(INBOX)]
            return [mail for name in inboxes for mail in box.list_items(name)]

    def pop_mail(self, owner_id: UUID, sender: UUID) -> Mail | None:
        """Remove and return the oldest mail of a sender; None if there is none."""
        owner_id, sender = as_id(owner_id), as_id(sender)
        with self._lock:
            box = self._boxes.get(owner_id)
            return None if box is None else take(box, sender)

    def remove_mail(self, owner_id: UUID, mail: Mail) -> bool:
        """Remove a received mail from the inbox; return whether it was still there."""
        owner_id = as_id(owner_id)
        with self._lock:
            box = self._boxes.get(owner_id)
            return box is not None and take(box, mail.sender, mail.id) is not None

    # ------------------------------------------------------------------------------------- delivery

    async def sync(self) -> int:
        """Deliver all sent mail; return the number of mails delivered."""
        return await self.collect_all()

    async def collect(self, owner_id: UUID) -> int:
        """Move an entity's mail from its outbox to the recipients' inboxes.

        Returns the number of mails delivered; a broadcast counts as one. Mail without a registered recipient is
        dropped.

        Raises NotRegistered, a ValueError.
        """
        return await self._collect(as_id(owner_id), _Pace())

    async def collect_all(self) -> int:
        """Collect the mail of all registered entities."""
        routed, pace = 0, _Pace()
        for owner_id in self.owner_ids:
            await pace.worked(1)
            try:
                routed += await self._collect(owner_id, pace)
            except NotRegistered:
                continue
        return routed

    @coroutine_function
    def run(self, interval: float = 1.0) -> Coroutine[Any, Any, None]:
        """Sync every `interval` seconds, until `stop`."""
        return self._repeater.begin(interval).repeat(self.sync)

    def stop(self) -> None:
        """End every `run`, in any thread; before the first one, that ends immediately."""
        self._repeater.stop()

    # --------------------------------------------------------------------------------------------- inside

    def _box(self, owner_id: UUID) -> Mailbox:
        box = self._boxes.get(owner_id)
        if box is None:
            raise NotRegistered(f"{owner_id} is not registered")
        return box

    async def _collect(self, owner_id: UUID, pace: "_Pace") -> int:
        with self._lock:
            order = self._box(owner_id).get_progression(OUTBOX)
            sent = [] if order is None else list(order)  # mail sent in the meantime waits for the next call
        routed = 0
        for mail_id in sent:
            recipients = self._move(owner_id, mail_id)
            routed += recipients > 0
            await pace.worked(max(1, recipients))
        return routed

    def _move(self, owner_id: UUID, mail_id: UUID) -> int:
        """Move a mail out of an outbox, unless another call has; return the number of its recipients."""
        with self._lock:
            box = self._boxes.get(owner_id)
            mail = None if box is None else box.items.get(mail_id)
            if box is None or mail is None:
                return 0
            deliveries = self._deliveries(owner_id, mail)
            if box.take(OUTBOX, mail_id) is None:
                return 0
            for to, its in deliveries:
                deliver(to, its)
            return len(deliveries)

    def _deliveries(self, owner_id: UUID, mail: Mail) -> list[tuple[Mailbox, Mail]]:
        """Return the target mailboxes of a mail, each with the mail or its copy."""
        if mail.sender != owner_id:
            logger.warning("%r was dropped: it was in the outbox of %s", mail, owner_id)
            return []
        if mail.recipient is None:
            # skips boxes that have it: the sender's, and those filled before the exchange was saved as JSON
            return [(box, _copy(mail)) for box in list(self._boxes.values()) if mail.id not in box.items]
        to = self._boxes.get(mail.recipient)
        is_new = to is not None and (mail.recipient == owner_id or mail.id not in to.items)
        return [(to, mail)] if to is not None and is_new else []

    def to_dict(self) -> dict[str, Any]:
        """Return the exchange with all mailboxes, in a consistent state, as JSON values. Raises BadRequest."""
        with self._lock:
            return super().to_dict()

    def to_json(self) -> str:
        """Return the exchange with all mailboxes, in a consistent state, as JSON text. Raises BadRequest."""
        with self._lock:
            return super().to_json()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        with self._lock:
            fields = {name: deepcopy(getattr(self, name), memo) for name in type(self).model_fields}
        return type(self)(**fields)

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return super().__reduce__()

    def __repr__(self) -> str:
        return f"Exchange({str(self.id)[:8]}, {len(self)} registered)"

    __str__ = __repr__


class _Pace:
    """Yields to the event loop after every batch of work."""

    def __init__(self) -> None:
        self._work = 0

    async def worked(self, work: int) -> None:
        """Count deliveries, and yield to the event loop when a batch is full."""
        self._work += work
        if self._work >= BATCH:
            self._work = 0
            await asyncio.sleep(0)


def _copy(mail: Mail) -> Mail:
    """Return a copy of a mail with the same id, and a deep copy of its content if possible."""
    return Mail(**{**dict(mail), "metadata": _copied(mail.metadata), "content": _copied(mail.content)})


def _copied[T](value: T) -> T:
    try:
        return deepcopy(value)
    except Exception:  # noqa: BLE001 - a foreign __deepcopy__ may raise anything, and the mail must arrive
        return value
