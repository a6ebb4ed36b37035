"""The embedded server: one process, one SQLite file."""

from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.documents import SQLiteRecords
from mail.adapters.sqlite.store import SQLiteStore
from mail.bootstrap.system import TURN_GRACE_SECONDS, Backend, ServerSystem
from mail.config import StorageConfig
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError

__all__ = ["TURN_GRACE_SECONDS", "LocalSystem", "open_sqlite"]


class LocalSystem(ServerSystem):
    """A swarm on the embedded store. The database is claimed when it is made."""

    def _open(self, swarm: SwarmCore) -> Backend:
        self._database = open_sqlite(self.config.storage)
        queue = LocalQueue()
        depths = {"turns": lambda: len(queue.turns), "deliveries": lambda: len(queue.deliveries)}
        return Backend(SQLiteStore(self._database), SQLiteRecords(self._database), queue, depths)

    async def _close(self) -> None:
        self._database.close()


def open_sqlite(storage: StorageConfig, *, own: bool = True) -> SQLiteDatabase:
    """The configured file, opened. Raises ConfigurationError where it can't be used."""
    if storage.dynamodb_table is not None:
        raise ConfigurationError(
            f"{storage.database}: `mail server` keeps its tasks in SQLite or PostgreSQL; tasks in DynamoDB are served "
            "by the functions of template.yaml (docs/deploy.md)"
        )
    if storage.postgres_url is not None:
        raise ConfigurationError(
            f"{storage.shown}: a swarm inside a program keeps its tasks in SQLite; those in PostgreSQL are served by "
            "`mail server` (docs/postgres.md)"
        )
    try:
        return SQLiteDatabase(storage.database, own=own, synchronous=storage.synchronous)
    except OSError as error:
        raise ConfigurationError(f"{storage.database} can't be used as a database: {error}") from error
