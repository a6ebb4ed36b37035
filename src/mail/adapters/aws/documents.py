"""Documents in the table, in partitions of their own: an item each, but one for all webhooks of a caller."""

from collections.abc import Mapping
from hashlib import sha256

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import HOLDS, Item, number, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key
from mail.core.task.documents import Document, Kind, PutIf
from mail.errors import PayloadTooLarge

_SERVER = "SERVER"
_SINGLE = {Kind.HAD_TOKENS: "HAS_TOKENS", Kind.HEALTH: "HEALTH", Kind.LOADED_SWARM: "TEMPLATE"}
"""The sort keys of the kinds of which there is one document."""

TOKENS = "TOKENS"
"""The partition that lists tokens by digest. A request reads its token from a partition of the token's own."""

PEERS = "PEER"
"""The partition of peers, by name."""

FOUND_PEERS = "FOUND_PEER"
"""The same of those that agents have discovered: turns may write nothing else about other swarms."""

WEBHOOKS = "WEBHOOKS"
"""The sort key of a caller's webhooks, and the partition that lists these callers."""

AUDIT = "AUDIT"
"""The partition of the audit. Functions of HTTP may write to it, and turns may not."""

_LISTED = {
    Kind.TOKEN: TOKENS,
    Kind.PEER: PEERS,
    Kind.FOUND_PEER: FOUND_PEERS,
    Kind.AUDIT: AUDIT,
    Kind.HOLD: HOLDS,
    Kind.SWARM_DRAFT: "DRAFT",
    Kind.CALLER_DELETION: "CALLER_DELETION",
}
"""The partitions whose sort keys are the keys of documents."""

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
        if kind is Kind.WEBHOOK:
            caller, webhook = document.key
            return await self._put_in_map(caller, webhook, document.fields["record"], limit)
        keys = [document_key(kind, document.key)]
        if kind is Kind.TOKEN:  # listed first: a token that can be used can be removed
            keys.insert(0, (TOKENS, document.key[0]))
        try:
            for key in keys:
                await self._update(key, document, condition, now, where or {})
        except ConditionFailed:
            return False
        return True

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        if not all(key):
            return False
        if kind is Kind.WEBHOOK:
            return await self._delete_from_map(*key)
        where = where or {}
        condition = " AND ".join((ITEM_EXISTS, *(f"#{name} = :{name}" for name in where)))
        values = {f":{name}": string(value) for name, value in where.items()}
        was_there = await self._table.delete(document_key(kind, key), condition, values)
        if kind is Kind.TOKEN:  # last: a token that is listed can be removed again, should this break off
            await self._table.delete_many([(TOKENS, key[0])])
        return was_there

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        if kind is Kind.WEBHOOK:
            if partition:
                return _webhooks_in(await self._table.get(_webhooks_of(*partition)))
            callers = [item["SK"]["S"] for item in await self._list(WEBHOOKS)]
            items = await self._table.get_many(map(_webhooks_of, callers))
            return [document for item in items for document in _webhooks_in(item)]
        if kind is Kind.IDEMPOTENCY_KEY:
            (caller,) = partition
            keys = await self._list(f"ONCE#{caller}")
            return [_document((caller, item["SK"]["S"].removeprefix("KEY#")), item) for item in keys]
        return [_document((item["SK"]["S"],), item) for item in await self._list(_LISTED[kind])]

    async def page(self, kind: Kind, *, limit: int, before: str = "") -> list[Document]:
        condition, values = "PK = :partition", {":partition": string(_LISTED[kind])}
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

    async def _put_in_map(self, caller: str, webhook: str, record: str, limit: int | None) -> bool:
        key, values = _webhooks_of(caller), {":record": string(record)}
        await self._table.update((WEBHOOKS, caller), "REMOVE #expires_at", "", {})
        await self._table.update(
            key, "SET #webhooks = if_not_exists(#webhooks, :none)", "", {":none": {"M": {}}}
        )
        condition = ""
        if limit is not None:
            condition = "attribute_exists(#webhooks.#webhook) OR size(#webhooks) < :limit"
            values[":limit"] = number(limit)
        try:
            await self._table.update(
                key, "SET #webhooks.#webhook = :record", condition, values, webhook=webhook
            )
        except ConditionFailed:
            return False
        return True

    async def _delete_from_map(self, caller: str, webhook: str) -> bool:
        condition = "attribute_exists(#webhooks.#webhook)"
        try:
            await self._table.update(
                _webhooks_of(caller), "REMOVE #webhooks.#webhook", condition, {}, webhook=webhook
            )
        except ConditionFailed:
            return False
        return True


def document_key(kind: Kind, key: tuple[str, ...]) -> Key:
    """Return the key of a document's item."""
    match kind, key:
        case Kind.TOKEN, (digest,):
            return f"TOKEN#{digest}", "TOKEN"
        case Kind.SIGN_IN_LINK, (digest,):
            return f"SIGN_IN#{digest}", "LINK"
        case Kind.PEER | Kind.FOUND_PEER | Kind.AUDIT | Kind.SWARM_DRAFT, (name,):
            return _LISTED[kind], name
        case Kind.HOLD | Kind.CALLER_DELETION, (name,):  # which may be too long for a sort key
            return _LISTED[kind], sha256(name.encode()).hexdigest()
        case Kind.DELETED_TASK, (name,):
            return f"DELETED#{name}", "DELETED"
        case Kind.PERMITS, (name,):
            return f"PERMITS#{name}", "PERMITS"
        case Kind.SWARM_VERSION, (digest,):
            return f"VERSION#{digest}", "VERSION"
        case Kind.CALLER_TOKEN, (caller,):
            return f"CREDENTIAL#{caller}", "TOKEN"
        case Kind.ISSUER_KEYS, ():
            return "ISSUER", "KEYS"
        case Kind.IDEMPOTENCY_KEY, (caller, name):
            return f"ONCE#{caller}", f"KEY#{name}"
        case _:
            return _SERVER, _SINGLE[kind]


def _webhooks_of(caller: str) -> Key:
    """Return the key of a caller's webhooks: one item, so that beginning a task reads only one."""
    return f"WEBHOOKS#{caller}", WEBHOOKS


def _webhooks_in(item: Item | None) -> list[Document]:
    """Return the webhooks of a caller's item."""
    if item is None:
        return []
    caller = item["PK"]["S"].partition("#")[2]
    return [
        Document((caller, name), {"record": text["S"]})
        for name, text in item.get("webhooks", {"M": {}})["M"].items()
    ]


def _document(key: tuple[str, ...], item: Item) -> Document:
    fields = {name: value["S"] for name, value in item.items() if name not in ("PK", "SK") and "S" in value}
    expires = item.get("expires_at")
    return Document(key, fields, None if expires is None else float(expires["N"]))
