"""`DurableExchange`: mailboxes in a database, shared by several processes."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import UUID

from mail.errors import BadRequest
from mail.exchange.elements import as_id
from mail.exchange.flows import Flow, Progression
from mail.exchange.mailboxes import (
    OUTBOX,
    AlreadyRegistered,
    Mail,
    Mailbox,
    NotRegistered,
    deliver,
    new_mailbox,
)
from mail.exchange.repeating import Repeater

Contents = tuple[list[str], list[str]]
"""What is in a mailbox: the outbox and the inbox, mails in their order; those of the inbox are grouped by sender."""


class MailboxStore(Protocol):
    """The mailboxes of one exchange, which several processes may use at once.

    Each change happens as a whole or not at all, also where the process dies. Each mail reaches each of its
    recipients once, and the mail of one sender in the order in which it was sent. A mailbox that was
    unregistered never comes back, nor does what was in it.

    All methods raise StoreUnavailable where the database can't be reached or is too busy; what they were to
    change may have changed then.
    """

    async def register(self, owner: str) -> bool:
        """Give an entity a mailbox; returns whether it had none."""
        ...

    async def unregister(self, owner: str) -> Contents | None:
        """Take an entity's mailbox away; returns what was in it and nobody else has got, None if there was none."""
        ...

    async def contents(self, owner: str) -> Contents | None:
        """What is in a mailbox, None if there is none."""
        ...

    async def has(self, owner: str) -> bool:
        """Return whether an entity has a mailbox."""
        ...

    async def owners(self) -> list[str]:
        """Who has a mailbox."""
        ...

    async def send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        """Put a mail into the sender's outbox; returns whether there is one. Raises PayloadTooLarge."""
        ...

    async def collect(self, owner: str | None) -> int | None:
        """Move what is in the outbox of an entity, or of all, to the recipients' inboxes.

        Returns how many mails have reached somebody and had not before; None where the entity has no mailbox. Mail
        for nobody is dropped.
        """
        ...

    async def receive(self, owner: str, sender: str | None) -> list[str]:
        """Return the mail in an inbox, of one sender or of all, grouped by sender."""
        ...

    async def pop(self, owner: str, sender: str) -> str | None:
        """Take the oldest mail of a sender out of an inbox. No two callers ever get the same."""
        ...

    async def remove(self, owner: str, sender: str, mail_id: str) -> bool:
        """Take a mail out of an inbox; returns whether it was there."""
        ...

    async def close(self) -> None:
        """Let go of the database."""
        ...


class DurableExchange:
    """An exchange whose mailboxes are in a database: see `Exchange` for what its methods do, and `open_exchange`.

    They are coroutines here, `owner_ids` too. What `register`, `get` and `unregister` return is a copy; changes to it
    change nothing. Content has to be JSON. All methods raise StoreUnavailable where the database can't be reached.
    """

    def __init__(self, store: MailboxStore) -> None:
        self._store = store
        self._repeater = Repeater()

    # ------------------------------------------------------------------------------------- who takes part

    async def owner_ids(self) -> list[UUID]:
        """Who is registered."""
        return [UUID(owner) for owner in await self._store.owners()]

    async def register(self, owner_id: UUID) -> Flow[Mail, Progression]:
        """Give an entity a mailbox. Raises AlreadyRegistered, a ValueError."""
        owner_id = as_id(owner_id)
        if not await self._store.register(str(owner_id)):
            raise AlreadyRegistered(f"{owner_id} is already registered")
        return new_mailbox(owner_id)

    async def unregister(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Take an entity's mailbox away; returns it as it was, or None where there was none."""
        return _mailbox(owner_id, await self._store.unregister(_text(owner_id)))

    async def get(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Return the mailbox of an entity, as it is now."""
        return _mailbox(owner_id, await self._store.contents(_text(owner_id)))

    async def has(self, owner_id: UUID) -> bool:
        """Return whether an entity is registered."""
        return await self._store.has(_text(owner_id))

    # ----------------------------------------------------------------------------------- to send and to read

    async def send(
        self,
        sender: UUID,
        recipient: UUID | None,
        content: Any,
        channel: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> Mail:
        """Put a mail into the sender's outbox; when this returns, it is stored.

        Raises NotRegistered for the sender, BadRequest for content that isn't JSON, and PayloadTooLarge; all but the
        last are ValueErrors. Then nothing is stored.
        """
        mail = Mail.of(sender, recipient, content, channel, metadata)
        to = None if mail.recipient is None else str(mail.recipient)
        if not await self._store.send(str(mail.sender), to, str(mail.id), _write(mail)):
            raise NotRegistered(f"{sender} is not registered")
        return mail

    async def receive(self, owner_id: UUID, sender: UUID | None = None) -> list[Mail]:
        """Return the mail that waits for an entity, of one sender or of all, grouped by sender; it stays where it is."""
        by = None if sender is None else _text(sender)
        return _read(await self._store.receive(_text(owner_id), by))

    async def pop_mail(self, owner_id: UUID, sender: UUID) -> Mail | None:
        """Take the oldest mail from a sender; None where there is none.

        Of several processes that take, one gets it. It is gone even where that one dies, or the call is cancelled,
        before anything is done with it; where that must not be, `receive` it first, and `remove_mail` it at the end.
        """
        mail = await self._store.pop(_text(owner_id), _text(sender))
        return None if mail is None else Mail.from_json(mail)

    async def remove_mail(self, owner_id: UUID, mail: Mail) -> bool:
        """Take a mail that was received, wherever in the inbox it is; returns whether it was still there."""
        return await self._store.remove(_text(owner_id), str(mail.sender), str(mail.id))

    # ------------------------------------------------------------------------------------- to move the mail

    async def sync(self) -> int:
        """Collect what everyone has sent; returns how many mails have reached somebody."""
        return await self.collect_all()

    async def collect(self, owner_id: UUID) -> int:
        """Move an entity's mail to its recipients. Raises NotRegistered, a ValueError."""
        routed = await self._store.collect(_text(owner_id))
        if routed is None:
            raise NotRegistered(f"{owner_id} is not registered")
        return routed

    async def collect_all(self) -> int:
        """Move all mail to its recipients."""
        return await self._store.collect(None) or 0

    async def run(self, interval: float = 1.0) -> None:
        """Sync every `interval` seconds, until `stop`; an outage of the database is logged, and waited out."""
        await self._repeater.run(self.sync, interval)

    def stop(self) -> None:
        """Let `run` end, in whichever thread. Where it doesn't run yet, it ends at once when it does."""
        self._repeater.stop()


def _text(owner: UUID) -> str:
    return str(as_id(owner))


def _write(mail: Mail) -> str:
    """Return the mail as JSON text that is sure to be read again as it was. Raises BadRequest."""
    try:
        json.dumps([mail.content, mail.metadata], allow_nan=False)
        text = mail.to_json()
        read = Mail.from_json(text)
    except (BadRequest, RecursionError, TypeError, ValueError) as error:
        raise BadRequest(f"a durable exchange keeps JSON only, and this is none: {error}") from error
    if (read.content, read.metadata) != (mail.content, mail.metadata):  # a tuple, or a key that is no text
        raise BadRequest(
            "a durable exchange keeps JSON only: lists, dictionaries with text as keys, text, numbers, booleans, None"
        )
    return text


def _read(texts: list[str]) -> list[Mail]:
    return [Mail.from_json(text) for text in texts]


def _mailbox(owner_id: UUID, contents: Contents | None) -> Mailbox | None:
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
    """Return the exchange in a database, which several processes may open at once.

    Args:
        url: `sqlite:///path.db`, or `dynamodb://table` with `?region=…&endpoint_url=…` where these are not those of
            the environment. `exchange=name` besides tells several exchanges in one database apart.

    Raises ConfigurationError for another URL, and for a database that can't be used.
    """
    from mail.bootstrap.exchanges import open_mailboxes

    store = await open_mailboxes(url)
    try:
        yield DurableExchange(store)
    finally:
        await store.close()
