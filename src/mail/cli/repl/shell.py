"""Lines in, one after another; what goes wrong is told, and the next line comes."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TextIO

from mail.cli.output import printable
from mail.cli.repl.arguments import HelpWanted, UsageError
from mail.cli.repl.commands import parse
from mail.cli.repl.handlers import look_around
from mail.cli.repl.session import Session
from mail.cli.repl.words import scan, split
from mail.errors import MAILError

BYTE_ORDER_MARK = "\ufeff"
"""What some editors and shells write before the first line."""


class Lines(Protocol):
    """Where commands come from."""

    def read(self) -> str | None:
        """The next command, which may have several lines; None after the last."""
        ...


class PlainLines:
    """Commands from a pipe, without a prompt. Lines that begin with `#` are comments."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines: Iterator[str] = iter(lines)
        self._mark = BYTE_ORDER_MARK

    def read(self) -> str | None:
        typed: list[str] = []
        quote = ""
        for given in self._lines:
            line, self._mark = given.removeprefix(self._mark), ""
            if not typed and line.lstrip().startswith("#"):
                continue
            typed.append(line)
            scanned = scan(line.removesuffix("\n"), quote)
            if scanned.is_whole:
                break
            quote = scanned.quote
        return "".join(typed) or None


class GivenLines:
    """Commands of which each is whole by itself."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines: Iterator[str] = iter(lines)

    def read(self) -> str | None:
        return next(self._lines, None)


class Shell:
    """Performs commands until there are no more.

    Args:
        ask: asks somebody for a secret. Where it is given somebody is there, and Ctrl+C ends the command that runs
            and not the shell.
    """

    def __init__(
        self, session: Session, lines: Lines, *, ask: Callable[[], str] | None = None, errors: TextIO
    ) -> None:
        self._session = session
        self._lines = lines
        self._ask = ask
        self._errors = errors
        self._runner = asyncio.Runner()

    def run(self, *, greet: bool = False) -> bool:
        """Perform all commands; returns whether each of them worked. `greet` shows first who is there."""
        worked = True
        with self._runner:
            try:
                if greet:
                    self._try(partial(self._runner.run, look_around(self._session)))
                while not self._session.is_over and (typed := self._read()) is not None:
                    worked &= self._try(partial(self._perform, typed))
            finally:
                self._runner.run(self._session.client.aclose())
        return worked

    def _read(self) -> str | None:
        try:
            return self._lines.read()
        except KeyboardInterrupt:
            if self._ask is None:
                raise
            return ""

    def _try(self, work: Callable[[], None]) -> bool:
        """Do it; returns whether it worked. What is wrong is told."""
        try:
            work()
        except HelpWanted as wanted:
            self._session.output.text(str(wanted).rstrip())
        except MAILError as error:
            return self._tell(error.detail)
        except KeyboardInterrupt:
            if self._ask is None:
                raise
            return self._tell("stopped")
        except BrokenPipeError:
            raise  # nobody reads the output any more
        except Exception as error:  # noqa: BLE001 - the loop must outlive what a strange server answers
            return self._tell(f"that went wrong: {error!r}")
        return True

    def _perform(self, typed: str) -> None:
        try:
            words = split(typed)
        except ValueError:
            raise UsageError("the line is not complete: it ends with an open quote or a backslash") from None
        if not words:
            return
        command, given = parse(words)
        if command.asks and not getattr(given, command.asks):
            if self._ask is None:
                raise UsageError(f"{command.name}: the {command.asks} is missing")
            setattr(given, command.asks, self._ask())
        self._runner.run(command.run(self._session, given))

    def _tell(self, trouble: str) -> bool:
        print(f"mail: {printable(trouble)}", file=self._errors, flush=True)
        return False


def is_attended() -> bool:
    """Whether somebody types and looks."""
    return sys.stdin.isatty() and sys.stdout.isatty()
