"""Documents in the embedded database."""

from typing import Any

from mail.adapters.shared.documents import SQLDocuments
from mail.adapters.sqlite.database import SQLiteDatabase


class SQLiteDocuments(SQLDocuments):
    """`mail.core.task.ports.Documents` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._database = database
        super().__init__(self._run, schema="", parameter=":{}")

    async def _run(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        if statement.startswith("SELECT"):  # another process's lock is for writing only
            return self._database.execute(statement, values)
        return await self._database.write(lambda: self._database.execute(statement, values))
