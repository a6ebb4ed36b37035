"""SQLite: one process, one file."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mail.adapters.shared.backend import Backend, Database, WorkQueue
from mail.adapters.shared.documents import SQLDocuments
from mail.adapters.sqlite.backups import back_up, restore
from mail.adapters.sqlite.database import DIALECT, TABLES, SQLiteDatabase
from mail.adapters.sqlite.default_file import AUTO, find_default_file, open_default_file, record_swarm
from mail.adapters.sqlite.files import SQLiteFiles
from mail.adapters.sqlite.search import rebuild
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.protocol.clock import Clock
from mail.core.task.documents import IN_MEMORY
from mail.core.task.ports import Documents
from mail.core.task.rows import Rows
from mail.errors import ConfigurationError


class SQLiteDocuments(SQLDocuments):
    """`mail.core.task.ports.Documents` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._database = database
        super().__init__(self._execute_or_wait, DIALECT)

    async def _execute_or_wait(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        if statement.startswith("SELECT"):  # another process's lock is for writing only
            return self._database.execute(statement, values)
        return await self._database.write(lambda: self._database.execute(statement, values))


def _rows(database: SQLiteDatabase) -> Rows:
    from mail.adapters.sqlite.rows import SQLiteRows

    return SQLiteRows(database)


class SQLite(Database):
    """An SQLite file; `:memory:` for none, `auto` for the default one."""

    row_options = ()

    def open(self, swarm: str, clock: Clock, local: WorkQueue) -> Backend[WorkQueue]:
        if self.place == AUTO:
            database = open_default_file(swarm, synchronous=self.synchronous)
        else:
            database = self._open(own=True)
        if database.path != IN_MEMORY:
            record_swarm(database, swarm)

        store = SQLiteStore(database)
        store.discard_incomplete()

        def abandon() -> None:
            store.close()
            database.close()

        async def close() -> None:
            abandon()

        return Backend(
            store=store,
            documents=SQLiteDocuments(database),
            files=SQLiteFiles(database, clock),
            rows=lambda: _rows(database),
            queue=local,
            close=close,
            abandon=abandon,
            place=database.path,
        )

    async def create_tables(self) -> tuple[str, ...]:
        with self._open(own=False):
            return TABLES

    async def rebuild_index(self) -> int:
        with self._open(own=False) as database:
            return rebuild(database.path)

    def back_up(self, file: Path) -> None:
        back_up(self._file, file)

    def restore(self, file: Path) -> Path | None:
        return restore(file, self._file)

    @property
    def _file(self) -> str:
        return find_default_file() if self.place == AUTO else self.place

    @asynccontextmanager
    async def open_documents(self) -> AsyncIterator[Documents]:
        with self._open(own=False) as database:
            yield SQLiteDocuments(database)

    async def open_rows(self, options: Mapping[str, str]) -> Rows:
        return _rows(self._open(own=False))

    def _open(self, *, own: bool) -> SQLiteDatabase:
        try:
            return SQLiteDatabase(self._file, own=own, synchronous=self.synchronous)
        except OSError as error:
            file = Path(self.place)
            what = "the file" if file.exists() else f"the folder {file.parent}"
            raise ConfigurationError(
                f"{file} can't be used as a database: {what} can't be written ({error.strerror})"
            ) from None
