"""Tokens and settings in the table, in partitions of their own."""

from mail.aws import AwsClient
from mail.core.ports import TemplateRecord, TokenRecord
from mail.errors import PayloadTooLarge
from mail.stores.dynamodb_items import size_in_bytes, string
from mail.stores.dynamodb_table import DynamoDBTable, key_of

HEALTH = ("SERVER", "HEALTH")
HAS_TOKENS = ("SERVER", "HAS_TOKENS")
TEMPLATE = ("SERVER", "TEMPLATE")

TEMPLATE_BYTES = 350_000
"""How large a loaded swarm may be: it is one item, which may have 400 KB."""


class DynamoDBRecords:
    """`mail.core.ports.ServerRecords` on the table of a `DynamoDBStore`."""

    def __init__(self, client: AwsClient, table: str) -> None:
        self._table = DynamoDBTable(client, table)

    async def add_token(self, record: TokenRecord) -> None:
        fields = {name: string(getattr(record, name)) for name in ("role", "id", "created")}
        await self._table.put_many([key_of(HAS_TOKENS), {**key_of(_place(record.digest)), **fields}])

    async def find_token(self, digest: str) -> TokenRecord | None:
        item = await self._table.get(_place(digest))
        if item is None:
            return None
        role, id_, created = (item[name]["S"] for name in ("role", "id", "created"))
        return TokenRecord(digest=digest, role=role, id=id_, created=created)

    async def has_tokens(self) -> bool:
        return await self._table.get(HAS_TOKENS) is not None

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


def _place(digest: str) -> tuple[str, str]:
    return f"TOKEN#{digest}", "TOKEN"
