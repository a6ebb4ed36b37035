"""The rows of an exchange in an SQLite file, beside the tasks in it; several processes may use it concurrently."""

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

from mail.adapters.sqlite.database import SQLiteDatabase, unavailable
from mail.core.task.documents import PutIf
from mail.core.task.exchange import RowKey, Write

LAST = "\U0010ffff"
"""A character that comes after all those of a name."""


class SQLiteRows:
    """`mail.core.task.exchange.Rows` on a `SQLiteDatabase`, for the event loops of several threads."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._database = database
        self._lock = threading.Lock()  # threads share the connection, and with it a transaction

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        statement = "SELECT text FROM exchange_rows WHERE place = ? AND name = ?"
        found = {key: self._select(statement, key) for key in keys}
        return {key: rows[0][0] for key, rows in found.items() if rows}

    async def find(
        self, place: str, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, str]]:
        return self._select(
            "SELECT name, text FROM exchange_rows WHERE place = ? AND name > ? AND name < ? ORDER BY name LIMIT ?",
            (place, max(prefix, after), prefix + LAST, -1 if limit is None else limit),
        )

    async def write(self, writes: Sequence[Write]) -> bool:
        return await self._database.write(lambda: self._write(writes))

    async def close(self) -> None:
        self._database.close()

    def _select(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values)

    def _write(self, writes: Sequence[Write]) -> bool:
        sql = self._database.connection
        with self._lock:
            try:
                sql.execute("BEGIN IMMEDIATE")
                is_done = all(_apply(sql, each) or each.when is PutIf.ALWAYS for each in writes)
                sql.execute("COMMIT" if is_done else "ROLLBACK")
            except sqlite3.Error as error:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise unavailable(error) from error
        return is_done


def _apply(sql: sqlite3.Connection, write: Write) -> bool:
    """Change a row, and return whether one has changed."""
    where, values = "place = ? AND name = ?", tuple[str, ...](write.key)
    if isinstance(write.when, str):
        where, values = f"{where} AND text = ?", (*write.key, write.when)
    if write.text is None:
        changed = sql.execute(f"DELETE FROM exchange_rows WHERE {where}", values)  # noqa: S608
    elif isinstance(write.when, str) or write.when is PutIf.PRESENT:
        changed = sql.execute(f"UPDATE exchange_rows SET text = ? WHERE {where}", (write.text, *values))  # noqa: S608
    else:
        conflict = "NOTHING" if write.when is PutIf.ABSENT else "UPDATE SET text = excluded.text"
        changed = sql.execute(
            f"INSERT INTO exchange_rows (place, name, text) VALUES (?, ?, ?) ON CONFLICT DO {conflict}",  # noqa: S608
            (*write.key, write.text),
        )
    return changed.rowcount > 0
