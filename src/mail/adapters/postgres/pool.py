"""A pool of connections, with retries if one breaks.

Each piece of work is one round trip: a single statement, or a pipeline, which PostgreSQL runs as one transaction.
Transactions are READ COMMITTED: each statement sees what was committed before it began. The adapters rely on that: they
lock the row of a task by one statement, and read the rest of the task by the next.
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
from mail.core.protocol.error_text import hide_credentials
from mail.errors import BadRequest, StoreUnavailable

CONNECTIONS = 8
"""The number of connections, and so of pieces of work at a time; more of them wait."""

TIMEOUT = 5.0
"""Seconds that a piece of work waits for a connection."""

ATTEMPTS = 3
"""The number of attempts if connections break: when the server restarts, all of them do."""

RETRY_SECONDS = 0.2

Connection = AsyncConnection[TupleRow]
Row = tuple[Any, ...]
Values = Sequence[object] | dict[str, object]

logger = logging.getLogger(__name__)


class Postgres:
    """A database. Connections are opened on demand, on the event loop that needs them, and no more after `close`.

    Attributes:
        at_close: called when `close` begins; they stop what works in the background.
    """

    def __init__(self, url: str, *, connections: int = CONNECTIONS) -> None:
        self.name = hide_credentials(url)
        self._parameters = read(url)
        self._connections = connections
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._at_work: set[asyncio.Future[Any]] = set()
        self._is_closed = False
        self.at_close: list[Callable[[], None]] = []

    async def fetch(self, statement: LiteralString, values: Values = ()) -> list[Row]:
        """Run one statement that may be repeated; return its rows. Raises as `run` does."""

        async def work(connection: Connection, _: bool) -> list[Row]:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self.run(work)

    async def run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        """Run a piece of work on a connection, and retry if that breaks; the second argument says if it is a retry.

        The work of a cancelled caller continues to its end, so that the connection stays usable. Raises
        StoreUnavailable if it is unknown whether the work is done or the database is closed, and BadRequest for text
        that can't be stored.
        """
        working = asyncio.ensure_future(self._run(work))
        self._at_work.add(working)
        working.add_done_callback(self._forget)
        return await asyncio.shield(working)

    async def connect(self) -> Connection:
        """Open a connection outside the pool; the caller closes it. Raises psycopg.OperationalError."""
        return await AsyncConnection.connect(**self._parameters, autocommit=True)

    async def close(self) -> None:
        """Wait for running work, and close all connections.

        A pool that late work opened would keep its event loop from closing: its workers survive being cancelled.
        """
        for stop in self.at_close:
            stop()
        while self._at_work:
            await asyncio.wait(self._at_work)
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close()

    def _forget(self, working: asyncio.Future[Any]) -> None:
        self._at_work.discard(working)
        if not working.cancelled():
            working.exception()  # a cancelled caller does not retrieve it

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
                raise BadRequest(f"PostgreSQL can't store this: {error}") from error
            except psycopg.Error as error:
                if attempt == ATTEMPTS - 1 or not isinstance(error, psycopg.OperationalError):
                    logger.error("%s: %s", self.name, one_line(error))
                    raise StoreUnavailable from error
                logger.warning("%s: retrying after: %s", self.name, one_line(error))
            await asyncio.sleep(RETRY_SECONDS * attempt)
            await pool.check()
        raise AssertionError("the last attempt returns or raises")

    async def _opened(self) -> AsyncConnectionPool[Connection]:
        if self._is_closed:
            raise StoreUnavailable
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
    """Return PostgreSQL's message on one line. It never contains a password."""
    return " ".join(str(error).split())


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncGenerator[None]:
    """Send the statements of a transaction as a whole; their results are read after it.

    In autocommit mode PostgreSQL commits everything before a Sync, or nothing; with BEGIN and COMMIT, psycopg would
    wait for each.
    """
    async with connection.pipeline():
        yield


async def _configure(connection: Connection) -> None:
    """Set the isolation level, whatever the default of the database."""
    await connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
