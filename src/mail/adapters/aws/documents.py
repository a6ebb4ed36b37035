"""Tokens, settings and other swarms in the table, in partitions of their own."""

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import Item, number, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, key_of
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.ports import KeyRecord, TemplateRecord, TokenRecord
from mail.core.task.webhooks import WebhookRecord, in_order
from mail.errors import PayloadTooLarge

HEALTH = ("SERVER", "HEALTH")
HAS_TOKENS = ("SERVER", "HAS_TOKENS")
TEMPLATE = ("SERVER", "TEMPLATE")

TOKENS = "TOKENS"
"""The partition that lists tokens by their digests. Requests find theirs in a partition of its own."""

PEERS = "PEER"
"""The partition of other swarms: their sort key is their name, and their health an attribute of its own."""

TEMPLATE_BYTES = 350_000
"""How large a loaded swarm may be: it is one item, which may have 400 KB."""


class DynamoDBRecords:
    """`mail.core.task.ports.ServerRecords` on the table of a `DynamoDBStore`."""

    def __init__(self, client: AwsClient, table: str) -> None:
        self._table = DynamoDBTable(client, table)

    async def claim_key(self, caller: str, key: str, record: KeyRecord, *, now: float) -> KeyRecord:
        """DynamoDB deletes it some time after it has expired."""
        values = {
            ":digest": string(record.digest),
            ":task_id": string(record.task_id),
            ":expires_at": number(int(record.until)),
            ":now": number(int(now)),
        }
        update = "SET #digest = :digest, #task_id = :task_id, #expires_at = :expires_at"
        try:
            await self._table.update(
                _once(caller, key), update, "attribute_not_exists(#PK) OR #expires_at <= :now", values
            )
        except ConditionFailed as failed:
            item = failed.item or {}  # there is one, as the condition holds where there is none
            return KeyRecord(item["digest"]["S"], item["task_id"]["S"], float(item["expires_at"]["N"]))
        return record

    async def forget_key(self, caller: str, key: str, task_id: str) -> None:
        await self._table.delete(_once(caller, key), "#task_id = :task_id", {":task_id": string(task_id)})

    async def add_token(self, record: TokenRecord) -> None:
        fields = {name: string(getattr(record, name)) for name in ("role", "id", "created")}
        places = (_place(record.digest), _entry(record.digest))
        await self._table.put_many([key_of(HAS_TOKENS), *({**key_of(place), **fields} for place in places)])

    async def find_token(self, digest: str) -> TokenRecord | None:
        item = await self._table.get(_place(digest))
        return None if item is None else _token(digest, item)

    async def has_tokens(self) -> bool:
        return await self._table.get(HAS_TOKENS) is not None

    async def tokens(self) -> list[TokenRecord]:
        records = [_token(item["SK"]["S"], item) for item in await self._partition(TOKENS)]
        return sorted(records, key=lambda record: (record.created, record.digest))

    async def remove_token(self, digest: str) -> bool:
        """The listing goes last: what can be listed can be removed again, should this break off."""
        was_there = await self._table.delete(_place(digest), "attribute_exists(#PK)", {})
        if digest:
            await self._table.delete_many([_entry(digest)])
        return was_there

    async def health(self) -> str | None:
        item = await self._table.get(HEALTH)
        return None if item is None else item["status"]["S"]

    async def set_health(self, status: str) -> None:
        await self._table.put({**key_of(HEALTH), "status": string(status)})

    async def template(self) -> TemplateRecord | None:
        item = await self._table.get(TEMPLATE)
        if item is None:
            return None
        return TemplateRecord(*(item[name]["S"] for name in ("text", "loaded", "replaces")))

    async def set_template(self, record: TemplateRecord) -> None:
        """Raises PayloadTooLarge."""
        size = size_in_bytes(record.text)
        if size > TEMPLATE_BYTES:
            raise PayloadTooLarge(f"a swarm may have {TEMPLATE_BYTES} bytes, and this one has {size}")
        fields = {name: string(getattr(record, name)) for name in ("text", "loaded", "replaces")}
        await self._table.put({**key_of(TEMPLATE), **fields})

    async def peers(self) -> list[PeerRecord]:
        return [PeerRecord.model_validate_json(item["record"]["S"]) for item in await self._partition(PEERS)]

    async def peer(self, name: str) -> PeerRecord | None:
        item = await self._table.get((PEERS, name), "record") if name else None
        return None if item is None else PeerRecord.model_validate_json(item["record"]["S"])

    async def set_peer(self, record: PeerRecord) -> None:
        """DynamoDB deletes it some time after it has expired."""
        values = {":record": string(record.model_dump_json())}
        if record.expires is None:
            update = "SET #record = :record REMOVE #expires_at"
        else:
            update = "SET #record = :record, #expires_at = :expires_at"
            values[":expires_at"] = number(int(record.expires))
        await self._table.update((PEERS, record.name), update, "", values)

    async def delete_peer(self, name: str) -> bool:
        return bool(name) and await self._table.delete((PEERS, name), "attribute_exists(#PK)", {})

    async def peers_health(self) -> dict[str, PeerHealth]:
        return {
            item["SK"]["S"]: PeerHealth.model_validate_json(item["health"]["S"])
            for item in await self._partition(PEERS)
            if "health" in item
        }

    async def set_peer_health(self, name: str, health: PeerHealth) -> None:
        values = {":health": string(health.model_dump_json())}
        try:
            await self._table.update((PEERS, name), "SET #health = :health", "attribute_exists(#PK)", values)
        except ConditionFailed:
            return

    async def webhooks(self, caller: str) -> list[WebhookRecord]:
        item = await self._table.get(_webhooks_of(caller), "webhooks")
        if item is None:
            return []
        kept = item["webhooks"]["M"].values()
        return in_order(WebhookRecord.model_validate_json(record["S"]) for record in kept)

    async def set_webhook(self, caller: str, record: WebhookRecord, *, limit: int) -> bool:
        place, values = _webhooks_of(caller), {":record": string(record.model_dump_json())}
        await self._table.update(
            place, "SET #webhooks = if_not_exists(#webhooks, :none)", "", {":none": {"M": {}}}
        )
        try:
            await self._table.update(
                place,
                "SET #webhooks.#webhook = :record",
                "attribute_exists(#webhooks.#webhook) OR size(#webhooks) < :limit",
                values | {":limit": number(limit)},
                webhook=record.id,
            )
        except ConditionFailed:
            return False
        return True

    async def delete_webhook(self, caller: str, webhook_id: str) -> bool:
        place, update = _webhooks_of(caller), "REMOVE #webhooks.#webhook"
        condition = "attribute_exists(#webhooks.#webhook) AND size(#webhooks) >= :one"
        try:
            await self._table.update(place, update, condition, {":one": number(1)}, webhook=webhook_id)
        except ConditionFailed:
            return False
        return True

    async def _partition(self, name: str) -> list[Item]:
        pages = self._table.query(
            KeyConditionExpression="PK = :partition",
            ExpressionAttributeValues={":partition": string(name)},
            ConsistentRead=True,
        )
        return [item async for page in pages for item in page]


def _once(caller: str, key: str) -> tuple[str, str]:
    """Where an idempotency key is."""
    return f"ONCE#{caller}", f"KEY#{key}"


def _place(digest: str) -> tuple[str, str]:
    return f"TOKEN#{digest}", "TOKEN"


def _entry(digest: str) -> tuple[str, str]:
    return TOKENS, digest


def _webhooks_of(caller: str) -> tuple[str, str]:
    """A caller's webhooks are one item, so that whoever begins a task reads no more than that."""
    return f"WEBHOOKS#{caller}", "WEBHOOKS"


def _token(digest: str, item: Item) -> TokenRecord:
    role, id_, created = (item[name]["S"] for name in ("role", "id", "created"))
    return TokenRecord(digest=digest, role=role, id=id_, created=created)
