"""`python -m mail.server`, the same as `mail server`; the server is imported when the command runs."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mail import startup
from mail.errors import ConfigurationError, MAILError


class Switch(StrEnum):
    """A boolean as a word on the command line."""

    TRUE = "true"
    FALSE = "false"


def server(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="The port to listen on; 0 picks a free one."),
    ] = None,
    reload: Annotated[
        bool | None,
        typer.Option("--reload/--no-reload", help="Restart when code, swarms.json or mail.toml changes."),
    ] = None,
    debug: Annotated[
        bool | None, typer.Option("--debug/--no-debug", help="Log more, and serve the debugging endpoints.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]",
        ),
    ] = None,
    swarm_name: Annotated[str | None, typer.Option(metavar="NAME", help="The swarm to run.")] = None,
    swarm_source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The swarms.json file that defines it, or python::module:name."),
    ] = None,
    swarm_registry: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file that lists the known swarms.")
    ] = None,
    print_llm_streams: Annotated[
        Switch | None, typer.Option(help="Print the models' output streams to this server's console.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="DATABASE",
            help="The task database: a path, sqlite:///path, none, postgresql://user@host/database "
            "or dynamodb://table. [default: as configured]",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check/--no-check", help="Report missing packages, keys and models after the start."),
    ] = True,
) -> None:
    """Run a swarm behind HTTP. Flags override the configuration file, which overrides the defaults."""
    startup.begin()  # `serve` ends it when the server is ready
    from mail.server.uvicorn import serve

    flags = {
        "host": host,
        "port": port,
        "reload": reload,
        "debug": debug,
        "swarm_name": swarm_name,
        "swarm_source": swarm_source,
        "swarm_registry": swarm_registry,
        "print_llm_streams": None if print_llm_streams is None else print_llm_streams is Switch.TRUE,
        "database": database,
    }
    serve(config, {name: value for name, value in flags.items() if value is not None}, checks=check)


def main() -> None:
    """Run the command; exit with 2 for a configuration error and with 1 for any other error of MAIL."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(server)
    try:
        app(prog_name="python -m mail.server")
    except MAILError as error:
        print(f"mail: {error.detail}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


if __name__ == "__main__":
    main()
