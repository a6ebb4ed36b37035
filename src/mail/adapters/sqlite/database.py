"""The SQLite file: its schema, its connection, and the claim of the process that runs turns on it."""

import asyncio
import logging
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

from mail.adapters.shared.statements import Dialect
from mail.core.task.documents import IN_MEMORY
from mail.errors import ConfigurationError, StoreUnavailable

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

DIALECT = Dialect("", parameter=":{}", merge="json_patch({}, {})", json="TEXT", each="json_each")

# A commit is one row, with the task's state after it: so a turn costs one statement, and a task can be read as it was
# after any commit. Only an imported task, with the histories of several agents, has a row for each, with the first
# events; and a fork has a row, with a negative seq, for each portion of a history that it has inherited, and rows
# without a state for all but the last slice of the mail that it has taken over. `tasks` has
# only the columns that tasks are looked up by; it changes when a task starts, stops or is due at another time.
# `delivered` has the mail that was delivered, [[mailbox, tier, seq], …], and `read_mailbox` and `read_seq` the mail
# that was consumed; the messages themselves are in the events of their commits. `read_seq` is a JSON list if several
# messages were consumed; one of another mailbox follows that mailbox's name. `delivering` is 1 while outbound mail
# waits, `dead` while there are dead letters; `bytes` is what a task that has stopped stores. Short columns come first,
# as long ones may spill to overflow pages.
SCHEMA = """
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    instance TEXT NOT NULL,
    task_id TEXT NOT NULL,
    status TEXT NOT NULL,
    due REAL,
    delivering INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (instance, task_id)
);
CREATE INDEX tasks_of_instance ON tasks (instance, id);
CREATE INDEX due_tasks ON tasks (due) WHERE due IS NOT NULL;
CREATE INDEX running_tasks_of_instance ON tasks (instance) WHERE status = 'running';
CREATE INDEX delivering_tasks ON tasks (id) WHERE delivering;
CREATE INDEX tasks_with_dead_letters ON tasks (instance, id) WHERE dead;
CREATE TABLE commits (
    id INTEGER PRIMARY KEY,
    agent TEXT,
    n INTEGER,
    ended INTEGER,
    delivered TEXT,
    read_mailbox TEXT,
    read_seq INTEGER,
    state TEXT NOT NULL,
    events TEXT NOT NULL,
    history TEXT,
    response TEXT
);
CREATE TABLE checkpoints (
    task INTEGER NOT NULL REFERENCES tasks,
    mailbox TEXT NOT NULL,
    seq INTEGER NOT NULL,
    checkpoint TEXT,
    park TEXT,
    PRIMARY KEY (task, mailbox, seq)
);
CREATE TABLE waits (
    task INTEGER NOT NULL REFERENCES tasks,
    id TEXT NOT NULL,
    due REAL,
    record TEXT NOT NULL,
    PRIMARY KEY (task, id)
) WITHOUT ROWID;
CREATE INDEX waits_in_order ON waits (task, due, id) WHERE due IS NOT NULL;
CREATE TABLE asks (
    who TEXT NOT NULL,
    id TEXT NOT NULL,
    task INTEGER NOT NULL REFERENCES tasks,
    PRIMARY KEY (who, id)
) WITHOUT ROWID;
CREATE INDEX asks_of_tasks ON asks (task);
CREATE TABLE contents (
    task INTEGER NOT NULL REFERENCES tasks,
    ref TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (task, ref)
);
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE documents (
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    fields TEXT NOT NULL,
    expires REAL,
    PRIMARY KEY (kind, owner, name)
);
CREATE INDEX expired_documents ON documents (kind, expires) WHERE expires IS NOT NULL;
CREATE TABLE files (
    instance TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    size INTEGER NOT NULL,
    secret TEXT NOT NULL,
    until REAL,
    kept INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (instance, id)
);
CREATE INDEX unused_files ON files (until) WHERE until IS NOT NULL;
CREATE TABLE task_files (
    instance TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (instance, task_id, id)
) WITHOUT ROWID;
CREATE INDEX tasks_of_files ON task_files (instance, id);
CREATE TABLE rows (
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    entered TEXT,
    sent TEXT,
    text TEXT NOT NULL,
    PRIMARY KEY (place, name)
);
CREATE INDEX rows_as_entered ON rows (place, entered, name) WHERE entered IS NOT NULL;
CREATE INDEX rows_as_sent ON rows (place, sent, name) WHERE sent IS NOT NULL;
"""

MIGRATIONS: dict[int, str] = {}
"""The migration from each earlier version of the schema to the next."""

LONGEST_LOG = 16_384
"""Pages (64 MiB) of the write-ahead log from which a commit moves it itself (see
`mail.adapters.sqlite.write_ahead_log`).
"""

TABLES: tuple[str, ...] = tuple(re.findall(r"CREATE TABLE (\w+)", SCHEMA))


def commit_id(task_row: int, seq: int) -> int:
    """Return the id of the commit whose last event is `seq`. Ids are ordered by task, then by seq.

    The portions of histories that a fork has inherited are rows with a negative seq.
    """
    return (task_row << 32) + seq


OPEN_SECONDS = 10.0
"""Seconds to wait for another process that has locked the file while it is opened."""

BUSY_MILLISECONDS = 10
"""The same for a statement, which holds up the event loop; a write that fails is repeated off it."""

RETRY_SECONDS = 0.05

LOCK_TIMEOUT = 5.0
"""Seconds that a write waits for another process to unlock the file."""

TURN_LOCK_TIMEOUT = 30.0
"""The same for a turn, which would have to call its model again."""

Synchronous = Literal["normal", "full"]
"""`normal` survives a crash of the process at any time; `full` also survives a power loss, at a price."""


class FileClaimed(ConfigurationError):
    """A server in another process runs on the file."""


class FileLocked(StoreUnavailable):
    """Another process has locked the database for writing; try again later."""


class SQLiteDatabase:
    """One connection to a file (or `:memory:`), in WAL mode, with the schema in place.

    With `own=True` this process claims the right to run turns: a second process that does so gets a ConfigurationError,
    but may still open the file without a claim, to read and to add tokens. The claim ends with the process.
    """

    def __init__(self, path: str | Path, *, own: bool = True, synchronous: Synchronous = "normal") -> None:
        self.path = str(path)
        self.synchronous = synchronous
        self._claim: sqlite3.Connection | None = None
        self._queue = asyncio.Lock()
        self._is_locked = False  # by another process, when this one last tried to write in turn
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        if self.path != IN_MEMORY:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            Path(self.path).touch(mode=0o600)
            if own:
                self._claim = claim(self.path)
        try:
            # one thread uses it at a time, but not always the one that opened it
            self.connection = self._connect(OPEN_SECONDS)
            self._migrate()
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        except sqlite3.DatabaseError as error:
            self.close()
            raise ConfigurationError(f"{self.path} can't be used as a database: {error}") from None
        except BaseException:
            self.close()
            raise

    def _connect(self, lock_timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, timeout=lock_timeout, check_same_thread=False
        )
        try:
            if connection.execute("PRAGMA page_count").fetchone() == (0,):
                # only a new file takes it; with it, the file can give space back to the disk
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            # what moves to another page leaves no copy that a later deletion would not find; it costs no write
            connection.execute("PRAGMA secure_delete = FAST").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self) -> None:
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        steps = [SCHEMA] if version == 0 else [MIGRATIONS.get(n) for n in range(version, SCHEMA_VERSION)]
        if version > SCHEMA_VERSION or None in steps:
            raise ConfigurationError(
                f"{self.path} has schema version {version}, this program needs {SCHEMA_VERSION}; "
                "use another database file or another version of this program"
            )
        if steps:
            if version and self.path != IN_MEMORY:
                path = Path(self.path)
                copy = path.with_name(f"{path.stem}-schema-{version}{path.suffix}")
                copy_into(self.connection, copy)
                logger.info("copied %s to %s before its migration to schema %d", path, copy, SCHEMA_VERSION)
            script = "\n".join(map(str, steps))
            self.connection.executescript(
                f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )

    def execute(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows. Raises StoreUnavailable for an error of SQLite."""
        try:
            return self.connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise unavailable(error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing on the connection. Raises StoreUnavailable for an error of SQLite."""
        try:
            with transaction(self.connection):
                yield self.connection
        except sqlite3.Error as error:
            raise unavailable(error) from error

    @property
    def is_waiting(self) -> bool:
        """Whether writes wait for another process to unlock the file, and others must wait behind them."""
        return self._queue.locked()

    async def write[T](self, attempt: Callable[[], T], *, lock_timeout: float | None = None) -> T:
        """Call a function that writes, and again while another process has locked the file.

        The first call is made at once, on this thread. Later ones leave the event loop to others in between, and only
        one of the waiting writes is tried at a time. Raises FileLocked if the file stays locked for `lock_timeout`
        seconds, by default LOCK_TIMEOUT.
        """
        if not self.is_waiting:
            try:
                return attempt()
            except FileLocked:
                pass

        async def attempt_again() -> T:
            return attempt()

        return await self.write_in_turn(attempt_again, lock_timeout=lock_timeout)

    async def write_in_turn[T](
        self, attempt: Callable[[], Awaitable[T]], *, lock_timeout: float | None = None
    ) -> T:
        """Await what writes, after the writes that wait already and before all others.

        While another process has locked the file, it is repeated. Raises FileLocked as `write` does, and
        StoreUnavailable if other writes of this process take so long.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock belongs to one event loop
            self._loop, self._queue = loop, asyncio.Lock()
        seconds = LOCK_TIMEOUT if lock_timeout is None else lock_timeout
        try:
            async with asyncio.timeout(seconds) as limit, self._queue:
                while True:
                    end = limit.when()
                    limit.reschedule(None)  # it limits the wait, not the write
                    try:
                        done = await attempt()
                    except FileLocked:
                        self._is_locked = True
                    else:
                        self._is_locked = False
                        return done
                    limit.reschedule(end)
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            if not self._is_locked:
                raise StoreUnavailable(
                    "the database is busy with other writes of this server; try again later"
                ) from None
            logger.error("another process has locked %s for %g seconds", self.path, seconds)
            raise FileLocked(
                f"Another process has locked the database {Path(self.path).name}; try again later"
            ) from None

    def in_thread[T](self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Begin to call a function in a thread, with a connection of its own to the file.

        Meanwhile the other connection reads what was committed before. Only what `write_in_turn` awaits may write so.
        The result is StoreUnavailable, and nothing is written, for an error of SQLite.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "mail-sqlite")
        return asyncio.get_running_loop().run_in_executor(self._thread, self._connected, work)

    def _connected[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(self._connect(BUSY_MILLISECONDS / 1000)) as connection:
                return work(connection)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def close(self) -> None:
        """Close the connection and end the claim."""
        if self._thread is not None:
            self._thread.shutdown()
        for connection in (getattr(self, "connection", None), self._claim):
            if connection is not None:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def transaction(sql: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing: nothing also if the transaction was rolled back inside."""
    sql.execute("BEGIN IMMEDIATE")
    try:
        yield
        if sql.in_transaction:
            sql.execute("COMMIT")
    except BaseException:
        if sql.in_transaction:
            sql.execute("ROLLBACK")
        raise


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """Return the error of MAIL for one of SQLite, and log it unless a retry may help."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return FileLocked()
    logger.error("the database refused a statement: %s", error)
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable("the disk of the database is full; make room, and try again")
    return StoreUnavailable()


def claim(path: str) -> sqlite3.Connection:
    """Take an exclusive lock beside the database; it ends with the process."""
    file = os.path.realpath(path)  # the claim is on the file, by whatever name it is opened
    _make_private(Path(f"{file}.lock"))
    try:
        lock = sqlite3.connect(f"{file}.lock", isolation_level=None, timeout=0.0, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise FileClaimed(
                f"another server or program works with {path}; stop it, or use another file, such as "
                f"{Path(path).stem}-2.db (--database, or database= in Python)"
            ) from None
        raise ConfigurationError(f"{path}.lock can't be used as a lock: {error}") from None
    return lock


PAGES_AT_ONCE = 1024
"""Unused pages (4 MiB) that are given back to the disk between two writes of others."""


def give_space_back(sql: sqlite3.Connection) -> bool:
    """Shorten the file by some of its unused pages; return whether that can be repeated.

    SQLite searches the list of them for each: so a transaction that frees many shortens the file before its end. A file
    that was made without `auto_vacuum` keeps its space.
    """
    ((before,),) = sql.execute("PRAGMA freelist_count")
    sql.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
    ((unused,),) = sql.execute("PRAGMA freelist_count")
    return bool(0 < unused < before)


def copy_into(connection: sqlite3.Connection, target: Path) -> None:
    """Write a consistent copy of a database to a file, which appears, or is replaced, once it is on the disk."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        connection.execute("VACUUM INTO ?", (str(part),))
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _make_private(lock: Path) -> None:
    """Let only the owner open the lock file, which SQLite's journal imitates: who can read a lock can take it."""
    lock.touch(mode=0o600)
    for file in (lock, lock.with_name(f"{lock.name}-journal")):
        with suppress(FileNotFoundError, PermissionError):  # another user's file may still be usable
            file.chmod(0o600)
