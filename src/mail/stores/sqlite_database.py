"""The SQLite file: its schema, its connection, and who may run turns on it."""

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from mail.errors import ConfigurationError

IN_MEMORY = ":memory:"

SCHEMA_VERSION = 1

# What costs is the number of pages that a commit touches. So whatever a commit appends for good, its events
# and its agent's new history, is one row at the end of its task's rows (see `commit_id`); in a WITHOUT ROWID
# table most such rows would spill into pages of their own. Inboxes are small, so there it saves the index.
SCHEMA = """
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    instance TEXT NOT NULL,
    task_id TEXT NOT NULL,
    status TEXT NOT NULL,
    deadline REAL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    UNIQUE (instance, task_id)
);
CREATE INDEX tasks_of_instance ON tasks (instance, id);
CREATE INDEX running_tasks ON tasks (status, deadline) WHERE status = 'running';
CREATE TABLE inbox (
    task INTEGER NOT NULL REFERENCES tasks,
    mailbox TEXT NOT NULL,
    tier INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    checkpoint TEXT,
    PRIMARY KEY (task, mailbox, tier, seq)
) WITHOUT ROWID;
CREATE TABLE commits (
    id INTEGER PRIMARY KEY,
    agent TEXT,
    n INTEGER,
    events TEXT NOT NULL,
    history TEXT
);
CREATE TABLE responses (
    task INTEGER NOT NULL REFERENCES tasks,
    generation INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (task, generation)
);
CREATE TABLE tokens (
    digest TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    id TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""

TABLES = ("tasks", "inbox", "commits", "responses", "tokens", "settings")


def commit_id(task_row: int, seq: int) -> int:
    """The row of the commit whose last event is `seq`: rows are in the order of their task, then of their seq."""
    return task_row << 32 | seq


Synchronous = Literal["normal", "full"]
"""`normal` survives the death of the process at any moment; `full` the loss of power as well, at a price."""


class SQLiteDatabase:
    """One connection to a file (or `:memory:`), in WAL mode, with the schema in place.

    With `own=True` this process claims the right to run turns: a second one that does gets a
    ConfigurationError. Others may still read, and add tokens. The claim ends with the process.
    """

    def __init__(self, path: str | Path, *, own: bool = True, synchronous: Synchronous = "normal") -> None:
        self.path = str(path)
        self._claim: sqlite3.Connection | None = None
        if self.path != IN_MEMORY:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            if own:
                self._claim = _claim(self.path)
        try:
            # one thread uses it at a time, but not always the one that opened it: an embedding app may hand it on
            self.connection = sqlite3.connect(
                self.path, isolation_level=None, timeout=10.0, check_same_thread=False
            )
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._migrate()
        except sqlite3.DatabaseError as error:
            self.close()
            raise ConfigurationError(f"{self.path} can't be used as a database: {error}") from error
        except BaseException:
            self.close()
            raise

    def _migrate(self) -> None:
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self.connection.executescript(
                f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        elif version != SCHEMA_VERSION:
            raise ConfigurationError(
                f"{self.path} has schema version {version}, this program needs {SCHEMA_VERSION}; "
                "use another database file or another version of this program"
            )

    def close(self) -> None:
        """Close the connection and give up the claim."""
        for connection in (getattr(self, "connection", None), self._claim):
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _claim(path: str) -> sqlite3.Connection:
    """Hold an exclusive lock beside the database for as long as the process lives."""
    try:
        lock = sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=0.0, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise ConfigurationError(
                f"another server runs on {path}; stop it, or give this one a database of its own"
            ) from error
        raise ConfigurationError(f"{path}.lock can't be used as a lock: {error}") from error
    return lock
