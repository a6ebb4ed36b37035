"""How the contract suites get at each adapter."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.local.queue import LocalQueue
from mail.adapters.postgres.pool import Postgres, Row
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.files import SQLiteFiles
from mail.adapters.sqlite.rows import SQLiteRows
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import IN_MEMORY
from mail.core.task.ports import Files, Store, TaskPage, TurnQueue
from mail.core.task.rows import Rows
from mail.core.task.search import Search, Searched
from mail.core.task.task import Task, TaskKey
from mail.testing import contracts
from support.engines.aws import sqs_engines
from support.engines.dynamodb import ENGINES, DynamoDBAdapter
from support.engines.postgres import PostgresAdapter, PostgresQueueAdapter, has_postgres
from support.engines.sqs import SQSQueueAdapter


class StoreAdapter(contracts.StoreAdapter, Protocol):
    """A database with the documents and files in it, that can be opened and closed."""

    records: ServerDocuments
    files: Files
    rows: Rows

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    async def size(self) -> int:
        """Count the bytes that it takes, with indexes and files."""
        ...


async def loaded(store: Store, key: TaskKey) -> Task:
    """Return a task, which must be there."""
    task = await store.load(key)
    assert task is not None
    return task


async def searched(
    store: Store, instance: str, search: Search, *, limit: int = 100, cursor: str | None = None
) -> TaskPage:
    """Search, when the index has everything: it is written for a time before each search."""
    while True:
        page = await store.search(instance, search, limit=limit, cursor=cursor)
        if page.searched is not Searched.SOME_TEXTS:
            return page


class SQLiteAdapter:
    """The embedded store, in memory or on a file."""

    leases_outlive_process = False

    def __init__(self, path: str | Path) -> None:
        self._path = path

    async def open(self) -> None:
        self._database = SQLiteDatabase(self._path)
        self.store: Store = SQLiteStore(self._database)
        self.records: ServerDocuments = ServerDocuments(SQLiteDocuments(self._database))
        self.files: Files = SQLiteFiles(self._database)
        self.rows: Rows = SQLiteRows(self._database)

    async def close(self) -> None:
        self._database.close()

    async def size(self) -> int:
        ((size,),) = self._database.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        )
        return int(size)

    async def reopen(self) -> Store:
        await self.close()
        await self.open()
        return self.store


def _on_dynamodb(engine: str, _: Path) -> StoreAdapter:
    return DynamoDBAdapter(engine)


class Slow:
    """A store of which every call takes a while, so that others get in between."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._store, name)

        async def slow(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            try:
                return await call(*args, **kwargs)
            finally:
                await asyncio.sleep(0)

        return slow


class SlowSQLiteAdapter(SQLiteAdapter):
    """The embedded store, as slow as one behind a network."""

    async def open(self) -> None:
        await super().open()
        self.store = cast(Store, Slow(self.store))


STORES: dict[str, Callable[[Path], StoreAdapter]] = {
    "sqlite-memory": lambda _: SQLiteAdapter(IN_MEMORY),
    "sqlite-slow": lambda folder: SlowSQLiteAdapter(folder / "mail.db"),
    **{f"dynamodb-{engine}": partial(_on_dynamodb, engine) for engine in ENGINES},
    **({"postgres": lambda _: PostgresAdapter()} if has_postgres() else {}),
}

DURABLE = frozenset(STORES) - {"sqlite-memory"}
"""The stores that keep what was committed when they are opened again."""


class QueueAdapter(contracts.QueueAdapter, Protocol):
    """A queue that can be closed."""

    async def close(self) -> None:
        """Release everything."""
        ...


class LocalQueueAdapter:
    """The in-process queue."""

    def __init__(self) -> None:
        self._local = LocalQueue()
        self.queue: TurnQueue = self._local

    async def take(self, seconds: float) -> tuple[TaskKey, str] | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._local.take()
        except TimeoutError:
            return None

    async def close(self) -> None:
        """It ends with its last reference."""


QUEUES: dict[str, Callable[[], QueueAdapter]] = {
    "local": LocalQueueAdapter,
    **({"postgres": PostgresQueueAdapter} if has_postgres() else {}),
    **{f"sqs-{engine}": partial(SQSQueueAdapter, engine) for engine in sqs_engines()},
}


class _CountingReads:
    """The database of a store, with whose rows a list grows; not with those of what works beside the store."""

    def __init__(self, sql: Postgres, read: list[None]) -> None:
        self._sql = sql
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sql, name)

    async def fetch(self, *args: Any) -> list[Row]:
        rows = await self._sql.fetch(*args)
        self._read.extend([None] * len(rows))
        return rows


def count_rows(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows by an element for each row or item (SQLite: each step) that a store reads."""
    read: list[None] = []
    match getattr(store, "_store", store):
        case SQLiteStore() as sqlite:
            sqlite._sql.set_progress_handler(lambda: read.append(None), 1)
        case PostgresStore() as postgres:
            monkeypatch.setattr(postgres, "_sql", _CountingReads(postgres._sql, read))
        case DynamoDBStore() as dynamodb:
            client = dynamodb._table._client
            call = client.call

            async def counting_items(*args: Any, **kwargs: Any) -> Any:
                answer = await call(*args, **kwargs)
                read.extend([None] * len(answer.get("Items", [answer.get("Item")])))
                return answer

            monkeypatch.setattr(client, "call", counting_items)
        case unknown:
            raise TypeError(unknown)
    return read
