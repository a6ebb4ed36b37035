"""A swarm inside a program of somebody else's: the engine on a store, and nothing to serve it."""

import weakref

from mail.adapters.local.queue import LocalQueue, LocalWorkers
from mail.adapters.sqlite.store import SQLiteStore
from mail.bootstrap.local_system import TURN_GRACE_SECONDS, open_sqlite
from mail.bootstrap.shared import with_protocol
from mail.config import StorageConfig
from mail.config.database import IN_MEMORY
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore


class EmbeddedSystem:
    """Runs a swarm's tasks in this process, between `start` and `stop`, as often as one likes.

    Args:
        database: the store that tasks are kept in, or what `[server.storage] database` takes; by default they are
            kept in memory. A database that is opened here is closed by `close`, or with the last reference.

    Raises ConfigurationError where the database can't be used.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        *,
        database: Store | str = IN_MEMORY,
        clock: Clock = SYSTEM_CLOCK,
        turn_seconds: float = 840.0,
        concurrency: int = 64,
    ) -> None:
        self._close: weakref.finalize[[], EmbeddedSystem] | None = None
        if isinstance(database, str):
            opened = open_sqlite(StorageConfig(database=database))
            self._close = weakref.finalize(self, opened.close)
            self.store: Store = SQLiteStore(opened)
        else:
            self.store = database
        self._queue = LocalQueue()
        self.runtime = Runtime(
            with_protocol(swarm), self.store, self._queue, clock, turn_seconds=turn_seconds
        )
        self._concurrency = concurrency
        self._workers: LocalWorkers | None = None

    @property
    def is_working(self) -> bool:
        """Whether mail is worked on."""
        return self._workers is not None

    async def start(self) -> None:
        """Work on the mail that waits, and on whatever comes, on the event loop that calls this."""
        if self._workers is None:
            self._workers = LocalWorkers(self.runtime, self._queue, concurrency=self._concurrency)
            await self._workers.start()

    async def stop(self, grace: float = TURN_GRACE_SECONDS) -> None:
        """Begin no new turn, and give the running ones `grace` seconds; mail waits until the next start."""
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.stop(grace)

    async def idle(self) -> None:
        """Return once nothing is left to work on; at once where nobody works."""
        if self._workers is not None:
            await self._workers.idle()

    def close(self) -> None:
        """Close the database, if it was opened here."""
        if self._close is not None:
            self._close()
