"""Where the tasks of a run are while its processes come and go: an SQLite file, a table of DynamoDB, or PostgreSQL."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import psycopg
from support.faults.dynamodb import FaultyClient
from support.faults.postgres import FaultyAhead, FaultyPostgres
from support.faults.sqlite import faulty_connections

from mail.adapters.aws import index as dynamodb_index
from mail.adapters.aws import items as dynamodb_items
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.schema import create_table
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.aws.table import DynamoDBTable
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import Store
from mail.core.task.stored import read_task
from mail.core.task.task import TaskKey
from mail.testing.agents import NAME
from mail.testing.faults import Points


class AheadClock:
    """The system clock, `ahead` by some seconds."""

    def __init__(self, ahead: float = 0.0) -> None:
        self._ahead = ahead

    @property
    def ahead(self) -> float:
        return self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += seconds

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + timedelta(seconds=self.ahead)

    def new_id(self) -> str:
        return SYSTEM_CLOCK.new_id()


class World(Protocol):
    """What outlives a process.

    Attributes:
        lease_seconds: for how long a dead process can be in the way of others.
        redelivers: whether a queue delivers the wake-ups again that a dead process was busy with.
    """

    lease_seconds: float
    redelivers: bool

    def open(self, points: Points, clock: Clock) -> AbstractAsyncContextManager[Store]:
        """Come as a new process, which may die at its requests."""
        ...

    def queue(self) -> Any | None:
        """The queue of the process that has come; None where it is to be in its memory."""
        ...

    async def picture(self, store: Store, key: TaskKey) -> Store:
        """A store that shows the task as it is now."""
        ...

    def problems(self) -> Iterator[str]:
        """What is wrong in a place that no store looks at."""
        ...

    def text(self) -> str:
        """All that is stored, as far as it can be read."""
        ...


class SQLiteWorld:
    """A file; every statement is a point."""

    lease_seconds = 0.0
    redelivers = False

    def __init__(self, folder: Path) -> None:
        self._path = folder / "mail.db"

    @asynccontextmanager
    async def open(self, points: Points, clock: Clock) -> AsyncGenerator[Store]:
        with faulty_connections(points), SQLiteDatabase(self._path) as database:
            yield SQLiteStore(database)

    def queue(self) -> None:
        return None

    async def picture(self, store: Store, key: TaskKey) -> Store:
        return store

    def problems(self) -> Iterator[str]:
        with SQLiteDatabase(self._path) as database:
            (state,) = database.connection.execute("PRAGMA integrity_check").fetchone()
        if state != "ok":
            yield f"the file is broken: {state}"

    def text(self) -> str:
        with SQLiteDatabase(self._path) as database:
            return "\n".join(database.connection.iterdump())


class DynamoDBWorld:
    """A table; every request is two points: before it is sent, and when its answer is there but not yet seen."""

    lease_seconds = 3600.0
    redelivers = True

    def __init__(self, client: AwsClient, table: str, folder: Path) -> None:
        self._client = client
        self._table = table
        self._is_made = folder / "table"

    @asynccontextmanager
    async def open(self, points: Points, clock: Clock) -> AsyncGenerator[Store]:
        """The index of running tasks has one part, to be asked with one request; they are all alike."""
        with patch.object(dynamodb_index, "SHARDS", "0"), patch.object(dynamodb_items, "SHARDS", "0"):
            if not self._is_made.exists():
                await create_table(self._client, self._table)
                self._is_made.touch()
            yield DynamoDBStore(FaultyClient(self._client, points), self._table, clock=clock)

    def queue(self) -> None:
        return None

    async def picture(self, store: Store, key: TaskKey) -> Store:
        """What one query finds, which no late request of the dead can change any more."""
        pages = DynamoDBTable(self._client, self._table).pages(dynamodb_items.partition(key), " ", "~")
        picture = Picture([item async for page in pages for item in page])
        return DynamoDBStore(picture, self._table)

    def problems(self) -> Iterator[str]:
        """Mail that no task counts, and so nobody will ever read."""
        pages = self._client.botocore.get_paginator("scan").paginate(TableName=self._table)
        items = [item for page in pages for item in page["Items"]]
        found = Counter(item["PK"]["S"] for item in items if "#I#" in item["SK"]["S"])
        for item in items:
            found[item["PK"]["S"]] += sum(map(len, dynamodb_items.task_mail(item).values()))
        for item in items:
            if item["SK"]["S"] == dynamodb_items.META:
                task = dynamodb_items.decode_task(item, dynamodb_items.unpack(item["state"]))
                counted = sum(map(sum, task.pending.values()))
                if found[item["PK"]["S"]] != counted:
                    yield f"{found[item['PK']['S']]} messages are in the mailboxes, {counted} are counted: {task}"

    def text(self) -> str:
        pages = self._client.botocore.get_paginator("scan").paginate(TableName=self._table)
        texts = (value for page in pages for item in page["Items"] for value in item.values())
        return "\n".join(
            dynamodb_items.unpack(value) if "B" in value or "S" in value else str(value) for value in texts
        )


class PostgresWorld:
    """A database, which all processes take their tokens from, too; every round trip is two points."""

    lease_seconds = 3600.0
    redelivers = False

    def __init__(self, url: str) -> None:
        self.url = url

    @asynccontextmanager
    async def open(self, points: Points, clock: Clock) -> AsyncGenerator[Store]:
        postgres = FaultyPostgres(self.url, points)
        notifier = Notifier(postgres)
        await notifier.start()
        store = PostgresStore(postgres, notifier)
        store.ahead = FaultyAhead(notifier, points)
        self._queue = PostgresQueue(
            postgres, notifier, NAME, store=store, clock=lambda: clock.now().timestamp()
        )
        yield store
        await self._queue.close()
        await notifier.stop()
        await postgres.close()

    def queue(self) -> PostgresQueue:
        return self._queue

    async def picture(self, store: Store, key: TaskKey) -> Store:
        """The same store, once what the dead have sent is done."""
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            for _ in range(100):
                at_work = await connection.execute(
                    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
                    " AND pid <> pg_backend_pid()"
                )
                if not at_work.rowcount:
                    break
                await asyncio.sleep(0.01)
        return store

    def problems(self) -> Iterator[str]:
        """Mail that no task counts, and so nobody will ever read."""
        with psycopg.connect(self.url) as connection:
            tasks = connection.execute("SELECT id, state FROM mail.tasks").fetchall()
            mail = Counter(number for (number,) in connection.execute("SELECT task FROM mail.inbox"))
        for number, state in tasks:
            counted = sum(map(sum, read_task(state).pending.values()))
            if mail.pop(number, 0) != counted:
                yield f"the messages in the mailboxes are not the {counted} that are counted: {state}"
        if mail:
            yield f"there is mail of no task: {mail}"

    def text(self) -> str:
        with psycopg.connect(self.url) as connection:
            tables = ("tasks", "commits", "inbox", "waits", "asks", "contents")
            rows = [connection.execute(f"SELECT * FROM mail.{table}").fetchall() for table in tables]
        return str(rows)


class Picture(AwsClient):
    """Answers the requests of a store from the items of a task."""

    def __init__(self, items: list[dynamodb_items.Item]) -> None:
        self._items = {item["SK"]["S"]: item for item in items}

    async def call(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        if operation == "get_item":
            item = self._items.get(arguments["Key"]["SK"]["S"])
            return {} if item is None else {"Item": item}
        assert operation == "query", operation
        low, high = (arguments["ExpressionAttributeValues"][name]["S"] for name in (":low", ":high"))
        return {"Items": [self._items[place] for place in sorted(self._items) if low <= place <= high]}
