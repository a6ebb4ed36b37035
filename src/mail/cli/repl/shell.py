"""The loop of the prompt: it runs line after line, and reports errors without stopping."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TextIO

from mail.cli.connection import UNAUTHORIZED, MissingKey
from mail.cli.conversation import open_task, say
from mail.cli.output import Output
from mail.cli.repl.commands import Grammar, begin, greet, text_of
from mail.cli.repl.words import scan, split
from mail.cli.session import Session, UsageError
from mail.client.errors import BadAnswer, InvalidConnection
from mail.core.protocol.visible_text import printable
from mail.errors import MAILError

BYTE_ORDER_MARK = "\ufeff"
"""The mark that some editors and shells write before the first line."""


Read = Callable[[], str | None]
"""Returns the next command, which may have several lines; None after the last."""


class PlainLines:
    """Commands from a pipe. Lines that begin with `#` are comments, but in a chat they are text."""

    def __init__(self, lines: Iterable[str], grammar: Grammar = Grammar.COMMANDS) -> None:
        self._lines: Iterator[str] = iter(lines)
        self._grammar = grammar
        self._mark = BYTE_ORDER_MARK

    def read(self) -> str | None:
        typed: list[str] = []
        quote = ""
        for given in self._lines:
            line, self._mark = given.removeprefix(self._mark), ""
            if not typed and not self._grammar.is_command(line):
                return line
            if not typed and line.lstrip().startswith("#"):
                continue
            typed.append(line)
            scanned = scan(line.removesuffix("\n"), quote)
            if scanned.is_whole:
                break
            quote = scanned.quote
        return "".join(typed) or None


class Shell:
    """A shell that runs commands until there are no more.

    Args:
        grammar: which lines are commands; the others are text for the swarm.
    """

    def __init__(
        self, session: Session, read: Read, *, grammar: Grammar = Grammar.COMMANDS, errors: TextIO
    ) -> None:
        self._session = session
        self._read_line = read
        self._grammar = grammar
        self._errors = errors
        self._runner = asyncio.Runner()
        self._is_interrupted = False

    def run(self, *, greeting: bool = False, task_id: str | None = None) -> bool:
        """Run all commands, optionally after a greeting; return whether all of them succeeded.

        With `task_id`, text continues that task.
        """
        worked = True
        with self._runner:
            try:
                if greeting and self._grammar is Grammar.CHAT:
                    self._enter()
                elif greeting:
                    self._try(partial(self._runner.run, greet(self._session)))
                if task_id is not None:
                    worked &= self._try(
                        partial(self._runner.run, open_task(self._session, task_id, is_new_allowed=True))
                    )
                while not self._session.is_over and (typed := self._read()) is not None:
                    worked &= self._try(partial(self._perform, typed))
            finally:
                self._runner.run(self._session.client.aclose())
        return worked

    def _enter(self) -> None:
        """Greet the user, and ask for a key until the server accepts one. Raises MAILError if nobody can talk to it."""
        while True:
            try:
                return self._runner.run(greet(self._session))
            except (MissingKey, InvalidConnection, BadAnswer) as error:
                if self._session.ask_key is None or (
                    isinstance(error, BadAnswer) and error.status != UNAUTHORIZED
                ):
                    raise
                self._report(error.detail)
            self._session.output.text("An empty line or Ctrl+C leaves.", style="dim")
            try:
                self._session.client.api_key = self._session.ask_key()
            except EOFError:
                self._session.client.api_key = None
            if not self._session.client.api_key:
                raise MAILError("no API key was given")

    def _read(self) -> str | None:
        try:
            typed = self._read_line()
        except KeyboardInterrupt:
            if self._session.ask_key is None:
                raise
            if self._is_interrupted:
                return None
            self._is_interrupted = True
            self._session.output.text("Ctrl+C again leaves.", style="dim")
            return ""
        self._is_interrupted = False
        return typed

    def _try(self, work: Callable[[], None]) -> bool:
        """Return whether the work succeeds; report errors."""
        try:
            work()
        except MAILError as error:
            return self._report(error.detail)
        except KeyboardInterrupt:
            if self._session.ask_key is None:
                raise
            self._is_interrupted = True
            return self._report(self._session.stopped())
        except BrokenPipeError:
            raise  # the reader of the output is gone
        except Exception as error:  # noqa: BLE001 - the loop must survive unexpected answers
            return self._report(f"unexpected error: {error!r}")
        return True

    def _perform(self, typed: str) -> None:
        self._session.memory.waiting_for = None
        if not self._grammar.is_command(typed):
            self._runner.run(say(self._session, text_of(typed)))
            return
        try:
            words = split(typed)
        except ValueError:
            raise UsageError(
                "the line is not complete; close the quote, or remove the backslash at its end. A text with an "
                "apostrophe "
                'needs double quotes: message "What\'s new?"'
            ) from None
        if not words:
            return
        try:
            work = begin(words, self._session)
        except UsageError as error:
            if self._grammar is not Grammar.MIXED or words[0].startswith("/"):
                raise
            raise UsageError(f"{error.detail} (to send the line as text, begin with: message)") from None
        if work is not None:
            self._runner.run(work)

    def _report(self, problem: str) -> bool:
        if self._session.ask_key is None:
            print(f"mail: {printable(problem)}", file=self._errors, flush=True)
        else:  # people know whom they talk to
            Output(self._errors).text(problem, style="red")
        return False


def is_interactive() -> bool:
    """Return whether input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
