"""Rows of text in a DynamoDB table, beside the tasks in it.

PLACE          name        the row
PLACE#entered  time#name   where it stands among those of its place, if it has times; PLACE#sent in the same way
PLACE#total    total       the number of these rows, and how many have ever come
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, get_args
from uuid import uuid4

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import Item, names, number, size_in_bytes, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key, key_of
from mail.adapters.aws.waits import polls
from mail.adapters.shared.waiters import Watches
from mail.core.task.documents import PutIf
from mail.core.task.rows import (
    Order,
    Page,
    RowKey,
    Wait,
    Write,
    changes_of_totals,
    places_of_new,
    total_row,
)
from mail.errors import PayloadTooLarge

ROW_BYTES = 350_000
"""The size limit of a row, which is in one item of at most 400 KB."""

ORDERS: tuple[Order, ...] = get_args(Order)

TOTAL, CAME = "total", "came"

_CONDITIONS = {PutIf.ABSENT: "attribute_not_exists(PK)", PutIf.PRESENT: "attribute_exists(PK)"}


class DynamoDBRows:
    """`mail.core.task.rows.Rows` on the table of a `DynamoDBStore`."""

    write_limit = 18
    """A transaction has at most 100 items, and a row with times takes four."""

    def __init__(self, client: AwsClient, table: str) -> None:
        self._client = client
        self._table = DynamoDBTable(client, table)
        self._watches = Watches()

    async def open(self) -> None:
        """Check that the table exists. Raises StoreUnavailable."""
        await self._table.get(("X", "-"))

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        return {key: item["text"]["S"] async for key, item in self._items(*keys)}

    async def _items(self, *keys: RowKey) -> AsyncIterator[tuple[Key, Item]]:
        for item in await self._table.get_many(keys):
            yield (item["PK"]["S"], item["SK"]["S"]), item

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

    async def page(
        self,
        place: str,
        *,
        by: Order = "entered",
        newest_first: bool = False,
        since: str = "",
        limit: int,
        offset: int = 0,
    ) -> Page:
        values = {":place": string(f"{place}#{by}")} | ({":since": string(since)} if since else {})
        order: dict[str, Any] = {
            "KeyConditionExpression": "PK = :place" + (" AND SK >= :since" if since else ""),
            "ExpressionAttributeValues": values,
            "ConsistentRead": True,
            "ScanIndexForward": not newest_first,
        }
        before = await self._first(offset, None, order)
        start = key_of(before[-1]) if before else None
        found = [] if len(before) < offset else await self._first(limit, start, order)
        keys = [(place, position.partition("#")[2]) for _, position in found]
        items = {key: item async for key, item in self._items(*keys, total_row(place))}
        total = items.get(total_row(place), {TOTAL: number(0)})[TOTAL]
        rows = [(key[1], items[key]["text"]["S"]) for key in keys if key in items]
        return Page(rows, int(total["N"]))

    async def totals(self, *of: str) -> dict[str, int]:
        found = {key: int(item[TOTAL]["N"]) async for key, item in self._items(*map(total_row, of))}
        return {place: found.get(total_row(place), 0) for place in of}

    async def _first(self, count: int, start: Any, order: dict[str, Any]) -> list[Key]:
        """Return the keys of the first items of a query."""
        found: list[Key] = []
        if count:
            async with aclosing(self._table.query(start, Limit=count, **order)) as pages:
                async for page in pages:
                    found += [(item["PK"]["S"], item["SK"]["S"]) for item in page]
                    if len(found) >= count:
                        break
        return found[:count]

    async def write(self, writes: Sequence[Write]) -> bool:
        """Write in one transaction, which has the same result if the request is repeated."""
        for size in (size_in_bytes(each.text or "") for each in writes):
            if size > ROW_BYTES:
                raise PayloadTooLarge(
                    f"a mail can have at most {ROW_BYTES} bytes as JSON; this one has {size}"
                )
        actions = [_action(each) for each in writes] + list(_actions_for_pages(writes))
        try:
            await self._table.transact(actions, uuid4().hex)
        except ConditionFailed:
            return False
        self._watches.notify(places_of_new(writes))
        return True

    @contextmanager
    def watched(self, place: str) -> Iterator[Wait]:
        """Poll as the waiters for tasks do; what this process writes is seen at once."""
        came: Item | None = None

        async def wait(seconds: float) -> None:
            nonlocal came
            async for _ in polls(wait_here, seconds):
                now = await self._table.get(total_row(place), CAME)
                if now != came:
                    came = now
                    return

        with self._watches.watched(place) as wait_here:
            yield wait

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


def _actions_for_pages(writes: Sequence[Write]) -> Iterator[dict[str, Any]]:
    """Yield what the rows with times change besides themselves; the text of such a row changes nothing."""
    for write in writes:
        times, (place, name) = write.times, write.key
        if times is None or (write.text is not None and write.when is not PutIf.ABSENT):
            continue
        verb = "Delete" if write.text is None else "Put"
        for order in ORDERS:
            key = key_of((f"{place}#{order}", f"{getattr(times, order)}#{name}"))
            yield {verb: {"Key": key} if write.text is None else {"Item": key}}
    new = places_of_new(writes)
    for place, change in changes_of_totals(writes).items():
        update = {
            "Key": key_of(total_row(place)),
            "UpdateExpression": "ADD #total :change, #came :new",
            "ExpressionAttributeNames": names("#total #came"),
            "ExpressionAttributeValues": {":change": number(change), ":new": number(new.get(place, 0))},
        }
        yield {"Update": update}
