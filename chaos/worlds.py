"""What outlives the processes of a round: an SQLite file, PostgreSQL, or DynamoDB; and how a new process gets at it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch
from uuid import uuid4

from support.engines.dynamodb import make_client
from support.engines.postgres import borrow_database, break_connections, return_database
from support.faults import dynamodb as dynamodb_faults
from support.faults.dynamodb import FaultyClient
from support.faults.postgres import FaultyAhead, FaultyPostgres
from support.faults.sqlite import FaultyConnection

from chaos.faults import Faults, RoundClock, throttling
from chaos.loop import LeapingLoop
from chaos.process import PROCESS, Process
from mail.adapters.aws import index as dynamodb_index
from mail.adapters.aws import items as dynamodb_items
from mail.adapters.aws import waits as dynamodb_waits
from mail.adapters.aws.schema import create_table
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.local import workers as local
from mail.adapters.local.queue import LocalQueue
from mail.adapters.postgres import notifier
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.protocol.clock import Clock
from mail.core.task.ports import Store
from mail.testing.faults import Points

LOOK_SECONDS = 20.0
"""How often deadlines are looked at, and news that were missed."""

CUTS = 3
"""How often all connections to PostgreSQL are cut in a round."""


@dataclass(frozen=True)
class Place:
    """Where a process works: a store and a queue of its own, and what is to be done when it is gone."""

    store: Store
    queue: Any
    leave: Callable[[], None]


class World(Protocol):
    """A database.

    Attributes:
        is_real: whether it answers when it likes, so that time passes meanwhile.
        servers: how many servers of the swarm that people ask share it.
    """

    is_real: bool
    servers: int

    async def enter(self, process: Process, swarm: str, clock: Clock) -> Place:
        """Come as a new process."""
        ...

    async def look(self, swarm: str) -> Store:
        """A store that nothing goes wrong with, when no process is left."""
        ...

    async def disturb(self, faults: Faults, chance: Random) -> None:
        """Let happen what happens to all processes at once, for as long as the round lasts."""
        ...


class SQLiteWorld:
    """A file for each swarm, owned by one process at a time. Nothing but timers is waited for."""

    is_real = False
    servers = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[SQLiteDatabase] = []

    async def enter(self, process: Process, swarm: str, clock: Clock) -> Place:
        database = SQLiteDatabase(self._folder / f"{swarm}.db")
        SQLiteStore(database).discard_incomplete()
        database.connection = FaultyConnection(database.connection, process.points)  # type: ignore[assignment]
        return Place(SQLiteStore(database), LocalQueue(lambda: clock.now().timestamp()), database.close)

    async def look(self, swarm: str) -> Store:
        database = SQLiteDatabase(self._folder / f"{swarm}.db")
        self._open.append(database)
        return SQLiteStore(database)

    async def disturb(self, faults: Faults, chance: Random) -> None:
        """There is only one process."""

    def close(self) -> None:
        """Let go of the files."""
        for database in self._open:
            database.close()


class LeapingPostgres(FaultyPostgres):
    """A database whose requests keep time from leaping, also those that dead processes have sent."""

    async def connect(self) -> Connection:
        """Open a connection; if time leapt meanwhile, it would be given up."""
        with _at_work():
            return await super().connect()

    async def _run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        PROCESS.set(None)  # of the task that does this work: it outlives the process
        with _at_work():
            return await super()._run(work)


def _at_work() -> AbstractContextManager[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    return loop.at_work()


class PostgresWorld:
    """A database that all servers share, and take their tokens from."""

    is_real = True
    servers = 2

    def __init__(self, url: str) -> None:
        self._url = url
        self._leaving: set[asyncio.Task[None]] = set()

    async def enter(self, process: Process, swarm: str, clock: Clock) -> Place:
        postgres = LeapingPostgres(self._url, process.points)
        news = Notifier(postgres)
        await news.start()
        store = PostgresStore(postgres, news)
        store.ahead = FaultyAhead(news, process.points)
        queue = PostgresQueue(postgres, news, swarm, store=store, clock=lambda: clock.now().timestamp())

        def leave() -> None:
            task = asyncio.get_running_loop().create_task(
                _disconnect(postgres, news, queue), context=Context()
            )
            self._leaving.add(task)

        return Place(store, queue, leave)

    async def look(self, swarm: str) -> Store:
        postgres = LeapingPostgres(self._url, Points())
        self._postgres = postgres
        return PostgresStore(postgres, Notifier(postgres))

    async def disturb(self, faults: Faults, chance: Random) -> None:
        for _ in range(CUTS):
            await asyncio.sleep(chance.uniform(5, 60))
            if faults.strikes("throttle", chance, 1.0):
                await asyncio.to_thread(break_connections, self._url)

    async def close(self) -> None:
        """Let go of all connections."""
        if self._leaving:
            await asyncio.wait(self._leaving)
        if hasattr(self, "_postgres"):
            await self._postgres.close()


async def _disconnect(postgres: Postgres, news: Notifier, queue: PostgresQueue) -> None:
    await queue.close()
    await news.stop()
    await postgres.close()


class DynamoDBWorld:
    """A table that all functions share. Their queue is as SQS would be: outside of them all, and it forgets nothing."""

    is_real = True
    servers = 2

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table
        self._queues: dict[str, LocalQueue] = {}

    async def enter(self, process: Process, swarm: str, clock: Clock) -> Place:
        true_time = RoundClock(Random(0))
        queue = self._queues.setdefault(swarm, LocalQueue(lambda: true_time.now().timestamp()))
        client = FaultyClient(self._client, process.points)
        return Place(DynamoDBStore(client, self._table, clock=clock), queue, _nothing)

    async def look(self, swarm: str) -> Store:
        return DynamoDBStore(self._client, self._table)

    async def disturb(self, faults: Faults, chance: Random) -> None:
        """Each request may meet something."""
        trouble = throttling(faults, chance)
        with dynamodb_faults.Faults(self._client) as requests:
            requests.always = dict.fromkeys(
                ("GetItem", "Query", "UpdateItem", "TransactWriteItems", "BatchWriteItem", "DeleteItem"),
                trouble,
            )
            await asyncio.Event().wait()


def _nothing() -> None:
    """A function leaves nothing behind."""


@asynccontextmanager
async def open_world(store: str, folder: Path) -> AsyncGenerator[World]:
    """A new world, empty."""
    match store:
        case "sqlite":
            sqlite = SQLiteWorld(folder)
            yield sqlite
            sqlite.close()
        case "postgres":
            url = await asyncio.to_thread(borrow_database)
            postgres = PostgresWorld(url)
            # Where time leaps, those who look now and then would do nothing else.
            with (
                patch.object(local, "SWEEP_SECONDS", LOOK_SECONDS),
                patch.object(notifier, "POLL_SECONDS", LOOK_SECONDS),
            ):
                try:
                    yield postgres
                finally:
                    await postgres.close()
                    await asyncio.to_thread(return_database, url)
        case _:
            with ExitStack() as stack:
                stack.enter_context(patch.object(dynamodb_index, "SHARDS", "0"))
                stack.enter_context(patch.object(dynamodb_items, "SHARDS", "0"))
                stack.enter_context(patch.object(local, "SWEEP_SECONDS", LOOK_SECONDS))
                stack.enter_context(patch.object(dynamodb_waits, "LONGEST_POLL", LOOK_SECONDS))
                client = await asyncio.to_thread(
                    make_client, os.environ.get("MAIL_CHAOS_ENGINE", "ministack"), "dynamodb"
                )
                stack.callback(client.close)
                table = f"chaos-{uuid4().hex}"
                await create_table(client, table)
                yield DynamoDBWorld(client, table)
                await client.call("delete_table", TableName=table)
