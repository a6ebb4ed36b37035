"""A server on PostgreSQL: one of any number that share a database."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mail.adapters.postgres.documents import PostgresRecords
from mail.adapters.postgres.liveness import Liveness
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.schema import TABLES, prepare
from mail.adapters.postgres.store import PostgresStore
from mail.bootstrap.system import Backend, ServerSystem
from mail.core.task.ports import ServerRecords
from mail.core.task.swarm import SwarmCore

LIVENESS_SECONDS = 2.0
"""How often a server looks for others that are gone; it believes that at the second look."""

SWEEP_SECONDS = 60.0
"""How often mailboxes are woken whose tasks have been quiet for as long: their tokens may be lost."""

logger = logging.getLogger(__name__)


class PostgresSystem(ServerSystem):
    """A swarm on PostgreSQL. The tables are made, or brought up to date, when it is made."""

    def _open(self, swarm: SwarmCore) -> Backend:
        url = self.config.storage.postgres_url or ""
        prepare(url)
        self._postgres = Postgres(url)
        self._notifier = Notifier(self._postgres)
        store = PostgresStore(self._postgres, self._notifier)
        self._liveness = Liveness(self._postgres, self._notifier, store.turns)
        self._sweeper: asyncio.Task[None] | None = None
        self._queue = PostgresQueue(
            self._postgres, self._notifier, swarm.name, clock=lambda: self.clock.now().timestamp()
        )
        return Backend(store, PostgresRecords(self._postgres), self._queue)

    async def start(self) -> None:
        """Take up the tasks that earlier processes left, and work on whatever comes, to whichever server."""
        await self._notifier.start()
        await self._liveness.call(patient=False)
        await super().start()
        self._sweeper = asyncio.create_task(self._sweep())

    async def _close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._queue.close()
        await self._notifier.stop()
        await self._postgres.close()

    async def _sweep(self) -> None:
        """Take over the work of servers that are gone, at once, and what was lost otherwise, sooner or later."""
        loop = asyncio.get_running_loop()
        next_sweep = loop.time() + SWEEP_SECONDS
        while True:
            await asyncio.sleep(LIVENESS_SECONDS)
            try:
                if await self._liveness.call():
                    await self.runtime.recover()
                elif loop.time() >= next_sweep:
                    next_sweep = loop.time() + SWEEP_SECONDS
                    await self.runtime.recover(quiet_for=SWEEP_SECONDS)
            except Exception:  # the outermost loop: PostgreSQL may be away for a while
                logger.exception("servers and mailboxes could not be looked at")


def create_postgres_tables(url: str) -> tuple[str, ...]:
    """Make the tables where they are missing; returns their names. Raises ConfigurationError."""
    prepare(url)
    return TABLES


@asynccontextmanager
async def open_postgres_records(url: str) -> AsyncIterator[ServerRecords]:
    """The tokens and settings in a database. Raises ConfigurationError where it can't be used."""
    prepare(url)
    postgres = Postgres(url)
    try:
        yield PostgresRecords(postgres)
    finally:
        await postgres.close()
