"""Tokens and settings in the table, in partitions of their own."""

from mail.aws import AwsClient
from mail.core.ports import TokenRecord
from mail.stores.dynamodb_items import string
from mail.stores.dynamodb_table import DynamoDBTable, key_of

HEALTH = ("SERVER", "HEALTH")
HAS_TOKENS = ("SERVER", "HAS_TOKENS")


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


def _place(digest: str) -> tuple[str, str]:
    return f"TOKEN#{digest}", "TOKEN"
