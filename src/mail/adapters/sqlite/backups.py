"""Copies of an SQLite file: made while a server runs on it, and restored while none does."""

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from mail.adapters.sqlite.database import SCHEMA_VERSION, claim, copy_into
from mail.core.task.documents import IN_MEMORY
from mail.errors import ConfigurationError

logger = logging.getLogger(__name__)


def back_up(database: str, target: Path) -> None:
    """Write a consistent copy of a file into a new one, which only its owner can read.

    A server may work on the file meanwhile. Raises ConfigurationError; then `target` does not exist.
    """
    if target.exists():
        raise ConfigurationError(f"{target} exists already; name a new file")
    with _explained(target), closing(_open(database)) as connection:
        copy_into(connection, target)


def restore(backup: Path, database: str) -> Path | None:
    """Replace a file by a backup. Return the file to which the present one was moved, if there is one.

    Raises ConfigurationError, and changes nothing, if the backup can't be read or a server works on the file.
    """
    if database == IN_MEMORY:
        raise ConfigurationError("a database in memory can't be restored; name a file with --database")
    path = Path(database)
    restored = path.with_name(f"{path.name}.restored")
    with _explained(backup), closing(_open(str(backup))) as connection:
        _check(connection, backup)
        with closing(claim(database)):
            copy_into(connection, restored)
            replaced = _set_aside(path) if path.exists() else None
            restored.replace(path)
            return replaced


def _open(file: str) -> sqlite3.Connection:
    if file == IN_MEMORY or not Path(file).is_file():
        raise ConfigurationError(f"there is no database {file}")
    return sqlite3.connect(f"file:{quote(os.path.realpath(file))}?mode=ro", uri=True, isolation_level=None)


def _check(connection: sqlite3.Connection, backup: Path) -> None:
    """Raise ConfigurationError unless a file has the tables of a version that this program reads."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not {"tasks", "commits"} <= tables:
        raise ConfigurationError(f"{backup} is not a database of MAIL")
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"{backup} has schema version {version}, this program needs {SCHEMA_VERSION}; install a newer version of it"
        )


def _set_aside(path: Path) -> Path:
    """Move a database that nobody has opened to a new name, with the write-ahead log that a crash has left."""
    aside = path.with_name(f"{path.stem}-replaced-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    if aside.exists():
        raise ConfigurationError(f"{aside} exists already; try again in a second")
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log must never meet another file
    except sqlite3.DatabaseError:
        logger.warning("%s is damaged; it is kept as it is", path)
    for end in ("-wal", "-shm", "-turns", "-search", "-search-wal", "-search-shm"):
        part = path.with_name(path.name + end)
        if part.exists():
            part.replace(aside.with_name(aside.name + end))
    path.replace(aside)
    return aside


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Raise ConfigurationError that names a file, for an error of SQLite or of the system."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"{file} can't be used for a backup: {why}") from error
