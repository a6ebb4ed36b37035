"""The typer options that several commands share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.program import DEFAULT_SERVER
from mail.cli.session import SERVER_VARIABLE

if TYPE_CHECKING:
    from mail.config import StorageConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]"
    ),
]

URL_FORMS = "http://host:port, https://host, host:port or swarm://connect?server=host"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar=SERVER_VARIABLE,
        help=f"{URL_FORMS}. [default: the server that mail.toml configures for this machine, or {DEFAULT_SERVER}]",
    ),
]
ServerUrl = Annotated[str | None, typer.Argument(metavar="URL", help="The same as --server.")]

ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Your token, or your key of the server's authentication service. "
        "[default: the token of a swarm:// link, else $MAIL_API_KEY, else the key of a server on this machine]",
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        help="Seconds to wait for an answer. [default: as configured in [client]]",
    ),
]

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="DATABASE",
        help="The database: a path, sqlite:///path, none, postgresql://user@host/database or dynamodb://table. "
        "[default: as configured]",
    ),
]


SwarmOfDatabase = Annotated[
    str | None,
    typer.Option(
        "--swarm-name",
        metavar="NAME",
        help="The swarm, where several servers run in this folder and no database is configured.",
    ),
]


def choose_server(url: str | None, server: str | None) -> str | None:
    """Return the server that the command line names; None for none. Raises typer.BadParameter if it names two."""
    is_named = server is not None and server != os.environ.get(SERVER_VARIABLE)
    if url is not None and is_named and url != server:
        raise typer.BadParameter("name the server once, as URL or with --server", param_hint="--server")
    return server if url is None else url


def load_storage(config: Path | None, database: str | None, swarm: str | None) -> "StorageConfig":
    """Return the configured storage, or the one on the command line. Raises ConfigurationError."""
    from mail.bootstrap.backends import find_database
    from mail.config import load_config

    return find_database(load_config(config).server.with_overrides(database=database).storage, swarm)
