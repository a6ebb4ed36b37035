"""Files in SQLite, as rows. Their bytes are written and read in a thread, as they take longer than a turn."""

from functools import partial
from typing import Any

from mail.adapters.shared.files import SQLFiles
from mail.adapters.sqlite.database import DIALECT, SQLiteDatabase
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.documents import IN_MEMORY


class SQLiteFiles(SQLFiles):
    """`mail.core.task.ports.Files` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = database
        super().__init__(self._run_on_loop, self._run_in_thread, clock, DIALECT)

    async def _run_on_loop(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        return await self._database.write(partial(self._database.execute, statement, values))

    async def _run_in_thread(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        database = self._database
        if database.path == IN_MEMORY:
            return database.execute(statement, values)
        return await database.write_in_turn(
            lambda: database.in_thread(lambda sql: sql.execute(statement, values).fetchall())
        )
