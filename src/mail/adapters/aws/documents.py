"""Documents in the table, in partitions of their own."""

from collections.abc import Mapping
from hashlib import sha256

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import HOLDS, Item, number, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key
from mail.core.task.documents import Document, Kind, PutIf
from mail.errors import PayloadTooLarge

_SINGLE = {
    Kind.HAD_TOKENS: ("SERVER", "HAS_TOKENS"),
    Kind.HEALTH: ("SERVER", "HEALTH"),
    Kind.LOADED_SWARM: ("SERVER", "TEMPLATE"),
    Kind.ISSUER_KEYS: ("ISSUER", "KEYS"),
}
"""The keys of the kinds of which there is one document."""

_APART = {
    Kind.TOKEN: "TOKEN",
    Kind.SIGN_IN_LINK: "SIGN_IN",
    Kind.DELETED_TASK: "DELETED",
    Kind.PERMITS: "PERMITS",
    Kind.SWARM_VERSION: "VERSION",
    Kind.CALLER_TOKEN: "CREDENTIAL",
    Kind.IDEMPOTENCY_KEY: "ONCE",
    Kind.WEBHOOK: "WEBHOOKS",
}
"""The kinds that have a partition for each first part of a key: this name and it."""

_TOGETHER = {
    Kind.PEER: "PEER",
    Kind.FOUND_PEER: "FOUND_PEER",
    Kind.AUDIT: "AUDIT",
    Kind.HOLD: HOLDS,
    Kind.SWARM_DRAFT: "DRAFT",
    Kind.CALLER_DELETION: "CALLER_DELETION",
}
"""The partitions of kinds with one for all their documents. What a function may do depends on the partition: turns
write to FOUND_PEER only, and only functions of HTTP to AUDIT."""

_LISTS = {Kind.TOKEN: "TOKENS", Kind.WEBHOOK: "WEBHOOKS"}
"""The partitions with copies of documents that are apart, so that they can be listed."""

_LONG = (Kind.HOLD, Kind.CALLER_DELETION)
"""The kinds whose keys may be too long for a sort key."""

DOCUMENT_BYTES = 350_000
"""The size limit for the fields of a document: an item may have 400 KB."""

ITEM_EXISTS = "attribute_exists(#PK)"


class DynamoDBDocuments:
    """`mail.core.task.ports.Documents` on the table of a `DynamoDBStore`. DynamoDB deletes expired documents."""

    def __init__(self, client: AwsClient, table: str) -> None:
        self._table = DynamoDBTable(client, table)

    async def get(self, kind: Kind, *key: str) -> Document | None:
        if not all(key):  # DynamoDB refuses empty keys
            return None
        item = await self._table.get(document_key(kind, key))
        return None if item is None else _document(key, item)

    async def put(
        self,
        kind: Kind,
        document: Document,
        *,
        condition: PutIf = PutIf.ALWAYS,
        now: float = 0.0,
        limit: int | None = None,
        where: Mapping[str, str] | None = None,
    ) -> bool:
        """Store a document. Raises PayloadTooLarge."""
        size = sum(map(size_in_bytes, document.fields.values()))
        if size > DOCUMENT_BYTES:
            raise PayloadTooLarge(f"a {kind} can have at most {DOCUMENT_BYTES} bytes; this one has {size}")
        if limit is not None:
            beside = await self.find(kind, *document.key[:-1])
            if sum(each.key != document.key for each in beside) >= limit:
                return False
        keys = [document_key(kind, document.key)]
        if kind in _LISTS:  # listed first: what can be used can be removed
            keys.insert(0, _key_in_list(kind, document.key))
        try:
            for key in keys:
                await self._update(key, document, condition, now, where or {})
        except ConditionFailed:
            return False
        return True

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        if not all(key):
            return False
        where = where or {}
        condition = " AND ".join((ITEM_EXISTS, *(f"#{name} = :{name}" for name in where)))
        values = {f":{name}": string(value) for name, value in where.items()}
        was_there = await self._table.delete(document_key(kind, key), condition, values)
        if kind in _LISTS:  # last: what is listed can be removed again, should this break off
            await self._table.delete_many([_key_in_list(kind, key)])
        return was_there

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        if partition:
            (first,) = partition
            return [
                _document((first, item["SK"]["S"]), item)
                for item in await self._list(f"{_APART[kind]}#{first}")
            ]
        if kind in _TOGETHER:
            return [_document((item["SK"]["S"],), item) for item in await self._list(_TOGETHER[kind])]
        return [
            _document(tuple(item["SK"]["S"].rsplit("#", 1)), item) for item in await self._list(_LISTS[kind])
        ]

    async def page(self, kind: Kind, *, limit: int, before: str = "") -> list[Document]:
        condition, values = "PK = :partition", {":partition": string(_TOGETHER[kind])}
        if before:
            condition, values[":before"] = f"{condition} AND SK < :before", string(before)
        found: list[Item] = []
        async for items in self._table.query(
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ConsistentRead=True,
            ScanIndexForward=False,
            Limit=limit,
        ):
            found += items
            if len(found) >= limit:
                break
        return [_document((item["SK"]["S"],), item) for item in found[:limit]]

    async def _list(self, partition: str) -> list[Item]:
        pages = self._table.query(
            KeyConditionExpression="PK = :partition",
            ExpressionAttributeValues={":partition": string(partition)},
            ConsistentRead=True,
        )
        return [item async for page in pages for item in page]

    async def _update(
        self, key: Key, document: Document, condition: PutIf, now: float, where: Mapping[str, str]
    ) -> None:
        values = {f":{name}": string(text) for name, text in document.fields.items()}
        values |= {f":was_{name}": string(text) for name, text in where.items()}
        changes = [f"#{name} = :{name}" for name in document.fields]
        update = ""
        if document.expires is not None:
            values[":expires_at"] = number(int(document.expires))
            changes.append("#expires_at = :expires_at")
        elif condition is not PutIf.PRESENT:
            update = "REMOVE #expires_at"
        if changes:
            update = f"SET {', '.join(changes)} {update}"
        asked = {PutIf.ALWAYS: "", PutIf.PRESENT: ITEM_EXISTS}.get(condition)
        if asked is None:
            asked = "attribute_not_exists(#PK) OR #expires_at <= :now"
            values[":now"] = number(int(now))
        asked = " AND ".join((asked, *(f"#{name} = :was_{name}" for name in where)))
        await self._table.update(key, update, asked, values)


def document_key(kind: Kind, key: tuple[str, ...]) -> Key:
    """Return the key of a document's item."""
    if kind in _SINGLE:
        return _SINGLE[kind]
    first, *rest = key
    if kind in _APART:
        return f"{_APART[kind]}#{first}", rest[0] if rest else "-"
    return _TOGETHER[kind], sha256(first.encode()).hexdigest() if kind in _LONG else first


def _key_in_list(kind: Kind, key: tuple[str, ...]) -> Key:
    """Return the key of the copy of a document."""
    return _LISTS[kind], "#".join(key)


def _document(key: tuple[str, ...], item: Item) -> Document:
    fields = {name: value["S"] for name, value in item.items() if name not in ("PK", "SK") and "S" in value}
    expires = item.get("expires_at")
    return Document(key, fields, None if expires is None else float(expires["N"]))
