"""`DurableExchange`: mailboxes in a database, shared by several processes."""

import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from mail.core.task.exchange import MailboxContents, MailboxStore
from mail.errors import BadRequest
from mail.exchange.elements import Flow, Progression, as_id
from mail.exchange.mailboxes import (
    OUTBOX,
    AlreadyRegistered,
    Mail,
    Mailbox,
    NotRegistered,
    deliver,
    new_mailbox,
)
from mail.exchange.repeating import Repeater, coroutine_function


class DurableExchange:
    """An exchange in a database, opened by `open_exchange`, with the methods of `Exchange` as coroutines.

    `owner_ids` is a coroutine, too. `register`, `get` and `unregister` return copies of mailboxes. Content must be
    JSON. All methods raise StoreUnavailable if the database can't be reached.
    """

    def __init__(self, store: MailboxStore) -> None:
        self._store = store
        self._repeater = Repeater()

    # ------------------------------------------------------------------------------------- members

    async def owner_ids(self) -> list[UUID]:
        """Return the registered entities."""
        return [UUID(owner) for owner in await self._store.owners()]

    async def register(self, owner_id: UUID) -> Flow[Mail, Progression]:
        """Create a mailbox for an entity. Raises AlreadyRegistered, a ValueError."""
        owner_id = as_id(owner_id)
        if not await self._store.register(str(owner_id)):
            raise AlreadyRegistered(f"{owner_id} is already registered")
        return new_mailbox(owner_id)

    async def unregister(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Delete an entity's mailbox, and return its last state; None if there was none."""
        return _mailbox(owner_id, await self._store.unregister(_text(owner_id)))

    async def get(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Return a copy of an entity's mailbox; None if there is none."""
        return _mailbox(owner_id, await self._store.contents(_text(owner_id)))

    async def has(self, owner_id: UUID) -> bool:
        """Return whether an entity is registered."""
        return await self._store.has(_text(owner_id))

    # ----------------------------------------------------------------------------------- mail

    async def send(
        self,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Mail:
        """Store a mail in the sender's outbox.

        Raises NotRegistered for the sender, BadRequest for content that isn't JSON (both are ValueErrors), and
        PayloadTooLarge.
        """
        mail = Mail.of(sender, recipient, content, channel, metadata)
        to = None if mail.recipient is None else str(mail.recipient)
        if not await self._store.send(str(mail.sender), to, str(mail.id), _write(mail)):
            raise NotRegistered(f"{sender} is not registered")
        return mail

    async def receive(self, owner_id: UUID, sender: UUID | None = None) -> list[Mail]:
        """Return the mail that waits for an entity, of one sender or all, grouped by sender; it stays in the inbox."""
        by = None if sender is None else _text(sender)
        return _read(await self._store.receive(_text(owner_id), by))

    async def pop_mail(self, owner_id: UUID, sender: UUID) -> Mail | None:
        """Remove and return the oldest mail of a sender; None if there is none.

        Only one of several processes gets it. It is gone even if that process dies, or the call is cancelled, before
        it is handled; to avoid this, `receive` it, handle it, then `remove_mail` it.
        """
        mail = await self._store.pop(_text(owner_id), _text(sender))
        return None if mail is None else Mail.from_json(mail)

    async def remove_mail(self, owner_id: UUID, mail: Mail) -> bool:
        """Remove a received mail from the inbox; return whether it was still there."""
        return await self._store.remove(_text(owner_id), str(mail.sender), str(mail.id))

    # ------------------------------------------------------------------------------------- delivery

    async def sync(self) -> int:
        """Deliver all sent mail; return the number of mails delivered."""
        return await self.collect_all()

    async def collect(self, owner_id: UUID) -> int:
        """Deliver the mail that an entity has sent. Raises NotRegistered, a ValueError."""
        routed = await self._store.collect(_text(owner_id))
        if routed is None:
            raise NotRegistered(f"{owner_id} is not registered")
        return routed

    async def collect_all(self) -> int:
        """Deliver all sent mail; return the number of mails delivered."""
        return await self._store.collect(None) or 0

    @coroutine_function
    def run(self, interval: float = 1.0) -> Coroutine[Any, Any, None]:
        """Sync every `interval` seconds until `stop`; database outages are logged and retried."""
        return self._repeater.begin(interval).repeat(self.sync)

    def stop(self) -> None:
        """End every `run`, in any thread; before the first one, that ends immediately."""
        self._repeater.stop()


def _text(owner: UUID) -> str:
    return str(as_id(owner))


def _write(mail: Mail) -> str:
    """Return the mail as JSON text that reads back as an equal mail. Raises BadRequest."""
    try:
        json.dumps([mail.content, mail.metadata], allow_nan=False)
        text = mail.to_json()
        read = Mail.from_json(text)
    except (BadRequest, RecursionError, TypeError, ValueError) as error:
        raise BadRequest(f"a durable exchange stores only JSON: {error}") from error
    # they differ by a tuple, or a key that is not a string
    if (read.content, read.metadata) != (mail.content, mail.metadata):
        raise BadRequest(
            "a durable exchange stores only JSON: lists, dictionaries with string keys, strings, numbers, booleans, "
            "None"
        )
    return text


def _read(texts: list[str]) -> list[Mail]:
    return [Mail.from_json(text) for text in texts]


def _mailbox(owner_id: UUID, contents: MailboxContents | None) -> Mailbox | None:
    if contents is None:
        return None
    outbox, inbox = contents
    box = new_mailbox(as_id(owner_id))
    for mail in _read(outbox):
        box.add_item(mail, OUTBOX)
    for mail in _read(inbox):
        deliver(box, mail)
    return box


@asynccontextmanager
async def open_exchange(url: str) -> AsyncIterator[DurableExchange]:
    """Open an exchange in a database, which several processes may share.

    Args:
        url: `sqlite:///path.db`, or `dynamodb://table`, with `?region=…&endpoint_url=…` if they differ from the
            environment. `exchange=name` selects one of several exchanges in a database.

    Raises ConfigurationError for an invalid URL or an unusable database.
    """
    from mail.bootstrap.backends import open_mailboxes

    store = await open_mailboxes(url)
    try:
        yield DurableExchange(store)
    finally:
        await store.close()
