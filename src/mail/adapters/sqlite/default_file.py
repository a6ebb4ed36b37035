"""The files of servers without a configured database: `mail.db`, or `mail-<swarm>.db` if another swarm has it.

A swarm that has a file of its own finds it again, whatever else runs in the folder.
"""

import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from mail.adapters.sqlite.database import FileClaimed, SQLiteDatabase, Synchronous
from mail.errors import ConfigurationError, StoreUnavailable

AUTO = "auto"
"""The setting that leaves the choice of the file to this module."""

SHARED_FILE = "mail.db"

NAME_SECONDS = 2.0
"""Seconds in which a server that has claimed a file writes the name of its swarm into it."""


def open_default_file(swarm: str, *, synchronous: Synchronous) -> SQLiteDatabase:
    """Open and claim the file of a swarm. Raises FileClaimed if another server of the same swarm runs on it."""
    if not Path(_own_file(swarm)).exists():
        try:
            return SQLiteDatabase(SHARED_FILE, synchronous=synchronous)
        except FileClaimed:
            if _claimant() == swarm:
                raise
    return SQLiteDatabase(_own_file(swarm), synchronous=synchronous)


def find_default_file(swarm: str | None = None) -> str:
    """Return the file of a swarm, or the only one in this folder. Raises ConfigurationError if that is unclear."""
    files = _default_files()
    if swarm is None and len(files) <= 1:
        return next(iter(files), SHARED_FILE)
    if swarm is not None and _own_file(swarm) in files:
        return _own_file(swarm)
    if swarm is not None and files.get(SHARED_FILE) in (None, swarm):
        return SHARED_FILE
    found = ", ".join(f"{file} ({owner or 'no swarm yet'})" for file, owner in files.items())
    which = "several databases are here" if swarm is None else f"no database of swarm {swarm!r} is here"
    raise ConfigurationError(f"{which}: {found}; choose one with --swarm-name or --database")


def record_swarm(database: SQLiteDatabase, swarm: str) -> None:
    """Write the name of the swarm that runs on a file into it."""
    if _swarm_in(database.connection) == swarm:
        return
    with suppress(StoreUnavailable):  # a file that is locked for a moment is no reason not to start
        database.execute("INSERT OR REPLACE INTO settings (name, value) VALUES ('swarm', ?)", (swarm,))


def _own_file(swarm: str) -> str:
    return f"mail-{quote(swarm, safe=' ')}.db"


def _default_files() -> dict[str, str | None]:
    """Return the files in the current folder that servers have chosen, with the last swarm of each."""
    files = {SHARED_FILE: _read_swarm(SHARED_FILE)} if Path(SHARED_FILE).exists() else {}
    for path in sorted(Path().glob("mail-*.db")):
        swarm = _read_swarm(path.name)
        if swarm is not None and _own_file(swarm) == path.name:
            files[path.name] = swarm
    return files


def _claimant() -> str | None:
    """Return the swarm of the server on `mail.db`; one that starts at this moment is about to write it."""
    deadline = time.monotonic() + NAME_SECONDS
    while (swarm := _read_swarm(SHARED_FILE)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return swarm


def _read_swarm(file: str) -> str | None:
    """Return the last swarm of a file without creating its tables, as the server that claims it does that."""
    try:
        connection = sqlite3.connect(f"file:{quote(file)}?mode=rw", uri=True)
        try:
            return _swarm_in(connection)
        finally:
            connection.close()
    except sqlite3.Error:  # no tables yet, or no database
        return None


def _swarm_in(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT value FROM settings WHERE name = 'swarm'").fetchone()
    return None if row is None else str(row[0])
