"""Moves the write-ahead log into the database file, or to the disk, beside the event loop, as that takes time."""

import asyncio
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from mail.adapters.sqlite.database import FileLocked, SQLiteDatabase
from mail.core.engine.pacing import PAUSE_SECONDS
from mail.core.task.documents import IN_MEMORY
from mail.errors import StoreError

CHECKPOINT_BYTES = 4 * 1024 * 1024
"""About how much is written before the log is moved."""

MOVES = 2
"""How many moves a large write waits for, at most: the one that runs, and that of the commits made meanwhile."""

logger = logging.getLogger(__name__)


class WriteAheadLog:
    """The log of a database that this process writes."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._path = None if database.path == IN_MEMORY else Path(database.path).resolve()
        self._file = None if self._path is None else self._path.as_uri()
        self._is_synced = database.path == IN_MEMORY or database.synchronous == "full"
        self._written = 0
        self._move: asyncio.Future[None] | None = None
        self._syncs = 0
        self._has_name = False
        self._sync: asyncio.Future[None] | None = None

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

    async def sync(self) -> None:
        """Wait until all that was committed is on the disk, whatever `synchronous` is.

        A thread waits for the disk, once for all who ask before it begins. Raises StoreError, but not StoreUnavailable:
        a repeated sync would succeed even if what was to be written is lost.
        """
        if self._is_synced or self._path is None:
            return
        own = self._syncs + 1  # one that runs may have begun before the last commit
        while self._syncs < own:
            if self._sync is None or self._sync.done():
                self._syncs += 1
                self._sync = asyncio.get_running_loop().run_in_executor(
                    None, _sync, self._path, self._has_name
                )
            else:
                await asyncio.wait([self._sync])
        assert self._sync is not None
        sync = self._sync
        await asyncio.wait([sync])
        sync.result()
        self._has_name = True

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


def empty_log(sql: sqlite3.Connection) -> None:
    """Move the log into the database, and shorten it to nothing. Raises FileLocked while somebody reads from it."""
    ((is_busy, _, _),) = sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if is_busy:
        raise FileLocked


def _sync(path: Path, has_name: bool) -> None:
    """Wait until the log, and its name in its folder, are on the disk."""
    try:
        _fsync(path.with_name(f"{path.name}-wal"), os.O_RDWR)
        if not has_name and os.name != "nt":  # where folders can't be opened, and need not be
            _fsync(path.parent, os.O_RDONLY)
    except OSError as error:
        logger.error("the write-ahead log of %s can't be written to the disk: %s", path.name, error)
        raise StoreError from error


def _fsync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
