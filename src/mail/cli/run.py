"""Runs a command line, and shows errors in one line."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from mail.cli.app import ReaderGone, app
from mail.cli.session import UsageError
from mail.errors import ConfigurationError, MAILError

BROKEN_PIPE = 128 + 13
"""The exit code when the reader of the output is gone, as shells report it of programs that SIGPIPE has ended."""

INTERRUPTED = 128 + 2
"""The exit code after Ctrl+C, likewise."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's); return its exit code (see the package's docstring)."""
    _replace_unencodable(sys.stdin, sys.stdout, sys.stderr)
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["--version"]:
        given = ["version", *given[1:]]
    try:
        _read_dotenv(Path(".env"))
        return app.main(given, prog_name="mail", standalone_mode=False) or 0
    except MAILError as error:
        from mail.core.protocol.visible_text import printable

        print(f"mail: {printable(error.detail)}", file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, (ConfigurationError, UsageError)) else 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as stopped:
        return INTERRUPTED if isinstance(stopped.__cause__, KeyboardInterrupt) else 1
    except ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python writes when it exits
        return BROKEN_PIPE


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
