"""Rows of text in an SQLite file, beside the tasks in it; several processes may use it concurrently."""

import threading
from collections.abc import Sequence
from typing import Any, LiteralString

from mail.adapters.shared.rows import SQLRows
from mail.adapters.shared.waiters import Watches
from mail.adapters.sqlite.database import DIALECT, SQLiteDatabase
from mail.core.task.rows import Write, places_of_new


class SQLiteRows(SQLRows):
    """`mail.core.task.rows.Rows` on a `SQLiteDatabase`, for the event loops of several threads."""

    def __init__(self, database: SQLiteDatabase) -> None:
        super().__init__(self._select, DIALECT)
        self._database = database
        self._lock = threading.Lock()  # threads share the connection, and with it a transaction
        self._watches = Watches()
        self.watched = self._watches.watched

    async def write(self, writes: Sequence[Write]) -> bool:
        is_done = await self._database.write(lambda: self._write(writes))
        self._watches.notify(places_of_new(writes) if is_done else ())
        return is_done

    async def close(self) -> None:
        self._database.close()

    async def _select(self, statement: LiteralString, values: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(statement, values)

    def _write(self, writes: Sequence[Write]) -> bool:
        with self._lock, self._database.transaction() as sql:
            is_done = all(
                sql.executemany(statement, values).rowcount == len(values) or not is_conditional
                for statement, values, is_conditional in self.batches(writes)
            )
            if not is_done:
                sql.execute("ROLLBACK")
        return is_done
