"""The only place that wires: which store, queue, workers and authenticator a swarm runs with.

`local` wires the embedded server: one process, one SQLite file. Everything else is handed what it needs.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from importlib.resources import files
from types import TracebackType
from typing import Self

from mail.config import ServerConfig, StorageConfig
from mail.core.agents import SwarmCore
from mail.core.ports import ServerRecords
from mail.core.runtime import Runtime
from mail.core.stamp import SYSTEM_STAMP, Stamp
from mail.errors import ConfigurationError
from mail.queues.local import LocalQueue, LocalWorkers
from mail.stores.sqlite import SQLiteStore
from mail.stores.sqlite_database import TABLES, SQLiteDatabase
from mail.stores.sqlite_records import SQLiteRecords
from mail.swarms_json import build_swarm, load_swarm
from mail.utils.callers import Authenticator, CachedAuthenticator
from mail.utils.tokens import TokenAuthenticator

AUTH_VARIABLES = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT")

TURN_GRACE_SECONDS = 10.0
"""How long running turns may go on when the server is told to stop; longer ones are run again after a start."""


class LocalSystem:
    """A swarm on the embedded store, with all that a front door needs to serve it.

    The database is opened, and claimed, when it is made. Between `start` and `stop`, or as an async context
    manager, tasks are worked on. Raises ConfigurationError where the database can't be used.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        config: ServerConfig,
        *,
        stamp: Stamp = SYSTEM_STAMP,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.swarm = swarm
        self.config = config
        self.stamp = stamp
        self._auth_endpoints = _auth_endpoints(environ)
        self._database = _open(config.storage)
        self.store = SQLiteStore(self._database)
        self.records: ServerRecords = SQLiteRecords(self._database)
        queue = LocalQueue()
        settings = config.settings
        self.runtime = Runtime(swarm, self.store, queue, stamp, turn_seconds=settings.turn_seconds)
        self._workers = LocalWorkers(self.runtime, queue, concurrency=settings.turn_concurrency)
        self._resources = AsyncExitStack()
        self.authenticator = self._make_authenticator()

    @property
    def issues_tokens(self) -> bool:
        """Whether callers show tokens that this server has issued, and not keys of an external service."""
        return self._auth_endpoints is None

    async def start(self) -> None:
        """Take up the tasks that an earlier process left, and work on whatever comes."""
        await self._workers.start()

    async def stop(self, grace: float = TURN_GRACE_SECONDS) -> None:
        """Begin no new turn, give the running ones `grace` seconds, and close everything."""
        try:
            await self._workers.stop(grace)
        finally:
            await self._resources.aclose()
            self._database.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _make_authenticator(self) -> Authenticator:
        if self._auth_endpoints is None:
            return CachedAuthenticator(TokenAuthenticator(self.records))
        import httpx

        from mail.utils.auth_service import AuthService

        client = httpx.AsyncClient()
        self._resources.push_async_callback(client.aclose)
        return CachedAuthenticator(AuthService(client, *self._auth_endpoints))


def local(
    config: ServerConfig, *, stamp: Stamp = SYSTEM_STAMP, environ: Mapping[str, str] = os.environ
) -> LocalSystem:
    """The embedded system for a configuration. Raises ConfigurationError."""
    return LocalSystem(read_swarm(config), config, stamp=stamp, environ=environ)


def read_swarm(config: ServerConfig) -> SwarmCore:
    """The configured swarm, built, with the protocol's text for agents' `help`. Raises ConfigurationError."""
    entry = load_swarm(config.swarm.name, config.swarm.source)
    swarm = build_swarm(
        entry,
        task_message_limit=config.settings.task_message_limit,
        print_llm_streams=config.settings.print_llm_streams,
    )
    return replace(swarm, protocol=files("mail.core").joinpath("protocol.md").read_text(encoding="utf-8"))


def create_tables(storage: StorageConfig) -> tuple[str, ...]:
    """Create what is missing in the configured database; returns the names of its tables.

    Raises ConfigurationError where the database can't be used.
    """
    with _open(storage, own=False):
        return TABLES


@contextmanager
def open_records(storage: StorageConfig) -> Iterator[ServerRecords]:
    """The tokens and settings in the configured database, also while a server runs on it.

    Raises ConfigurationError where the database can't be used.
    """
    with _open(storage, own=False) as database:
        yield SQLiteRecords(database)


def _open(storage: StorageConfig, *, own: bool = True) -> SQLiteDatabase:
    try:
        return SQLiteDatabase(storage.database, own=own, synchronous=storage.synchronous)
    except OSError as error:
        raise ConfigurationError(f"{storage.database} can't be used as a database: {error}") from error


def issues_tokens(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether servers issue their own tokens, as no external service is set. Raises ConfigurationError."""
    return _auth_endpoints(environ) is None


def _auth_endpoints(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The URLs of the external authentication service; None where there is none."""
    login, token_info = (environ.get(name, "") for name in AUTH_VARIABLES)
    if login and token_info:
        return login, token_info
    if login or token_info:
        given, missing = AUTH_VARIABLES if login else reversed(AUTH_VARIABLES)
        raise ConfigurationError(
            f"{given} is set but {missing} is not; set both, or neither for built-in tokens"
        )
    return None
