"""Debian's PostgreSQL, started once per test process in a folder of its own, and databases on it.

It listens on a free loopback port, where it asks for a password. `initdb` refuses root, so that root becomes the user
that the package has made. Without its programs the tests are skipped; in CI they fail.
"""

import asyncio
import atexit
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from mail.adapters.postgres.backend import PostgresDocuments, PostgresFiles
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.rows import PostgresRows
from mail.adapters.postgres.schema import TABLES, prepare
from mail.adapters.postgres.store import PostgresStore
from mail.core.engine.documents import ServerDocuments
from mail.core.task.ports import Files, Store, TurnQueue
from mail.core.task.rows import Rows
from mail.core.task.task import TaskKey
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, system_environment
from mail.testing.agents import NAME
from mail.testing.changes import NOW

PROGRAMS = Path("/usr/lib/postgresql")
PACKAGE_USER = "postgres"
TIMEOUT = 60.0

USER, PASSWORD = "mail", "s3cret/@:?#%"
"""Every character of it has to be written otherwise in a URL."""

SETTINGS = {
    "fsync": "off",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
}

_BECOME = (
    "import os, sys; os.setgroups([]); os.setgid({1}); os.setuid({0}); os.execv(sys.argv[1], sys.argv[1:])"
)


def has_postgres() -> bool:
    """Whether PostgreSQL can be started. In CI it must be: a missing engine there is a failure, not a skip."""
    if _programs() is not None and _user() is not None:
        return True
    if os.environ.get("CI"):
        raise RuntimeError("PostgreSQL is not installed; run: python3 scripts/dev.py postgres")
    return False


def _programs() -> Path | None:
    found = sorted(PROGRAMS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).resolve().parent if elsewhere else None


def _user() -> pwd.struct_passwd | None:
    """Who may run it: this user or, in the place of root, that of the package."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(PACKAGE_USER)
    except KeyError:
        return None


class PostgresServer:
    """A server with an empty cluster.

    `url` leads to one of its databases; `stop` and `start` are for tests of trouble.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        programs, user = _programs(), _user()
        assert programs is not None
        assert user is not None
        self._programs = programs
        self._become = (
            [sys.executable, "-I", "-S", "-c", _BECOME.format(user.pw_uid, user.pw_gid)]
            if os.geteuid() == 0
            else []
        )
        self.folder = Path(tempfile.mkdtemp(prefix="mail-pg-"))
        self.port = free_port()
        password = self.folder / "password"
        password.write_text(PASSWORD)
        for path in (self.folder, password):
            os.chown(path, user.pw_uid, user.pw_gid)
        subprocess.run(
            [
                *self._become, str(programs / "initdb"), "--pgdata", str(self.folder / "data"), "--no-sync",
                "--username", USER, "--pwfile", str(password), "--auth", "scram-sha-256",
                "--encoding", "UTF8", "--locale", "C",
            ],
            check=True, capture_output=True, env=system_environment(), cwd=self.folder,
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, at first or again."""
        settings = {
            **self._settings,
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        self._process = KeptProcess(
            [
                *self._become, str(self._programs / "postgres"), "-D", str(self.folder / "data"),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            env=system_environment(), cwd=self.folder,
        )  # fmt: skip
        self._process.wait_until(self._answers, seconds=TIMEOUT, name="PostgreSQL")

    def stop(self) -> None:
        """End it, and with it all sessions, by its process id."""
        os.kill(self.number, 2)  # a fast shutdown: clients are not waited for
        deadline = time.monotonic() + TIMEOUT
        while self._process.ended is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._process.stop()

    @property
    def number(self) -> int:
        """Its process id."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def remove(self) -> None:
        """End it, and delete all that it has written."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", *, password: str = PASSWORD) -> str:
        """Where a database is."""
        return f"postgresql://{USER}:{quote(password, safe='')}@{LOOPBACK}:{self.port}/{database}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@cache
def postgres_server() -> PostgresServer:
    """The server that the tests of this process share."""
    server = PostgresServer()
    atexit.register(server.remove)
    return server


def make_database(server: str) -> str:
    """The URL of a new database with empty tables, on the server of this URL."""
    name = f"mail_{uuid.uuid4().hex}"
    execute(server, SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name)))
    url = f"{server.rpartition('/')[0]}/{name}"
    prepare(url)
    return url


def drop_database(url: str) -> None:
    """Delete a database, even one in use."""
    server, _, name = url.rpartition("/")
    execute(f"{server}/postgres", SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def execute(url: str, statement: SQL | Composed) -> None:
    """Run a statement, but in no transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


_END_OTHERS = SQL(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def break_connections(url: str) -> None:
    """End all sessions of a database, as a network or a failover would."""
    execute(url, _END_OTHERS)


_clean: list[str] = []
"""The URLs of databases with empty tables: to empty one takes less time than to make one."""

_ROWS = defaultdict(lambda: SQL("true"), settings=SQL("name <> 'schema_version'"))


def borrow_database(server: str = "") -> str:
    """The URL of a database with empty tables, on the server of this URL (default: that of this process)."""
    return _clean.pop() if _clean else make_database(server or postgres_server().url())


def return_database(url: str) -> None:
    """Let others have a database; its connections are closed."""
    delete = (SQL("DELETE FROM mail.{} WHERE {}").format(Identifier(table), _ROWS[table]) for table in TABLES)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_END_OTHERS)
        connection.execute(SQL(";").join(delete))
    _clean.append(url)


class PostgresAdapter:
    """A fresh database, and one store on it; `another` gives more, each as a server of its own would have it."""

    leases_outlive_process = True

    def __init__(self) -> None:
        self._open: list[tuple[Postgres, Notifier]] = []

    async def open(self) -> None:
        self.url = borrow_database()
        await self.reopen()

    async def close(self) -> None:
        await self.leave()
        return_database(self.url)

    async def size(self) -> int:
        ((size,),) = await self._open[-1][0].fetch(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relnamespace = 'mail'::regnamespace AND relkind = 'r'"
        )
        return int(size)

    async def reopen(self) -> Store:
        await self.leave()
        self.store: Store = await self.another()
        self.records: ServerDocuments = ServerDocuments(PostgresDocuments(self._open[-1][0]))
        self.files: Files = PostgresFiles(self._open[-1][0])
        self.rows: Rows = PostgresRows(*self._open[-1])
        return self.store

    async def another(self) -> PostgresStore:
        """Another store on the database, as another server has one."""
        postgres = Postgres(self.url)
        notifier = Notifier(postgres)
        await notifier.start()
        self._open.append((postgres, notifier))
        return PostgresStore(postgres, notifier, clock=lambda: NOW)

    async def leave(self) -> None:
        """Close all that is open."""
        while self._open:
            postgres, notifier = self._open.pop()
            await notifier.stop()
            await postgres.close()


class PostgresQueueAdapter:
    """The queue of one server, on a database of its own."""

    TIMEOUT = 0.25
    """Seconds that a look takes at most: a worker that gives up earlier has not looked at all."""

    def __init__(self) -> None:
        self.url = borrow_database()
        self._postgres = Postgres(self.url)
        self._postgres_queue = PostgresQueue(self._postgres, Notifier(self._postgres), NAME)
        self.queue: TurnQueue = self._postgres_queue

    async def take(self, seconds: float) -> tuple[TaskKey, str] | None:
        try:
            async with asyncio.timeout(max(seconds, self.TIMEOUT)):
                return await self._postgres_queue.take()
        except TimeoutError:
            return None

    async def close(self) -> None:
        await self._postgres_queue.close()
        await self._postgres.close()
        return_database(self.url)


async def waits(url: str, count: int) -> None:
    """Return once so many statements wait for a lock."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(60):
        while True:
            found = await connection.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if found.rowcount >= count:
                return
            await asyncio.sleep(0.005)


def lose_answer(store: PostgresStore) -> None:
    """Let the connection break right after the next piece of work is done, before anybody knows of it."""
    run = store._sql.run
    lost: list[Any] = []

    async def run_and_lose(work: Any) -> Any:
        async def work_and_lose(connection: Any, is_again: bool) -> Any:
            result = await work(connection, is_again)
            if not lost:
                lost.append(result)
                raise psycopg.OperationalError("the connection is lost")
            return result

        return await run(work_and_lose)

    store._sql.run = run_and_lose  # type: ignore[method-assign]
