"""The only place that wires: which store, queue, workers and authenticator a swarm runs with.

    local(config)   what `mail server` runs, on an SQLite file                `local_system`
                    or on PostgreSQL, which any number of servers share       `postgres_system`
    embedded(swarm) a swarm inside of another program, by default in memory   `embedded_system`
    aws(config)     a function's process: DynamoDB and SQS                    `aws_system`

Everything else is handed what it needs. No system imports what only another one uses.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from mail.bootstrap.shared import auth_endpoints, build_configured, read_entry, read_swarm, with_protocol
from mail.config import ServerConfig, StorageConfig, TelemetryConfig
from mail.config.database import IN_MEMORY
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import ServerRecords, Store
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError

__all__ = [
    "aws",
    "create_tables",
    "embedded",
    "interswarm_registry",
    "interswarm_router",
    "issues_tokens",
    "local",
    "log_formatter",
    "open_records",
    "read_parameters",
    "read_swarm",
]

if TYPE_CHECKING:
    from mail.bootstrap.aws_system import AwsSystem
    from mail.bootstrap.embedded_system import EmbeddedSystem
    from mail.bootstrap.system import ServerSystem
    from mail.config.aws import AwsConfig
    from mail.core.engine.telemetry import Observers
    from mail.net import InterswarmRouter, SwarmRegistry


def local(
    config: ServerConfig,
    *,
    swarm: SwarmCore | None = None,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
) -> "ServerSystem":
    """The system of `mail server` for a configuration, or for a swarm in place of the configured one.

    Raises ConfigurationError.
    """
    kind = _server_system(config.storage)
    if swarm is not None:
        return kind(with_protocol(swarm), config, clock=clock, environ=environ)
    entry = read_entry(config)
    return kind(build_configured(entry, config), config, entry=entry, clock=clock, environ=environ)


def embedded(
    swarm: SwarmCore, *, database: Store | str = IN_MEMORY, clock: Clock = SYSTEM_CLOCK
) -> "EmbeddedSystem":
    """The system of a swarm that a program has built itself; see `EmbeddedSystem`. Raises ConfigurationError."""
    from mail.bootstrap.embedded_system import EmbeddedSystem

    return EmbeddedSystem(swarm, database=database, clock=clock)


def aws(
    config: "AwsConfig",
    *,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
    observers: "Observers" = (),
) -> "AwsSystem":
    """The system of one function's process; `observers` measure it. Raises ConfigurationError."""
    from mail.bootstrap.aws_system import AwsSystem

    entry = read_entry(config.server)
    return AwsSystem(
        build_configured(entry, config.server),
        config,
        entry=entry,
        clock=clock,
        environ=environ,
        observers=observers,
    )


def interswarm_registry(
    name: str,
    base_url: str,
    file: str | None = None,
    *,
    description: str = "",
    keywords: Sequence[str] = (),
    public: bool = False,
) -> "SwarmRegistry":
    """The swarms that a swarm knows which a program has built itself; see `SwarmRegistry`. Raises ConfigurationError."""
    from mail.net import SwarmRegistry

    return SwarmRegistry(name, base_url, file, description, keywords, public)


def interswarm_router(registry: "SwarmRegistry") -> "InterswarmRouter":
    """What delivers mail to the swarms of a registry."""
    from mail.net import InterswarmRouter

    return InterswarmRouter(registry, registry.local_swarm_name)


def log_formatter(config: TelemetryConfig) -> logging.Formatter | None:
    """Return the formatter of the configured log format; None for the default format."""
    if config.log_format != "json":
        return None
    from mail.adapters.telemetry.json_log import JSONFormatter

    return JSONFormatter()


def read_parameters(path: str) -> dict[str, str]:
    """Read all SSM parameters under a path, decrypted, by name."""
    from mail.adapters.aws.client import Aws
    from mail.adapters.aws.parameters import Parameters

    ssm = Aws().client("ssm")
    try:
        return Parameters(ssm, path).read_all()
    finally:
        ssm.close()


async def create_tables(storage: StorageConfig) -> tuple[str, ...]:
    """Create what is missing in the configured database; returns the names of its tables.

    Raises ConfigurationError where the database can't be used.
    """
    if storage.dynamodb_table is not None:
        from mail.bootstrap.aws_system import create_dynamodb_table

        return await create_dynamodb_table(storage.dynamodb_table)
    if storage.postgres_url is not None:
        with _needs_psycopg(storage):
            from mail.bootstrap.postgres_system import create_postgres_tables

        return create_postgres_tables(storage.postgres_url)
    from mail.adapters.sqlite.database import TABLES
    from mail.bootstrap.local_system import open_sqlite

    with open_sqlite(storage, own=False):
        return TABLES


@asynccontextmanager
async def open_records(storage: StorageConfig) -> AsyncIterator[ServerRecords]:
    """The tokens and settings in the configured database, also while a server runs on it.

    Raises ConfigurationError where the database can't be used.
    """
    if storage.dynamodb_table is not None:
        from mail.bootstrap.aws_system import open_dynamodb_records

        async with open_dynamodb_records(storage.dynamodb_table) as records:
            yield records
        return
    if storage.postgres_url is not None:
        with _needs_psycopg(storage):
            from mail.bootstrap.postgres_system import open_postgres_records

        async with open_postgres_records(storage.postgres_url) as records:
            yield records
        return
    from mail.adapters.sqlite.documents import SQLiteRecords
    from mail.bootstrap.local_system import open_sqlite

    with open_sqlite(storage, own=False) as database:
        yield SQLiteRecords(database)


def issues_tokens(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether servers issue their own tokens, as no external service is set. Raises ConfigurationError."""
    return auth_endpoints(environ) is None


def _server_system(storage: StorageConfig) -> "type[ServerSystem]":
    if storage.postgres_url is not None:
        with _needs_psycopg(storage):
            from mail.bootstrap.postgres_system import PostgresSystem

        return PostgresSystem
    from mail.bootstrap.local_system import LocalSystem

    return LocalSystem


@contextmanager
def _needs_psycopg(storage: StorageConfig) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{storage.shown} needs {error.name}: pip install 'mail[postgres]'"
        ) from error
