"""`mail server`."""

from enum import StrEnum
from typing import Annotated

import typer

from mail.cli.options import ConfigPath, Database


class Switch(StrEnum):
    """A boolean as a word on the command line."""

    TRUE = "true"
    FALSE = "false"


def server(
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen on; 0 picks a free one.")
    ] = None,
    reload: Annotated[
        bool | None, typer.Option("--reload/--no-reload", help="Restart when the source code changes.")
    ] = None,
    debug: Annotated[
        bool | None,
        typer.Option("--debug/--no-debug", help="Log more, and serve the endpoints for debugging."),
    ] = None,
    config: ConfigPath = None,
    swarm_name: Annotated[str | None, typer.Option(help="The swarm to run.")] = None,
    swarm_source: Annotated[str | None, typer.Option(help="The swarms.json file with the swarm.")] = None,
    swarm_registry: Annotated[
        str | None, typer.Option(help="The file that stores the registry of swarms.")
    ] = None,
    print_llm_streams: Annotated[
        Switch | None, typer.Option(help="Print the models' output streams to this server's console.")
    ] = None,
    database: Database = None,
) -> None:
    """Run a swarm behind HTTP. Flags override the configuration file, the file overrides the defaults."""
    from mail.server.app import serve

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
    serve(config, {name: value for name, value in flags.items() if value is not None})
