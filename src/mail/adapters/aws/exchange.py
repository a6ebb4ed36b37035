"""Mailboxes of an exchange in a DynamoDB table, next to the tasks in it. `X` is `X#` and the exchange's name.

    X          E#owner              a registered entity, with its `box`
    X#E#owner  BOX                  the entity: `box`, its mailbox's id while it has one, and the number of mails `sent`
    X#OUT      owner#box#n          the n-th mail that the entity has sent, until it is collected
    X#B#box    I#sender#n#mail_id   the sender's n-th mail, in an inbox
    X#B#box    W#sender             the number of the sender's last broadcast in this inbox

A mail to one entity moves in one transaction. A broadcast may have more recipients than a transaction allows, so it is
put into one inbox after the next, and leaves the outbox at the end. A process that finds it in the outbox starts from
the beginning, also after a crash of the one before: inboxes that have it refuse it by the number in W, which stays
after the mail was read. This works because the mails of an entity are numbered without gaps, in the transaction that
stores them, and because a mail is only moved after the one before it has left the outbox.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import batched
from typing import Any, Self
from uuid import uuid4

from mail.adapters.aws.client import AwsClient, back_off
from mail.adapters.aws.items import Item, number, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key, key_of
from mail.core.task.exchange import MailboxContents
from mail.errors import PayloadTooLarge, StoreUnavailable

MAIL_BYTES = 350_000
"""The size limit of a mail, which is in one item of at most 400 KB."""

PAGE = 100
"""The number of mails that are collected at a time."""

CONCURRENCY = 8
"""The number of senders whose mail is moved concurrently, and of recipients that get a broadcast."""

TRIES = 100
"""The number of attempts if a mailbox is changed concurrently."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A mail in an outbox."""

    key: Key
    owner: str
    box: str
    n: str
    recipient: str | None
    mail_id: str
    mail: str

    @classmethod
    def of(cls, item: Item) -> Self:
        sort_key = item["SK"]["S"]
        recipient = item.get("recipient")
        owner, box, n = sort_key.split("#")
        return cls(
            (item["PK"]["S"], sort_key),
            owner,
            box,
            n,
            None if recipient is None else recipient["S"],
            item["mail_id"]["S"],
            item["mail"]["S"],
        )


class DynamoDBMailboxes:
    """`mail.core.task.exchange.MailboxStore` on the table of a `DynamoDBStore`.

    Args:
        exchange: the name of the exchange; a table may have several.
    """

    def __init__(self, client: AwsClient, table: str, exchange: str = "") -> None:
        self._client = client
        self._table = DynamoDBTable(client, table)
        self._listing = f"X#{exchange.replace('%', '%25').replace('#', '%23')}"
        self._out = f"{self._listing}#OUT"

    async def open(self) -> None:
        """Check that the table exists. Raises StoreUnavailable."""
        await self._table.get((self._listing, "E#"))

    async def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    # ------------------------------------------------------------------------------------------ mailboxes

    async def register(self, owner: str) -> bool:
        box = string(uuid4().hex)
        update = {
            "Update": {
                "Key": key_of(self._entity(owner)),
                "UpdateExpression": "SET box = :box",
                "ConditionExpression": "attribute_not_exists(box)",
                "ExpressionAttributeValues": {":box": box},
            }
        }
        return await self._try([update, {"Put": {"Item": {**key_of(self._listed(owner)), "box": box}}}])

    async def unregister(self, owner: str) -> MailboxContents | None:
        """Remove the mailbox immediately, then what is left in it."""
        while (box := await self._box(owner)) is not None:
            update = {
                "Update": {
                    "Key": key_of(self._entity(owner)),
                    "UpdateExpression": "REMOVE box",
                    "ConditionExpression": "box = :box",
                    "ExpressionAttributeValues": {":box": string(box)},
                }
            }
            if await self._try([update, {"Delete": {"Key": key_of(self._listed(owner))}}]):
                sent = await self._take(*self._outbox(owner, box))
                inbox = await self._take(self._partition(box), "I#", "I~")
                await self._take(self._partition(box), "W#", "W~")
                return sent, inbox
        return None

    async def contents(self, owner: str) -> MailboxContents | None:
        box = await self._box(owner)
        if box is None:
            return None
        inbox, outbox = await asyncio.gather(
            self._items(self._partition(box), "I#", "I~"), self._items(*self._outbox(owner, box))
        )
        return _texts(outbox), _texts(inbox)

    async def has(self, owner: str) -> bool:
        return await self._box(owner) is not None

    async def owners(self) -> list[str]:
        return list(await self._everyone())

    # ----------------------------------------------------------------------------------------------- mail

    async def send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        """Store the mail and the entity's number together; of two concurrent calls, the second retries."""
        size = size_in_bytes(mail)
        if size > MAIL_BYTES:
            raise PayloadTooLarge(f"a mail can have at most {MAIL_BYTES} bytes as JSON; this one has {size}")
        for attempt in range(TRIES):
            entity = await self._table.get(self._entity(sender))
            if entity is None or "box" not in entity:
                return False
            box, sent = entity["box"], int(entity["sent"]["N"]) if "sent" in entity else 0
            key = (self._out, f"{sender}#{box['S']}#{sent + 1:012}")
            item = {**key_of(key), "mail_id": string(mail_id), "mail": string(mail)}
            if recipient is not None:
                item["recipient"] = string(recipient)
            update = {
                "Update": {
                    "Key": key_of(self._entity(sender)),
                    "UpdateExpression": "SET sent = :next",
                    "ConditionExpression": "box = :box AND "
                    + ("sent = :sent" if sent else "attribute_not_exists(sent)"),
                    "ExpressionAttributeValues": {
                        ":next": number(sent + 1),
                        ":box": box,
                        **({":sent": number(sent)} if sent else {}),
                    },
                }
            }
            if await self._try([update, {"Put": {"Item": item}}]):
                return True
            await back_off(attempt, cap=0.2)
        raise StoreUnavailable(f"too many concurrent sends for {sender}; try again")

    async def collect(self, owner: str | None) -> int | None:
        """Collect page by page; the mails of one sender in order, different senders concurrently."""
        low, high = "0", "~"
        if owner is not None:
            box = await self._box(owner)
            if box is None:
                return None
            _, low, high = self._outbox(owner, box)
        routed = 0
        async for page in self._table.pages(self._out, low, high, limit=PAGE):
            routed += await self._collect_page([_Sent.of(item) for item in page])
        return routed

    async def receive(self, owner: str, sender: str | None) -> list[str]:
        box = await self._box(owner)
        if box is None:
            return []
        low, high = ("I#", "I~") if sender is None else _inbox(sender)
        return _texts(await self._items(self._partition(box), low, high))

    async def pop(self, owner: str, sender: str) -> str | None:
        """Delete the next mail in a transaction, so that only one of several callers gets it."""
        box = await self._box(owner)
        while box is not None:
            async with aclosing(self._table.pages(self._partition(box), *_inbox(sender), limit=1)) as pages:
                head = await anext(pages)
            if not head:
                return None
            if await self._delete(_key(head[0])):
                return str(head[0]["mail"]["S"])
        return None

    async def remove(self, owner: str, sender: str, mail_id: str) -> bool:
        box = await self._box(owner)
        if box is None:
            return False
        async with aclosing(self._table.pages(self._partition(box), *_inbox(sender), limit=PAGE)) as pages:
            async for page in pages:
                for item in page:
                    if item["SK"]["S"].endswith(f"#{mail_id}"):
                        return await self._delete(_key(item))
        return False

    # --------------------------------------------------------------------------------------- collection

    async def _collect_page(self, page: list[_Sent]) -> int:
        known = {sent.owner for sent in page} | {sent.recipient for sent in page if sent.recipient}
        boxes = await self._boxes(known)
        # read after the mail, so that no mailbox is missing that existed before it was sent
        everyone = await self._everyone() if any(sent.recipient is None for sent in page) else {}
        senders: defaultdict[str, list[_Sent]] = defaultdict(list)
        for sent in page:
            senders[sent.owner].append(sent)

        async def one_by_one(mails: list[_Sent]) -> int:
            return sum([await self._move(sent, boxes, everyone) for sent in mails])

        return sum(await _concurrently(one_by_one(mails) for mails in senders.values()))

    async def _move(self, sent: _Sent, boxes: Mapping[str, str], everyone: Mapping[str, str]) -> bool:
        """Deliver a mail; return whether this call has delivered it to a recipient."""
        if boxes.get(sent.owner) != sent.box and await self._box(sent.owner) != sent.box:
            await self._delete(sent.key)  # a leftover: a crash while its sender was unregistered
            return False
        if sent.recipient is not None:
            return await self._hand_over(sent, sent.recipient, boxes.get(sent.recipient))
        recipients = [(owner, box) for owner, box in everyone.items() if owner != sent.owner]
        arrived = await _concurrently(self._put(sent, owner, box) for owner, box in recipients)
        return await self._delete(sent.key) and any(arrived)

    async def _hand_over(self, sent: _Sent, recipient: str, box: str | None) -> bool:
        """Move a mail from its outbox to the recipient's inbox, or drop it if there is none."""
        for attempt in range(TRIES):
            box = box or await self._box(recipient)
            if box is None:
                await self._delete(sent.key)
                return False
            if await self._try(
                [_deletion(sent.key), self._is_box(recipient, box), self._inbox_item(sent, box)]
            ):
                return True
            if await self._table.get(sent.key, "mail_id") is None:
                return False  # another process has moved it
            box = None
            await back_off(attempt)
        raise StoreUnavailable(f"the mailbox of {recipient} changes too often; try again")

    async def _put(self, sent: _Sent, owner: str, box: str) -> bool:
        """Put a broadcast into an inbox that never had it; return whether the inbox has or had it."""
        watermark = {
            "Update": {
                "Key": key_of((self._partition(box), f"W#{sent.owner}")),
                "UpdateExpression": "SET n = :n",
                "ConditionExpression": "attribute_not_exists(n) OR n < :n",
                "ExpressionAttributeValues": {":n": number(int(sent.n))},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
        actions = [watermark, self._is_box(owner, box), self._inbox_item(sent, box)]
        try:
            await self._table.transact(actions, uuid4().hex)
        except ConditionFailed as failure:
            return failure.item is not None and "n" in failure.item
        return True

    def _inbox_item(self, sent: _Sent, box: str) -> dict[str, Any]:
        key = (self._partition(box), f"I#{sent.owner}#{sent.n}#{sent.mail_id}")
        return {"Put": {"Item": {**key_of(key), "mail": string(sent.mail)}}}

    def _is_box(self, owner: str, box: str) -> dict[str, Any]:
        return {
            "ConditionCheck": {
                "Key": key_of(self._entity(owner)),
                "ConditionExpression": "box = :box",
                "ExpressionAttributeValues": {":box": string(box)},
            }
        }

    # -------------------------------------------------------------------------------------------- requests

    def _entity(self, owner: str) -> Key:
        return f"{self._listing}#E#{owner}", "BOX"

    def _listed(self, owner: str) -> Key:
        return self._listing, f"E#{owner}"

    def _partition(self, box: str) -> str:
        return f"{self._listing}#B#{box}"

    def _outbox(self, owner: str, box: str) -> tuple[str, str, str]:
        return self._out, f"{owner}#{box}#", f"{owner}#{box}~"

    async def _box(self, owner: str) -> str | None:
        item = await self._table.get(self._entity(owner), "box")
        return item["box"]["S"] if item and "box" in item else None

    async def _boxes(self, owners: Iterable[str]) -> dict[str, str]:
        """Return the mailboxes of the owners that have one."""
        items = await self._table.get_many(map(self._entity, owners))
        return {item["PK"]["S"].rpartition("#")[2]: item["box"]["S"] for item in items if "box" in item}

    async def _everyone(self) -> dict[str, str]:
        """Return all mailboxes, by owner."""
        listed = await self._items(self._listing, "E#", "E~")
        return {item["SK"]["S"].removeprefix("E#"): item["box"]["S"] for item in listed}

    async def _items(self, partition: str, low: str, high: str) -> list[Item]:
        return [item async for page in self._table.pages(partition, low, high) for item in page]

    async def _take(self, partition: str, low: str, high: str) -> list[str]:
        """Delete items; return the mail of those that this call has deleted."""
        taken: list[str] = []
        for items in batched(await self._items(partition, low, high), PAGE):
            was_there = await _concurrently(self._delete(_key(item)) for item in items)
            taken += _texts([item for item, there in zip(items, was_there, strict=True) if there])
        return taken

    async def _delete(self, key: Key) -> bool:
        """Delete an item; return whether this call has deleted it. A repeated request returns the same."""
        return await self._try([_deletion(key)])

    async def _try(self, actions: list[dict[str, Any]]) -> bool:
        """Run all actions if all conditions are true; return whether they were."""
        try:
            await self._table.transact(actions, uuid4().hex)
        except ConditionFailed:
            return False
        return True


def _deletion(key: Key) -> dict[str, Any]:
    return {"Delete": {"Key": key_of(key), "ConditionExpression": "attribute_exists(PK)"}}


def _inbox(sender: str) -> tuple[str, str]:
    return f"I#{sender}#", f"I#{sender}~"


def _key(item: Item) -> Key:
    return item["PK"]["S"], item["SK"]["S"]


def _texts(items: list[Item]) -> list[str]:
    return [item["mail"]["S"] for item in items if "mail" in item]


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
