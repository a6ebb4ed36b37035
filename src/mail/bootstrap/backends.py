"""The databases for tasks. A new one is a folder in `mail.adapters`, a line in `BACKENDS` and one in `SCHEMES`."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote

from mail.adapters.local.queue import LocalQueue
from mail.adapters.shared.backend import Backend, Database, WorkQueue
from mail.config import StorageConfig
from mail.config.database import AUTO, SCHEMES, SQLITE
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.error_text import missing_package
from mail.core.task.documents import IN_MEMORY
from mail.core.task.rows import Rows
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.mail2.accounts import Accounts


def _sqlite() -> type[Database]:
    from mail.adapters.sqlite.backend import SQLite

    return SQLite


def _postgres() -> type[Database]:
    from mail.adapters.postgres.backend import PostgreSQL

    return PostgreSQL


def _dynamodb() -> type[Database]:
    from mail.adapters.aws.backend import DynamoDB

    return DynamoDB


BACKENDS: dict[str, Callable[[], type[Database]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "dynamodb": _dynamodb,
}
"""By engine (`StorageConfig.engine`); each is imported when it is used, as its packages may not be installed."""


def open_backend(
    storage: StorageConfig, swarm: str, clock: Clock, *, use: Literal["server", "program"] = "server"
) -> Backend[WorkQueue]:
    """Open the configured database for the tasks of a swarm. Raises ConfigurationError."""
    database = database_of(storage)
    if use in database.not_for:
        raise ConfigurationError(f"{storage.shown}: {database.not_for[use]}")
    local = LocalQueue()
    backend = database.open(swarm, clock, local)
    return replace(backend, depths=local.depths) if backend.queue is local else backend


def find_database(storage: StorageConfig, swarm: str | None) -> StorageConfig:
    """Return the storage with the file that a server of the swarm has chosen, if the choice is left to it.

    None means the only server of the current folder. Raises ConfigurationError if there are several.
    """
    if storage.database != AUTO:
        return storage
    from mail.adapters.sqlite.default_file import find_default_file

    return StorageConfig(**{**storage.model_dump(), "database": find_default_file(swarm)})


def database_of(storage: StorageConfig) -> Database:
    """Return the configured database. Raises ConfigurationError, also in its methods."""
    with explain_missing_package(storage):
        kind = BACKENDS[storage.engine]()
    return kind(storage.database, synchronous=storage.synchronous)


@asynccontextmanager
async def open_documents(storage: StorageConfig) -> AsyncIterator[ServerDocuments]:
    """Open the documents in the configured database, also while a server runs on it. Raises ConfigurationError."""
    async with database_of(storage).open_documents() as documents:
        yield ServerDocuments(documents)


@asynccontextmanager
async def open_accounts(storage: StorageConfig, documents: ServerDocuments) -> AsyncIterator["Accounts"]:
    """Open the accounts of MAIL 2.0 in the configured database, whose documents are open. Raises ConfigurationError."""
    from mail.mail2.accounts import Accounts
    from mail.mail2.records import Stamps

    rows = await database_of(storage).open_rows({})
    try:
        yield Accounts(rows, documents, SYSTEM_CLOCK, Stamps(SYSTEM_CLOCK), "")
    finally:
        await rows.close()


async def open_rows(url: str) -> tuple[Rows, str]:
    """Open the database of an exchange, and return its rows and the name of the exchange.

    See `mail.exchange.open_exchange` for the URL. Raises ConfigurationError.
    """
    place, _, query = url.partition("?")
    scheme = next((scheme for scheme in SCHEMES if place.startswith(scheme)), None)
    rest = "" if scheme is None else place.removeprefix(scheme)
    if scheme is not None and (rest or scheme == SQLITE):
        kind = BACKENDS[SCHEMES[scheme]]()
        if kind.row_options is not None:
            options = _options(scheme, query, ("exchange", *kind.row_options))
            database = kind(unquote(rest) or IN_MEMORY if scheme == SQLITE else place)
            return await database.open_rows(options), options.get("exchange", "")
    shown = f"{url.partition(':')[0]}://…" if "@" in url else url  # an URL with @ may contain a password
    raise ConfigurationError(
        f"an exchange is opened by sqlite:///path.db or dynamodb://table, not by {shown!r:.200}"
    )


def _options(scheme: str, query: str, known: tuple[str, ...]) -> dict[str, str]:
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise ConfigurationError(f"{scheme}…: the part after ? must be name=value") from error
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{scheme}…: there is no option {name!r}; there are: {', '.join(known)}")
    return given


@contextmanager
def explain_missing_package(storage: StorageConfig) -> Iterator[None]:
    """Raise ConfigurationError, with the command that installs it, if a package of the database is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"{storage.shown} needs {missing_package(error)}") from error
