"""The requests to the DynamoDB table, with their limits and retries."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import batched
from typing import Any, Literal

from mail.adapters.aws.client import AwsClient, Refused, back_off
from mail.adapters.aws.items import Item, Value, names, string
from mail.errors import StoreUnavailable

KEYS_IN_A_READ = 100
ITEMS_IN_A_WRITE = 25

TRIES = 10
"""The number of attempts of a request that conflicts with concurrent writes."""

CONFLICTS = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})
"""The reasons for which a transaction may be retried."""

FAILED = "ConditionalCheckFailed"

Key = tuple[str, str]

logger = logging.getLogger(__name__)


class ConditionFailed(Exception):
    """A write whose condition was false; nothing was written.

    Attributes:
        item: the first item whose condition failed, None if there was none.
        repeated: whether the request was sent before, so that it may have made its own condition fail.
    """

    def __init__(self, item: Item | None, repeated: bool) -> None:
        super().__init__()
        self.item = item
        self.repeated = repeated


class DynamoDBTable:
    """A table. All requests raise StoreUnavailable if DynamoDB can't be reached or is too busy."""

    def __init__(self, client: AwsClient, name: str) -> None:
        self._client = client
        self.name = name

    async def get(self, key: Key, *attributes: str) -> Item | None:
        """Return an item, or only some of its attributes; None if there is none."""
        fields: dict[str, Any] = {}
        if attributes:
            projection = ", ".join(f"#{name}" for name in attributes)
            fields = {"ProjectionExpression": projection, "ExpressionAttributeNames": names(projection)}
        answer = await self._client.call(
            "get_item", TableName=self.name, Key=key_of(key), ConsistentRead=True, **fields
        )
        item: Item | None = answer.get("Item")
        return item

    async def get_many(self, keys: Iterable[Key]) -> list[Item]:
        """Return the items of these keys that exist, in no order."""
        chunks = batched(dict.fromkeys(keys), KEYS_IN_A_READ)
        found = await asyncio.gather(*map(self._get_chunk, chunks))
        return [item for items in found for item in items]

    def pages(
        self, partition: str, low: str, high: str, *, limit: int | None = None
    ) -> AsyncGenerator[list[Item]]:
        """Yield pages of a partition's items between two sort keys, in order; `limit` is the size of a page."""
        arguments: dict[str, Any] = {
            "KeyConditionExpression": "PK = :partition AND SK BETWEEN :low AND :high",
            "ExpressionAttributeValues": {
                ":partition": string(partition),
                ":low": string(low),
                ":high": string(high),
            },
            "ConsistentRead": True,
        }
        if limit is not None:
            arguments["Limit"] = limit
        return self.query(**arguments)

    def query(self, start: Item | None = None, **arguments: Any) -> AsyncGenerator[list[Item]]:
        """Yield the pages of a query, from the row after `start`."""
        return self._pages("query", start, arguments)

    def scan(self, start: Item | None = None, **arguments: Any) -> AsyncGenerator[list[Item]]:
        """Yield the pages of an index, from the row after `start`, in no order."""
        return self._pages("scan", start, arguments)

    async def _pages(
        self, verb: str, start: Item | None, arguments: dict[str, Any]
    ) -> AsyncGenerator[list[Item]]:
        while True:
            position = {} if start is None else {"ExclusiveStartKey": start}
            answer = await self._client.call(verb, TableName=self.name, **arguments, **position)
            yield answer["Items"]
            start = answer.get("LastEvaluatedKey")
            if start is None:
                return

    async def update(
        self,
        key: Key,
        update: str,
        condition: str,
        values: Item,
        *,
        returning: Literal["ALL_NEW", "ALL_OLD"] = "ALL_NEW",
        **given: str,
    ) -> Item:
        """Change an item and return it, by default as it is then, else as it was; an empty condition is always true.

        Raises ConditionFailed.
        """
        conditional: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
        if values:
            conditional["ExpressionAttributeValues"] = values
        for attempt in range(TRIES):
            try:
                answer = await self._client.call(
                    "update_item",
                    expect=("ConditionalCheckFailedException", "TransactionConflictException"),
                    TableName=self.name,
                    Key=key_of(key),
                    UpdateExpression=update,
                    ExpressionAttributeNames=names(f"{update} {condition}", **given),
                    ReturnValues=returning,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                    **conditional,
                )
            except Refused as refusal:
                if refusal.code == "ConditionalCheckFailedException":
                    raise ConditionFailed(refusal.response.get("Item"), refusal.repeated) from refusal
            else:
                item: Item = answer.get("Attributes", {})
                return item
            await back_off(attempt)
        raise StoreUnavailable

    async def transact(self, actions: Sequence[dict[str, Any]], token: str) -> None:
        """Run all actions or none. Repeated requests with the same token have no effect. Raises ConditionFailed."""
        repeated = False
        for attempt in range(TRIES):
            try:
                await self._client.call(
                    "transact_write_items",
                    expect=("TransactionCanceledException",),
                    TransactItems=[self._of_this_table(action) for action in actions],
                    ClientRequestToken=token,
                )
                return
            except Refused as refusal:
                repeated |= refusal.repeated
                self._check_retry(refusal, repeated)
            await back_off(attempt)
        raise StoreUnavailable

    async def put_many(self, items: Sequence[Item]) -> None:
        """Write items unconditionally, not as one transaction."""
        await self._write_many([{"PutRequest": {"Item": item}} for item in items])

    async def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete the items of these keys."""
        await self._write_many([{"DeleteRequest": {"Key": key_of(key)}} for key in keys])

    async def delete(self, key: Key, condition: str, values: Item) -> bool:
        """Delete an item if the condition is true; return whether it was."""
        given = {"ExpressionAttributeValues": values} if values else {}
        try:
            await self._client.call(
                "delete_item",
                expect=("ConditionalCheckFailedException",),
                TableName=self.name,
                Key=key_of(key),
                ConditionExpression=condition,
                ExpressionAttributeNames=names(condition),
                **given,
            )
        except Refused:
            return False
        return True

    def _check_retry(self, refusal: Refused, repeated: bool) -> None:
        """Return if a cancelled transaction may be retried. Raises ConditionFailed or StoreUnavailable if not."""
        reasons = refusal.response.get("CancellationReasons", [])
        codes = [reason.get("Code", "None") for reason in reasons]
        if FAILED in codes:
            raise ConditionFailed(reasons[codes.index(FAILED)].get("Item"), repeated) from refusal
        if not CONFLICTS.intersection(codes) or {*codes} - CONFLICTS - {"None"}:
            logger.error("DynamoDB refused a transaction: %s", reasons)
            raise StoreUnavailable from refusal

    def _of_this_table(self, action: dict[str, Any]) -> dict[str, Any]:
        ((verb, arguments),) = action.items()
        return {verb: {"TableName": self.name, **arguments}}

    async def _get_chunk(self, keys: Sequence[Key]) -> list[Item]:
        items: list[Item] = []
        wanted: Any = {self.name: {"Keys": [key_of(key) for key in keys], "ConsistentRead": True}}
        for attempt in range(TRIES):
            answer = await self._client.call("batch_get_item", RequestItems=wanted)
            items += answer["Responses"].get(self.name, [])
            wanted = answer.get("UnprocessedKeys")
            if not wanted:
                return items
            await back_off(attempt)
        raise StoreUnavailable

    async def _write_many(self, requests: list[dict[str, Any]]) -> None:
        await asyncio.gather(*map(self._write_chunk, batched(requests, ITEMS_IN_A_WRITE)))

    async def _write_chunk(self, requests: Sequence[dict[str, Any]]) -> None:
        left: Any = {self.name: requests}
        for attempt in range(TRIES):
            answer = await self._client.call("batch_write_item", RequestItems=left)
            left = answer.get("UnprocessedItems")
            if not left:
                return
            await back_off(attempt)
        raise StoreUnavailable


def key_of(key: Key) -> dict[str, Value]:
    """Return a primary key in the form of DynamoDB's API."""
    return {"PK": string(key[0]), "SK": string(key[1])}
