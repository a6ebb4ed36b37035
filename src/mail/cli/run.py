"""Runs a command line: loads what its command needs, and shows errors in one line."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TextIO

import typer

from mail.cli.examples import epilog
from mail.cli.help import PlainCommand
from mail.cli.output import printable
from mail.cli.session import UsageError
from mail.errors import ConfigurationError, MAILError
from mail.startup import ALONE

BROKEN_PIPE = 128 + 13
"""The exit code when the reader of the output is gone, as shells report it of programs that SIGPIPE has ended."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's); return its exit code (see the package's docstring)."""
    _replace_unencodable(sys.stdin, sys.stdout, sys.stderr)
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["--version"]:
        given = ["version", *given[1:]]
    try:
        _read_dotenv(Path(".env"))
        _app(given)(given, prog_name="mail")
    except MAILError as error:
        print(f"mail: {printable(error.detail)}", file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, (ConfigurationError, UsageError)) else 1
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # typer exits with 1 then
            return BROKEN_PIPE
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0


def _read_dotenv(file: Path) -> None:
    """Set the variables of a project's `.env`, except those that the environment has. Raises ConfigurationError."""
    if not file.is_file():
        return
    from dotenv import load_dotenv

    try:
        load_dotenv(file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}") from error


def _replace_unencodable(*streams: TextIO) -> None:
    """Let a terminal without '✓' show a '?' instead of a traceback; likewise for input that is not valid text."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _app(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with all commands, or with the only one that is needed."""
    name = arguments[0] if arguments else ""
    if name not in ALONE:
        from mail.cli.app import app

        return app
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.callback()(lambda: None)  # so that the command is named on the command line
    alone.command(name, cls=PlainCommand, epilog=epilog(name))(getattr(import_module(ALONE[name]), name))
    return alone
