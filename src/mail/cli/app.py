"""Puts the commands together, and shows errors as one line."""

import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from mail.cli import (
    client,
    database,
    dead_letter,
    demo,
    local_aws,
    ping,
    register,
    task,
    threads,
    token,
    usage,
    version,
    webhook,
)
from mail.cli.output import printable
from mail.errors import ConfigurationError, MAILError
from mail.server.command import server

app = typer.Typer(
    name="mail",
    help="Run swarms of agents that work by sending each other mail.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("server")(server)
app.command("client", cls=client.ClientCommand)(client.client)
app.command("demo")(demo.demo)
app.command("local-aws")(local_aws.local_aws)
app.command("ping")(ping.ping)
app.command("version")(version.version)
app.command("db-init")(database.db_init)
app.command("register")(register.register)
app.command("inbox")(threads.inbox)
app.command("thread")(threads.thread)
app.command("usage")(usage.usage)
app.add_typer(task.app, name="task")
app.add_typer(dead_letter.app, name="dead-letter")
app.add_typer(token.app, name="token")
app.add_typer(webhook.app, name="webhook")


BROKEN_PIPE = 128 + 13
"""The exit code where nobody reads the output any more: as shells tell it of tools that SIGPIPE has ended."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code (see the package's docstring)."""
    _replace_what_fits_no_encoding(sys.stdin, sys.stdout, sys.stderr)
    try:
        app(arguments, prog_name="mail")
    except MAILError as error:
        print(f"mail: {printable(error.detail)}", file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, ConfigurationError) else 1
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # of which typer makes a 1
            return BROKEN_PIPE
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0


def _replace_what_fits_no_encoding(*streams: TextIO) -> None:
    """A terminal that knows no '✓' gets a '?' instead of a traceback; likewise for bytes that are no text."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
