"""The typer options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.session import SERVER_VARIABLE

if TYPE_CHECKING:
    from mail.config import StorageConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

ConfigPath = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]"),
]

URL_FORMS = "http://host:port, https://host, host:port or swarm://connect?server=host"

ServerUrl = Annotated[str, typer.Argument(metavar="URL", envvar=SERVER_VARIABLE, help=URL_FORMS)]
ServerOption = Annotated[str, typer.Option("--server", metavar="URL", envvar=SERVER_VARIABLE, help=URL_FORMS)]

ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Your token, or your key of the server's authentication service. "
        "[default: the token of a swarm:// link, else $MAIL_API_KEY]",
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0.001, help="Seconds to wait for an answer. [default: as configured in [client]]"
    ),
]

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="The database: a path, sqlite:///path, none, postgresql://user@host/database or dynamodb://table. "
        "[default: as configured]",
    ),
]


SwarmOfDatabase = Annotated[
    str | None,
    typer.Option(
        "--swarm-name",
        help="The swarm, where several servers run in this folder and no database is configured.",
    ),
]


def load_storage(config: Path | None, database: str | None, swarm: str | None) -> "StorageConfig":
    """Return the configured storage, or the one on the command line. Raises ConfigurationError."""
    from mail.bootstrap.backends import find_database
    from mail.config import load_config

    return find_database(load_config(config).server.with_overrides(database=database).storage, swarm)
