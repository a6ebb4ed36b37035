"""Options that several commands share, and how they are read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mail.config import StorageConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")]

ConfigPath = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]"),
]

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="Where tasks are kept: a path, sqlite:///path, none or dynamodb://table. [default: as configured]",
    ),
]


def load_storage(config: Path | None, database: str | None) -> "StorageConfig":
    """The storage that is configured, with what the command line says instead. Raises ConfigurationError."""
    from mail.config import load_config

    return load_config(config).server.with_overrides(database=database).storage
