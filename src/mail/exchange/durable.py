"""`DurableExchange`: mailboxes in a database, shared by several processes.

The rows of an exchange, `X` being `X#` and its name:

    place      name                          text
    X          E#owner                       a registered entity: the id of its mailbox
    X#E#owner  BOX                           the same, as long as it is registered
    X#E#owner  SENT                          the number of mails that it has ever sent
    X#OUT      owner#box#n#recipient#mail_id the n-th of these mails, until it is collected; `*` for all recipients
    X#B#box    I#sender#n#mail_id            the sender's n-th mail, in an inbox
    X#B#box    W#sender                      the number of the sender's last broadcast in this inbox

A mail to one entity moves in one write. A broadcast may have more recipients than a write allows, so it is put into one
inbox after the next, and leaves the outbox at the end. A process that finds it in the outbox starts from the beginning,
also after a crash of the one before: inboxes that have it refuse it by the number in W, which stays after the mail was
read. This works because the mails of an entity are numbered without gaps, in the write that stores them, and because a
mail is only moved after the one before it has left the outbox.
"""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import batched
from time import time_ns
from typing import Any, Self
from uuid import UUID, uuid4

from mail.core.task.documents import PutIf
from mail.core.task.rows import RowKey, Rows, Write
from mail.errors import BadRequest, StoreUnavailable
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

PAGE = 100
"""The number of mails that are collected at a time."""

CONCURRENCY = 8
"""The number of senders whose mail is moved concurrently, and of recipients that get a broadcast."""

TRIES = 100
"""The number of attempts if a mailbox is changed concurrently."""

ALL = "*"
"""The recipient of a broadcast."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A mail in an outbox; `n` has leading zeros, so that numbers are ordered as texts."""

    name: str
    owner: str
    box: str
    n: str
    recipient: str
    mail_id: str
    mail: str

    @classmethod
    def of(cls, name: str, mail: str) -> Self:
        owner, box, n, recipient, mail_id = name.split("#")
        return cls(name, owner, box, n, recipient, mail_id, mail)


class DurableExchange:
    """An exchange in a database, opened by `open_exchange`, with the methods of `Exchange` as coroutines.

    `owner_ids` is a coroutine, too. `register`, `get` and `unregister` return copies of mailboxes. Content must be
    JSON. All methods raise StoreUnavailable if the database can't be reached.

    Args:
        name: the name of the exchange; a database may have several.
    """

    def __init__(self, rows: Rows, name: str = "") -> None:
        self._rows = rows
        self._listing = f"X#{name.replace('%', '%25').replace('#', '%23')}"
        self._out = f"{self._listing}#OUT"
        self._repeater = Repeater()

    # ------------------------------------------------------------------------------------- members

    async def owner_ids(self) -> list[UUID]:
        """Return the registered entities, in order of registration."""
        everyone = await self._everyone()
        return [UUID(owner) for owner in sorted(everyone, key=everyone.__getitem__)]

    async def register(self, owner_id: UUID) -> Flow[Mail, Progression]:
        """Create a mailbox for an entity. Raises AlreadyRegistered, a ValueError."""
        owner, box = _text(owner_id), f"{time_ns():020}-{uuid4().hex}"
        writes = [Write(self._entity(owner), box, PutIf.ABSENT), Write(self._listed(owner), box)]
        if not await self._rows.write(writes):
            raise AlreadyRegistered(f"{owner} is already registered")
        return new_mailbox(as_id(owner_id))

    async def unregister(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Delete an entity's mailbox, and return its last state; None if there was none."""
        owner = _text(owner_id)
        while (box := await self._box(owner)) is not None:
            writes = [Write(self._entity(owner), None, box), Write(self._listed(owner), None)]
            if await self._rows.write(writes):
                outbox = await self._take(self._out, f"{owner}#{box}#")
                inbox = await self._take(self._inboxes(box), "I#")
                await self._take(self._inboxes(box), "W#")
                return _mailbox(owner, outbox, inbox)
        return None

    async def get(self, owner_id: UUID) -> Flow[Mail, Progression] | None:
        """Return a copy of an entity's mailbox; None if there is none."""
        owner = _text(owner_id)
        box = await self._box(owner)
        if box is None:
            return None
        outbox, inbox = await asyncio.gather(
            self._texts(self._out, f"{owner}#{box}#"), self._texts(self._inboxes(box), "I#")
        )
        return _mailbox(owner, outbox, inbox)

    async def has(self, owner_id: UUID) -> bool:
        """Return whether an entity is registered."""
        return await self._box(_text(owner_id)) is not None

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
        text, owner = _write(mail), str(mail.sender)
        entity, counter = self._entity(owner), self._counter(owner)
        for attempt in range(TRIES):  # of two processes that send for one entity, the second retries
            found = await self._rows.read(entity, counter)
            if entity not in found:
                raise NotRegistered(f"{sender} is not registered")
            box, sent = found[entity], found.get(counter)
            n = f"{int(sent or 0) + 1:012}"
            name = f"{owner}#{box}#{n}#{ALL if mail.recipient is None else mail.recipient}#{mail.id}"
            writes = [
                Write(entity, box, box),
                Write(counter, n, PutIf.ABSENT if sent is None else sent),
                Write((self._out, name), text),
            ]
            if await self._rows.write(writes):
                return mail
            await _back_off(attempt)
        raise StoreUnavailable(f"too many concurrent sends for {sender}; try again")

    async def receive(self, owner_id: UUID, sender: UUID | None = None) -> list[Mail]:
        """Return the mail that waits for an entity, of one sender or all, grouped by sender; it stays in the inbox."""
        prefix, box = "I#" if sender is None else _inbox(sender), await self._box(_text(owner_id))
        return [] if box is None else _read(await self._texts(self._inboxes(box), prefix))

    async def pop_mail(self, owner_id: UUID, sender: UUID) -> Mail | None:
        """Remove and return the oldest mail of a sender; None if there is none.

        Only one of several processes gets it. It is gone even if that process dies, or the call is cancelled, before
        it is handled; to avoid this, `receive` it, handle it, then `remove_mail` it.
        """
        prefix, box = _inbox(sender), await self._box(_text(owner_id))
        while box is not None:
            oldest = await self._rows.find(self._inboxes(box), prefix, limit=1)
            if not oldest:
                return None
            ((name, mail),) = oldest
            if await self._delete(self._inboxes(box), name):
                return Mail.from_json(mail)
        return None

    async def remove_mail(self, owner_id: UUID, mail: Mail) -> bool:
        """Remove a received mail from the inbox; return whether it was still there."""
        box = await self._box(_text(owner_id))
        if box is None:
            return False
        inbox = await self._rows.find(self._inboxes(box), _inbox(mail.sender))
        names = [name for name, _ in inbox if name.endswith(f"#{mail.id}")]
        return bool(names) and await self._delete(self._inboxes(box), names[0])

    # ------------------------------------------------------------------------------------- delivery

    async def sync(self) -> int:
        """Deliver all sent mail; return the number of mails delivered."""
        return await self.collect_all()

    async def collect(self, owner_id: UUID) -> int:
        """Deliver the mail that an entity has sent. Raises NotRegistered, a ValueError."""
        owner = _text(owner_id)
        box = await self._box(owner)
        if box is None:
            raise NotRegistered(f"{owner_id} is not registered")
        return await self._collect(f"{owner}#{box}#")

    async def collect_all(self) -> int:
        """Deliver all sent mail; return the number of mails delivered."""
        return await self._collect("")

    @coroutine_function
    def run(self, interval: float = 1.0) -> Coroutine[Any, Any, None]:
        """Sync every `interval` seconds until `stop`; database outages are logged and retried."""
        return self._repeater.begin(interval).repeat(self.sync)

    def stop(self) -> None:
        """End every `run`, in any thread; before the first one, that ends immediately."""
        self._repeater.stop()

    async def _collect(self, prefix: str) -> int:
        """Deliver mail page by page, without that which is sent meanwhile: the next call delivers it."""
        routed, after, upto = 0, "", dict[str, str]()
        while True:
            page = await self._rows.find(self._out, prefix, after=after, limit=PAGE)
            routed += await self._collect_page([_Sent.of(name, mail) for name, mail in page], upto)
            if len(page) < PAGE:
                return routed
            after = page[-1][0]

    async def _collect_page(self, page: list[_Sent], upto: dict[str, str]) -> int:
        """Deliver the mails of a page: those of one sender in order, different senders concurrently.

        `upto` has the number of the last mail to deliver, by sender.
        """
        senders: defaultdict[str, list[_Sent]] = defaultdict(list)
        for sent in page:
            senders[sent.owner].append(sent)
        counters = {owner: self._counter(owner) for owner in senders if owner not in upto}
        known = {*senders, *(sent.recipient for sent in page)} - {ALL}
        found = await self._rows.read(*map(self._entity, known), *counters.values())
        upto |= {owner: found[counter] for owner, counter in counters.items()}
        # read after the mail, so that no mailbox is missing that existed before it was sent
        everyone = await self._everyone() if any(sent.recipient == ALL for sent in page) else {}
        boxes = {owner: found[entity] for owner in known if (entity := self._entity(owner)) in found}

        async def one_by_one(owner: str, mails: list[_Sent]) -> int:
            return sum([await self._move(sent, boxes, everyone) for sent in mails if sent.n <= upto[owner]])

        return sum(await _concurrently(one_by_one(owner, mails) for owner, mails in senders.items()))

    async def _move(self, sent: _Sent, boxes: Mapping[str, str], everyone: Mapping[str, str]) -> bool:
        """Deliver a mail; return whether this call has delivered it to a recipient."""
        if boxes.get(sent.owner) != sent.box and await self._box(sent.owner) != sent.box:
            await self._delete(self._out, sent.name)  # a leftover: a crash while its sender was unregistered
            return False
        if sent.recipient != ALL:
            return await self._hand_over(sent, boxes.get(sent.recipient))
        recipients = {self._mark(sent, box): owner for owner, box in everyone.items() if owner != sent.owner}
        marks = await self._rows.read(*recipients)
        arrived = await _concurrently(
            self._put(sent, owner, everyone[owner], marks.get(mark)) for mark, owner in recipients.items()
        )
        return await self._delete(self._out, sent.name) and any(arrived)

    async def _hand_over(self, sent: _Sent, box: str | None) -> bool:
        """Move a mail from its outbox to the recipient's inbox, or drop it if there is none."""
        key, recipient = (self._out, sent.name), sent.recipient
        for attempt in range(TRIES):
            box = box or await self._box(recipient)
            if box is None:
                await self._delete(*key)
                return False
            departure = Write(key, None, PutIf.PRESENT)
            if await self._rows.write([departure, *self._arrival(sent, recipient, box)]):
                return True
            if not await self._rows.read(key):
                return False  # another process has moved it
            box = None
            await _back_off(attempt)
        raise StoreUnavailable(f"the mailbox of {recipient} changes too often; try again")

    async def _put(self, sent: _Sent, owner: str, box: str, last: str | None) -> bool:
        """Put a broadcast into an inbox that never had it; return whether the inbox has or had it.

        `last` is the number of the sender's last broadcast there.
        """
        mark = self._mark(sent, box)
        while last is None or last < sent.n:
            write = Write(mark, sent.n, PutIf.ABSENT if last is None else last)
            if await self._rows.write([write, *self._arrival(sent, owner, box)]):
                return True
            if await self._box(owner) != box:
                return False
            last = (await self._rows.read(mark)).get(mark)
        return True

    def _arrival(self, sent: _Sent, owner: str, box: str) -> list[Write]:
        """Return the writes that put a mail into an inbox of an entity, if that is still its mailbox."""
        name = f"I#{sent.owner}#{sent.n}#{sent.mail_id}"
        return [Write(self._entity(owner), box, box), Write((self._inboxes(box), name), sent.mail)]

    # ------------------------------------------------------------------------------------- rows

    def _entity(self, owner: str) -> RowKey:
        return f"{self._listing}#E#{owner}", "BOX"

    def _counter(self, owner: str) -> RowKey:
        return f"{self._listing}#E#{owner}", "SENT"

    def _listed(self, owner: str) -> RowKey:
        return self._listing, f"E#{owner}"

    def _mark(self, sent: _Sent, box: str) -> RowKey:
        return self._inboxes(box), f"W#{sent.owner}"

    def _inboxes(self, box: str) -> str:
        return f"{self._listing}#B#{box}"

    async def _box(self, owner: str) -> str | None:
        entity = self._entity(owner)
        return (await self._rows.read(entity)).get(entity)

    async def _everyone(self) -> dict[str, str]:
        """Return all mailboxes, by owner."""
        listed = await self._rows.find(self._listing, "E#")
        return {name.removeprefix("E#"): box for name, box in listed}

    async def _texts(self, place: str, prefix: str) -> list[str]:
        return [text for _, text in await self._rows.find(place, prefix)]

    async def _take(self, place: str, prefix: str) -> list[str]:
        """Delete rows; return the texts of those that this call has deleted."""
        taken: list[str] = []
        for rows in batched(await self._rows.find(place, prefix), PAGE):
            was_there = await _concurrently(self._delete(place, name) for name, _ in rows)
            taken += [text for (_, text), there in zip(rows, was_there, strict=True) if there]
        return taken

    async def _delete(self, place: str, name: str) -> bool:
        """Delete a row; return whether this call has deleted it."""
        return await self._rows.write([Write((place, name), None, PutIf.PRESENT)])


def _text(owner: UUID) -> str:
    return str(as_id(owner))


def _inbox(sender: UUID) -> str:
    return f"I#{_text(sender)}#"


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


def _mailbox(owner: str, outbox: list[str], inbox: list[str]) -> Mailbox:
    box = new_mailbox(UUID(owner))
    for mail in _read(outbox):
        box.add_item(mail, OUTBOX)
    for mail in _read(inbox):
        deliver(box, mail)
    return box


async def _back_off(attempt: int) -> None:
    """Wait after a write whose condition was false because another process has written, from the attempt 0 on."""
    await asyncio.sleep(random.uniform(0.0, min(0.2, 0.02 * 2**attempt)))  # noqa: S311


async def _concurrently[T](work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines, of which a few run concurrently."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def wait(one: Coroutine[Any, Any, T]) -> T:
        try:
            async with limit:
                return await one
        finally:
            one.close()  # it has not begun if this is cancelled before

    return list(await asyncio.gather(*map(wait, work)))


@asynccontextmanager
async def open_exchange(url: str) -> AsyncIterator[DurableExchange]:
    """Open an exchange in a database, which several processes may share.

    Args:
        url: `sqlite:///path.db`, or `dynamodb://table`, with `?region=…&endpoint_url=…` if they differ from the
            environment. `exchange=name` selects one of several exchanges in a database.

    Raises ConfigurationError for an invalid URL or an unusable database.
    """
    from mail.bootstrap.backends import open_rows

    rows, name = await open_rows(url)
    try:
        yield DurableExchange(rows, name)
    finally:
        await rows.close()
