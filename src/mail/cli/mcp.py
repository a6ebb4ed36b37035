"""`mail mcp`: MCP over standard streams, for programs that start their servers; a server of MAIL answers."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mail.cli.options import api_key, choose_server, config_file, run, server_option, server_url

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient


@click.command()
@server_url
@server_option
@api_key
@config_file
def mcp(url: str | None, server: str | None, api_key: str | None, config: Path | None) -> None:
    """Let an assistant or a coding agent use the swarm of a server.

    Give this command to a program that starts MCP servers. It speaks MCP over its standard streams, and passes what
    it reads on to the server's /mcp. A program that takes URLs needs no command: give it that URL and an API key.
    """
    from mail.cli.connection import connect
    from mail.cli.relay import Relay

    where = choose_server(url, server)

    def reconnect() -> "CommandClient":
        return connect(where, api_key, config=config)

    reconnect()  # a mistake on the command line ends it now
    relay = Relay(reconnect, sys.stdout.buffer)
    with suppress(KeyboardInterrupt):
        run(relay.run(sys.stdin.buffer))
