"""Moves the write-ahead log into the database file beside the event loop, as that waits for the disk."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.engine.pacing import PAUSE_SECONDS
from mail.core.task.documents import IN_MEMORY

CHECKPOINT_BYTES = 4 * 1024 * 1024
"""About how much is written before the log is moved."""

MOVES = 2
"""How many moves a large write waits for, at most: the one that runs, and that of the commits made meanwhile."""

logger = logging.getLogger(__name__)


class WriteAheadLog:
    """The log of a database that this process writes."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._file = None if database.path == IN_MEMORY else Path(database.path).resolve().as_uri()
        self._written = 0
        self._move: asyncio.Future[None] | None = None

    async def settle(self) -> None:
        """Pause before a large write, until the log has been moved.

        A write takes several times as long while the log is being moved, and one that finds a long log moves it itself.
        """
        await asyncio.sleep(PAUSE_SECONDS)
        for _ in range(MOVES):
            move = self._move
            if move is None or move.done():
                if self._file is None or not self._written:
                    return
                move = self._begin(self._file)
            await asyncio.wait([move])

    def add(self, size: int) -> None:
        """Count what a commit has written; move the log, in a thread, if that is much."""
        self._written += size
        if self._file is None or self._written < CHECKPOINT_BYTES:
            return
        if self._move is None or self._move.done():
            _ = self._begin(self._file)

    def _begin(self, file: str) -> asyncio.Future[None]:
        self._written = 0
        self._move = asyncio.get_running_loop().run_in_executor(None, _move, file)
        return self._move


def _move(file: str) -> None:
    try:
        with closing(sqlite3.connect(f"{file}?mode=rw", uri=True, timeout=0.0)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        logger.warning("the write-ahead log was not moved into the database, and is moved later: %s", error)
