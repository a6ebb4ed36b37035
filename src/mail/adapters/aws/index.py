"""Lists tasks by the table's indexes. An index may lag behind, so its rows are checked against the tasks."""

import asyncio
import binascii
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from hashlib import sha256
from itertools import chain
from math import inf
from typing import Any

from mail.adapters.aws.items import (
    DEAD,
    DELETING,
    HOLDS,
    META,
    PAUSED,
    SHARDS,
    Item,
    ask_key,
    dead_key,
    dead_start,
    decode_leases,
    decode_task,
    item_size,
    listing_key,
    names,
    number,
    partition,
    string,
    task_key,
)
from mail.adapters.aws.reader import TaskReader
from mail.adapters.aws.schema import DEAD_INDEX, RUNNING_INDEX, TASKS_INDEX
from mail.adapters.aws.table import KEYS_IN_A_READ, DynamoDBTable, key_of
from mail.adapters.shared.cursors import foreign_cursor
from mail.core.task.approvals import Ask
from mail.core.task.deletion import LegalHold
from mail.core.task.leases import DueTask
from mail.core.task.ports import PAGE_BYTES, CallerUsage, TaskPage, WakeUp, wake_ups
from mail.core.task.search import Search, Searched, fold
from mail.core.task.size import text_size
from mail.core.task.task import ASLEEP, Task, TaskKey, TaskStatus, listings_of
from mail.errors import MAILError

CHECKSUM_LENGTH = 16

logger = logging.getLogger(__name__)

ROWS_OF_ANY_STATUS = 500
"""The number of index rows that are read at a time in search of one status."""


TASKS_AT_FIRST = 25
"""The number of tasks that are read at a time before it is known what they weigh."""

SEARCHED_AT_ONCE = 500
"""The tasks whose titles and ids one search looks at; its cursor leads to the next ones."""

DUE_ROWS = 500
"""The most tasks of a partition of the index that a sweep looks after. Those that it leaves out are due later."""


class TaskIndex:
    """Finds tasks. All methods raise StoreUnavailable."""

    def __init__(self, table: DynamoDBTable, reader: TaskReader) -> None:
        self._table = table
        self._reader = reader

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of an instance's tasks, newest first; of all tasks, in no order, for None.

        Raises BadRequest for a cursor that is not this instance's.
        """
        start = None if cursor is None else _read_cursor(instance, cursor)
        tasks: list[Task] = []
        cursors: list[str] = []
        is_ordered, size = instance is not None, 0
        async with aclosing(self._newest(instance, status, start, limit + 1)) as newest:
            async for task, weight in newest:
                if len(tasks) == limit or size >= PAGE_BYTES:
                    return TaskPage(tasks, cursors[-1], is_ordered, tuple(cursors))
                size += weight
                tasks.append(task)
                cursors.append(_make_cursor(instance, task))
        return TaskPage(tasks, None, is_ordered, tuple(cursors))

    async def search(
        self, instance: str, search: Search, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of tasks with the words in title or id, newest first, of the next SEARCHED_AT_ONCE."""
        start = None if cursor is None else _read_cursor(instance, cursor)
        tasks: list[Task] = []
        cursors: list[str] = []
        last, looked_at, size = "", 0, 0
        at_most = limit + 1 if search == Search() else SEARCHED_AT_ONCE  # as it admits any task
        async with aclosing(self._newest(instance, search.status, start, at_most)) as newest:
            async for task, weight in newest:
                if looked_at == SEARCHED_AT_ONCE or len(tasks) == limit or size >= PAGE_BYTES:
                    return TaskPage(tasks, last, cursors=tuple(cursors), searched=Searched.TITLES)
                looked_at, last = looked_at + 1, _make_cursor(instance, task)
                head = fold(f"{task.task_id}\n{task.title or ''}")
                if search.admits(task) and all(word in head for word in search.words):
                    tasks.append(task)
                    cursors.append(last)
                    size += weight
        return TaskPage(tasks, None, cursors=tuple(cursors), searched=Searched.TITLES)

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of tasks with dead letters, of one instance or all. Raises BadRequest for a foreign cursor."""
        start = None if cursor is None else _read_dead_cursor(cursor)
        condition, values = "#dead = :dead", {":dead": string(DEAD)}
        if instance is not None:
            condition += " AND begins_with(#dead_place, :start)"
            values[":start"] = string(dead_start(instance))
        pages = self._table.query(
            start,
            IndexName=DEAD_INDEX,
            ScanIndexForward=False,
            Limit=limit + 1,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names(condition),
            ExpressionAttributeValues=values,
        )
        tasks: list[Task] = []
        size = 0
        found = self._in_portions(
            pages, limit + 1, lambda row, item: item.get("dead_place") == row["dead_place"]
        )
        async with aclosing(found):
            async for task, weight in found:
                if len(tasks) == limit or size >= PAGE_BYTES:
                    return TaskPage(tasks, _make_dead_cursor(tasks[-1]))
                size += weight
                tasks.append(task)
        return TaskPage(tasks, None)

    async def find_asks(self, who: str, *, start: str = "", limit: int) -> list[tuple[str, TaskKey]]:
        """Return what waits for a decision of somebody, oldest first, from the id `start` on."""
        name, _ = ask_key(Ask(who, ""))
        pages = self._table.pages(name, start or "0", "~", limit=limit)
        async with aclosing(pages):
            async for page in pages:
                return [(item["SK"]["S"], task_key(item["task"]["S"])) for item in page]
        return []

    async def list_ready(self, *, quiet_since: str | None = None, now: float = inf) -> list[WakeUp]:
        """Return a wake-up for every ready mailbox, without a lease, of the tasks that have not changed since then."""
        tasks = await self._running()
        return [
            wake_up
            for task, item in tasks
            if quiet_since is None or task.updated < quiet_since
            for wake_up in wake_ups(task)
            if not DueTask(task, decode_leases(item)).is_leased(wake_up.mailbox, now)
        ]

    async def due(self, until: float) -> tuple[list[tuple[Task, Item]], list[str]]:
        """Return the tasks to look after until then, with their items, and the partitions of those partly deleted."""
        found = await self._running_partitions(until)
        items = await self._table.get_many((name, META) for name in found)
        tasks = await self._read(item for item in items if not self._reader.is_gone(item))
        due = [(task, item) for task, item in tasks if float(item["due"]["N"]) <= until]
        return due, [item["PK"]["S"] for item in items if DELETING in item]

    async def held(self) -> AsyncGenerator[list[tuple[Task, Item]]]:
        """Yield the tasks that are on hold, with their items, in portions."""
        async for page in self._table.pages(HOLDS, "0", "g"):
            for item in page:
                hold = LegalHold.model_validate_json(item["record"]["S"], extra="ignore")
                if hold.task_id is not None:
                    yield await self._with_items([partition(TaskKey(hold.caller, hold.task_id))])
                    continue
                async for rows in self._rows(hold.caller, None, None, DUE_ROWS):
                    yield await self._with_items([row["PK"]["S"] for row in rows])

    async def _with_items(self, partitions: list[str]) -> list[tuple[Task, Item]]:
        items = (await self._current(partitions)).values()
        return [(await self._reader.task(item), item) for item in items]

    async def list_oldest(self, *, limit: int, cursor: str | None = None) -> TaskPage:
        """Return none: no index has all tasks in order, and what nobody needs here expires."""
        return TaskPage([], None, is_ordered=False)

    async def usage_of(self, instance: str) -> CallerUsage:
        """Return what an instance's tasks took up when they last began or stopped, by the index."""
        condition, values = "#instance = :instance", {":instance": string(instance)}
        pages = self._table.query(
            IndexName=TASKS_INDEX,
            KeyConditionExpression=condition,
            ProjectionExpression="#bytes, #status",
            ExpressionAttributeNames=names(f"{condition} #bytes #status"),
            ExpressionAttributeValues=values,
        )
        stored = asleep = 0
        async for page in pages:
            for row in page:
                stored += int(row["bytes"]["N"]) if "bytes" in row else 0
                asleep += row["status"]["S"] == ASLEEP
        return CallerUsage(stored, asleep)

    async def count_running(self, instance: str, *, upto: int) -> int:
        """Count an instance's running tasks, `upto` at most, by the index.

        One request, whatever the number of tasks: those after the first page of the index are old, and few run.
        """
        async with aclosing(self._rows(instance, (TaskStatus.RUNNING,), None, upto)) as pages:
            async for page in pages:
                return min(len(page), upto)
        return 0

    async def count_active_instances(self) -> int:
        """Count the instances with a running task, by the index; that of schedules, which is no principal, is none."""
        found = {task_key(name).instance for name in await self._running_partitions(None)}
        return sum(":" in instance for instance in found)

    def _newest(
        self, instance: str | None, status: TaskStatus | None, start: Item | None, at_most: int
    ) -> AsyncGenerator[tuple[Task, int]]:
        """Yield the tasks of an instance, newest first, or of all, from `start` on, with the size of their states."""
        statuses = None if status is None else listings_of(status)

        def is_listed(row: Item, item: Item) -> bool:
            return item["started"] == row["started"] and (statuses is None or item["status"]["S"] in statuses)

        return self._in_portions(self._rows(instance, statuses, start, at_most), at_most, is_listed)

    async def _in_portions(
        self, pages: AsyncGenerator[list[Item]], at_most: int, is_listed: Callable[[Item, Item], bool]
    ) -> AsyncGenerator[tuple[Task, int]]:
        """Yield the tasks of an index's rows that their items confirm, with the size of their states.

        As many are read at a time as weigh PAGE_BYTES, if they are like those before.
        """
        at_once = min(at_most, TASKS_AT_FIRST)
        async with aclosing(pages):
            async for page in pages:
                rest = page
                while rest:
                    rows, rest = rest[:at_once], rest[at_once:]
                    items = await self._current([row["PK"]["S"] for row in rows])
                    fits = PAGE_BYTES * len(rows) // (1 + sum(map(item_size, items.values())))
                    at_once = max(1, min(fits, at_most, KEYS_IN_A_READ))
                    for row in rows:
                        item = items.get(row["PK"]["S"])
                        if item is not None and is_listed(row, item):
                            state = await self._reader.text(item["state"])
                            yield decode_task(item, state), text_size(state)

    def _rows(
        self, instance: str | None, statuses: Sequence[str] | None, start: Item | None, at_once: int
    ) -> AsyncGenerator[list[Item]]:
        choice: dict[str, Any] = {"IndexName": TASKS_INDEX, "Limit": at_once}
        values: Item = {}
        if instance is not None:
            choice |= {"ScanIndexForward": False, "KeyConditionExpression": "#instance = :instance"}
            values[":instance"] = string(instance)
        if statuses is not None:
            given = {f":status{n}": string(status) for n, status in enumerate(statuses)}
            choice |= {"Limit": ROWS_OF_ANY_STATUS, "FilterExpression": f"#status IN ({', '.join(given)})"}
            values |= given
        if values:
            expression = choice.get("KeyConditionExpression", "") + choice.get("FilterExpression", "")
            choice |= {"ExpressionAttributeNames": names(expression), "ExpressionAttributeValues": values}
        return (self._table.scan if instance is None else self._table.query)(start, **choice)

    async def _running(self) -> list[tuple[Task, Item]]:
        """Return the tasks with work, with their items."""
        items = await self._current(await self._running_partitions(None))
        return await self._read(items.values())

    async def _read(self, items: Iterable[Item]) -> list[tuple[Task, Item]]:
        """Return the tasks with work among these items, with the items."""
        running = [item for item in items if "running" in item]
        read = await asyncio.gather(*map(self._reader.task, running), return_exceptions=True)
        tasks = []
        for item, task in zip(running, read, strict=True):
            if isinstance(task, Task):
                tasks.append((task, item))
            elif isinstance(task, MAILError):  # a failure of one task must not stop the sweep
                logger.error("%s can't be read: %s", item["PK"]["S"], task)
            else:
                raise task
        return tasks

    async def _running_partitions(self, until: float | None) -> list[str]:
        """Return the partitions of the tasks with work or, with `until`, of those that are due."""
        starts = ("",) if until is None else ("", PAUSED)
        found = await asyncio.gather(
            *(self._shard(start + shard, until) for start in starts for shard in SHARDS)
        )
        return list(chain.from_iterable(found))

    async def _shard(self, shard: str, until: float | None) -> list[str]:
        condition, values = "#running = :shard", {":shard": string(shard)}
        limit: dict[str, Any] = {}
        if until is not None:
            condition += " AND #due <= :until"
            values[":until"] = number(until)
            limit = {"Limit": DUE_ROWS}
        pages = self._table.query(
            IndexName=RUNNING_INDEX,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names(condition),
            ExpressionAttributeValues=values,
            **limit,
        )
        found = []
        async with aclosing(pages):
            async for page in pages:
                found += [row["PK"]["S"] for row in page]
                if limit:
                    break
        return found

    async def _current(self, partitions: list[str]) -> dict[str, Item]:
        """Return the present items of tasks, by partition."""
        items = await self._table.get_many((name, META) for name in partitions)
        return {item["PK"]["S"]: item for item in items if not self._reader.is_gone(item)}


def _make_cursor(listed: str | None, task: Task) -> str:
    """Return the cursor of the page after a task, of the listed instance."""
    position = f"{task.started}#{task.task_id}"
    return _sealed(listed, position if listed is not None else f"{position}#{task.instance}")


def _read_cursor(listed: str | None, cursor: str) -> Item:
    """Return the start key of `_make_cursor`'s cursor."""
    started, _, task_id = _position_in(cursor, listed).partition("#")
    instance = listed
    if listed is None:
        task_id, _, instance = task_id.partition("#")
    if not task_id or not instance:
        raise foreign_cursor(cursor)
    return {
        **key_of((partition(TaskKey(instance, task_id)), META)),
        "instance": string(instance),
        "started": string(listing_key(started, task_id)),
    }


def _make_dead_cursor(task: Task) -> str:
    """Return the cursor of the page after a task with dead letters."""
    return _sealed(DEAD_INDEX, f"{dead_key(task)}\n{partition(task.key)}")


def _read_dead_cursor(cursor: str) -> Item:
    """Return the start key of `_make_dead_cursor`'s cursor."""
    among_dead, _, name = _position_in(cursor, DEAD_INDEX).partition("\n")
    if not name:
        raise foreign_cursor(cursor)
    return {**key_of((name, META)), "dead": string(DEAD), "dead_place": string(among_dead)}


def _sealed(listed: str | None, position: str) -> str:
    """Return a cursor: a position, with a checksum of it and of what is listed."""
    return urlsafe_b64encode((_checksum(listed, position) + position).encode()).decode()


def _position_in(cursor: str, listed: str | None) -> str:
    """Return the position in a cursor of this list. Raises BadRequest for any other one."""
    try:
        text = urlsafe_b64decode(cursor).decode()
    except (binascii.Error, ValueError):
        text = ""
    position = text[CHECKSUM_LENGTH:]
    if text[:CHECKSUM_LENGTH] != _checksum(listed, position):
        raise foreign_cursor(cursor)
    return position


def _checksum(listed: str | None, position: str) -> str:
    return sha256(f"{listed or ''}\n{position}".encode()).hexdigest()[:CHECKSUM_LENGTH]
