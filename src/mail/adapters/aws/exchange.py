"""The rows of an exchange in a DynamoDB table, beside the tasks in it."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import names, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, key_of
from mail.core.task.documents import PutIf
from mail.core.task.exchange import RowKey, Write
from mail.errors import PayloadTooLarge

MAIL_BYTES = 350_000
"""The size limit of a mail, which is in one item of at most 400 KB."""

_CONDITIONS = {PutIf.ABSENT: "attribute_not_exists(PK)", PutIf.PRESENT: "attribute_exists(PK)"}


class DynamoDBRows:
    """`mail.core.task.exchange.Rows` on the table of a `DynamoDBStore`: an item each."""

    def __init__(self, client: AwsClient, table: str) -> None:
        self._client = client
        self._table = DynamoDBTable(client, table)

    async def open(self) -> None:
        """Check that the table exists. Raises StoreUnavailable."""
        await self._table.get(("X", "-"))

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        items = await self._table.get_many(keys)
        return {(item["PK"]["S"], item["SK"]["S"]): item["text"]["S"] for item in items}

    async def find(
        self, place: str, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, str]]:
        values = {":place": string(place)} | ({":prefix": string(prefix)} if prefix else {})
        arguments: dict[str, Any] = {
            "KeyConditionExpression": "PK = :place" + (" AND begins_with(SK, :prefix)" if prefix else ""),
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
        }
        if limit is not None:
            arguments["Limit"] = limit
        found: list[tuple[str, str]] = []
        start = key_of((place, after)) if after else None
        async with aclosing(self._table.query(start, **arguments)) as pages:
            async for page in pages:
                found += [(item["SK"]["S"], item["text"]["S"]) for item in page]
                if limit is not None and len(found) >= limit:
                    break
        return found[:limit]

    async def write(self, writes: Sequence[Write]) -> bool:
        """Write in one transaction, which has the same result if the request is repeated."""
        for size in (size_in_bytes(each.text or "") for each in writes):
            if size > MAIL_BYTES:
                raise PayloadTooLarge(
                    f"a mail can have at most {MAIL_BYTES} bytes as JSON; this one has {size}"
                )
        try:
            await self._table.transact(list(map(_action, writes)), uuid4().hex)
        except ConditionFailed:
            return False
        return True

    async def close(self) -> None:
        self._client.close()


def _action(write: Write) -> dict[str, Any]:
    key, conditional = key_of(write.key), {}
    if isinstance(write.when, str):
        conditional = {
            "ConditionExpression": "#text = :before",
            "ExpressionAttributeNames": names("#text"),
            "ExpressionAttributeValues": {":before": string(write.when)},
        }
    elif write.when in _CONDITIONS:
        conditional = {"ConditionExpression": _CONDITIONS[write.when]}
    if write.text is None:
        return {"Delete": {"Key": key, **conditional}}
    return {"Put": {"Item": {**key, "text": string(write.text)}, **conditional}}
