"""The options that several commands share."""

import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mail.cli.output import Output
from mail.cli.program import DEFAULT_SERVER, SERVER_VARIABLE
from mail.cli.values import Number

if TYPE_CHECKING:
    from mail.config import StorageConfig

as_json = click.option(
    "--json",
    "output",
    is_flag=True,
    callback=lambda _context, _option, given: Output(sys.stdout, given),
    help="Print JSON for programs.",
)
"""Gives a command its `output`."""

config_file = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]",
)

URL_FORMS = "http://host:port, https://host, host:port or swarm://connect?server=host"

server_option = click.option(
    "--server",
    metavar="URL",
    envvar=SERVER_VARIABLE,
    show_envvar=True,
    help=f"{URL_FORMS}. [default: the server that mail.toml configures for this machine, or {DEFAULT_SERVER}]",
)
server_url = click.argument("url", required=False, help="The same as --server.")

api_key = click.option(
    "--api-key",
    metavar="KEY",
    help="Your token, or your key of the server's authentication service. "
    "[default: the token of a swarm:// link, else $MAIL_API_KEY, else the key of a server on this machine]",
)

timeout = partial(click.option, "--timeout", type=Number(min=0.001), metavar="SECONDS")

database = click.option(
    "--database",
    metavar="DATABASE",
    help="The database: a path, sqlite:///path, none, postgresql://user@host/database or dynamodb://table. "
    "[default: as configured]",
)

swarm_of_database = click.option(
    "--swarm-name",
    metavar="NAME",
    help="The swarm, where several servers run in this folder and no database is configured.",
)


def on_server(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the options of every command that asks a server."""
    seconds = timeout(help="Seconds to wait for an answer. [default: as configured in [client]]")
    for decorate in (as_json, config_file, seconds, api_key, server_option):
        function = decorate(function)
    return function


def on_database(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function the options of every command that opens a database."""
    for decorate in (swarm_of_database, database, config_file):
        function = decorate(function)
    return function


def choose_server(url: str | None, server: str | None) -> str | None:
    """Return the server that the command line names; None for none. Raises click.BadParameter if it names two."""
    is_named = server is not None and server != os.environ.get(SERVER_VARIABLE)
    if url is not None and is_named and url != server:
        raise click.BadParameter("name the server once, as URL or with --server", param_hint="--server")
    return server if url is None else url


def run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its result."""
    import asyncio  # late, as `mail --help` has no use for it

    return asyncio.run(coroutine)


def load_storage(config: Path | None, database: str | None, swarm_name: str | None) -> "StorageConfig":
    """Return the configured storage, or the one on the command line. Raises ConfigurationError."""
    from mail.bootstrap.backends import find_database
    from mail.config import load_config

    return find_database(load_config(config).server.with_overrides(database=database).storage, swarm_name)
