"""PostgreSQL: any number of servers share a database."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from mail.adapters.postgres.imports import announce_old_tasks
from mail.adapters.postgres.live import PostgresLive
from mail.adapters.postgres.liveness import Liveness, Takeover
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.rows import PostgresRows
from mail.adapters.postgres.schema import DIALECT, TABLES, prepare
from mail.adapters.postgres.search import rebuild
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.shared.backend import Backend, Database, Recover, WorkQueue
from mail.adapters.shared.documents import SQLDocuments
from mail.adapters.shared.files import SQLFiles
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import Documents
from mail.core.task.rows import Rows


class PostgresDocuments(SQLDocuments):
    """`mail.core.task.ports.Documents` on a `Postgres` whose tables are there."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres.fetch, DIALECT)


class PostgresFiles(SQLFiles):
    """`mail.core.task.ports.Files` on a `Postgres` whose tables are there."""

    def __init__(self, postgres: Postgres, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(postgres.fetch, postgres.fetch, clock, DIALECT)


class PostgreSQL(Database):
    """A PostgreSQL database, given by a URL that may contain a password."""

    not_for: ClassVar = {
        "program": "a swarm inside a program keeps its tasks in SQLite; those in PostgreSQL are served by "
        "`mail server` (docs/postgres.md)"
    }
    backup_tools = (
        "`mail` copies SQLite files; for PostgreSQL use pg_dump --format=custom --schema=mail --file=mail.dump URL, "
        "and pg_restore --clean --if-exists --dbname=URL mail.dump while no server runs (docs/going-back.md)"
    )

    def open(self, swarm: str, clock: Clock, local: WorkQueue) -> Backend[WorkQueue]:
        prepare(self.place)
        postgres = Postgres(self.place)
        notifier = Notifier(postgres)

        def now() -> float:
            return clock.now().timestamp()

        store = PostgresStore(postgres, notifier, clock=now)
        live = PostgresLive(postgres, notifier)
        takeover = Takeover(Liveness(postgres, notifier, store.turns))
        queue = PostgresQueue(postgres, notifier, swarm, store=store, clock=now)

        async def start(recover: Recover) -> None:
            await announce_old_tasks(postgres)
            await notifier.start()
            await takeover.start(recover)

        async def close() -> None:
            await takeover.stop()
            await queue.close()
            await live.close()
            await notifier.stop()
            await postgres.close()

        return Backend(
            store=store,
            documents=PostgresDocuments(postgres),
            files=PostgresFiles(postgres, clock),
            rows=lambda: PostgresRows(postgres, notifier),
            queue=queue,
            live=live,
            start=start,
            close=close,
        )

    async def create_tables(self) -> tuple[str, ...]:
        prepare(self.place)
        return TABLES

    async def rebuild_index(self) -> int:
        async with self._connected() as postgres:
            return await rebuild(postgres)

    @asynccontextmanager
    async def open_documents(self) -> AsyncIterator[Documents]:
        async with self._connected() as postgres:
            yield PostgresDocuments(postgres)

    async def open_rows(self, options: Mapping[str, str]) -> Rows:
        prepare(self.place)
        postgres = Postgres(self.place)
        return PostgresRows(postgres, Notifier(postgres))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Postgres]:
        prepare(self.place)
        postgres = Postgres(self.place)
        try:
            yield postgres
        finally:
            await postgres.close()
