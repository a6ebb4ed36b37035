"""A pool of connections, and what is done where one breaks.

Each piece of work is one round trip: a statement by itself, or a pipeline of them, which PostgreSQL takes for one
transaction. Transactions are READ COMMITTED: each statement sees what was committed before it began. The adapters rely
on that: they lock the row of a task by one statement, and look at all else of it by the next.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from mail.adapters.postgres.urls import read
from mail.core.protocol.redact import hide_credentials
from mail.errors import BadRequest, StoreUnavailable

CONNECTIONS = 8
"""How many pieces of work are under way at once; more of them wait."""

TIMEOUT = 5.0
"""Seconds that a piece of work waits for a connection."""

ATTEMPTS = 3
"""How often a piece of work is tried whose connection breaks: when the server restarts, all of them are broken."""

RETRY_SECONDS = 0.2

Connection = AsyncConnection[TupleRow]
Row = tuple[Any, ...]
Values = Sequence[object] | dict[str, object]

logger = logging.getLogger(__name__)


class Postgres:
    """A database. Connections are made when they are needed, on the event loop that needs them."""

    def __init__(self, url: str, *, connections: int = CONNECTIONS) -> None:
        self.name = hide_credentials(url)
        self._parameters = read(url)
        self._connections = connections
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._at_work: set[asyncio.Future[Any]] = set()

    async def fetch(self, statement: LiteralString, values: Values = ()) -> list[Row]:
        """Run one statement that may be repeated, and return its rows. Raises as `run` does."""

        async def work(connection: Connection, _: bool) -> list[Row]:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self.run(work)

    async def run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Do a piece of work on a connection, again where that breaks; the work is told whether it is done again.

        A caller that is cancelled leaves it to end by itself, so that the connection is fit for the next. Raises
        StoreUnavailable where it can't be told whether it is done, and BadRequest for text that can't be kept.
        """
        working = asyncio.ensure_future(self._run(work))
        self._at_work.add(working)
        working.add_done_callback(self._forget)
        return await asyncio.shield(working)

    async def connect(self) -> Connection:
        """A connection of one's own, to be closed. Raises psycopg.OperationalError."""
        return await AsyncConnection.connect(**self._parameters, autocommit=True)

    async def close(self) -> None:
        """Wait for the work that is under way, and close all connections."""
        while self._at_work:
            await asyncio.wait(self._at_work)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _forget(self, working: asyncio.Future[Any]) -> None:
        self._at_work.discard(working)
        if not working.cancelled():
            working.exception()  # whoever was cancelled does not ask for it

    async def _run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        for attempt in range(ATTEMPTS):
            pool = await self._opened()
            try:
                async with pool.connection() as connection:
                    return await work(connection, attempt > 0)
            except (PoolTimeout, PoolClosed) as error:
                logger.error("%s can't be reached: %s", self.name, one_line(error))
                raise StoreUnavailable from error
            except psycopg.DataError as error:
                raise BadRequest(f"PostgreSQL can't keep this: {error}") from error
            except psycopg.Error as error:
                if attempt == ATTEMPTS - 1 or not isinstance(error, psycopg.OperationalError):
                    logger.error("%s: %s", self.name, one_line(error))
                    raise StoreUnavailable from error
                logger.warning("%s: trying again after: %s", self.name, one_line(error))
            await asyncio.sleep(RETRY_SECONDS * attempt)
            await pool.check()
        raise AssertionError("the last attempt returns or raises")

    async def _opened(self) -> AsyncConnectionPool[Connection]:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                kwargs={**self._parameters, "autocommit": True},
                min_size=1,
                max_size=self._connections,
                timeout=TIMEOUT,
                configure=_configure,
                reconnect_timeout=TIMEOUT,
                open=False,
                name=self.name,
            )
            await self._pool.open()
        return self._pool


def one_line(error: Exception) -> str:
    """What PostgreSQL says, which may be several lines. It never holds a password."""
    return " ".join(str(error).split())


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncGenerator[None]:
    """One transaction, sent as a whole; what its statements return is read after it.

    In autocommit mode PostgreSQL commits all that was sent before a Sync at once, or nothing of it; with BEGIN and
    COMMIT, psycopg would wait for each.
    """
    async with connection.pipeline():
        yield


async def _configure(connection: Connection) -> None:
    """Whatever the database's own default is."""
    await connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
