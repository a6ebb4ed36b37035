"""Lines from a terminal, with editing, completion and a history (prompt_toolkit)."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from mail.auth.local_keys import state_folder
from mail.cli.command import Argument, Command, Completes
from mail.cli.repl.commands import COMMANDS, Grammar, find, names
from mail.cli.repl.words import scan, split
from mail.cli.session import VARIABLE, Session, UsageError

PROMPT = "mail> "
CHAT_PROMPT = "you> "

_TOKEN = re.compile(r"mail_(admin|user|agent|local)_\w|[?&]token=|\bbearer\b", re.IGNORECASE)


class TerminalLines:
    """The lines typed at the prompt.

    Enter continues in a new line after a final backslash, and in commands after an open quote.
    """

    def __init__(self, session: Session, grammar: Grammar = Grammar.MIXED) -> None:
        def is_unfinished() -> bool:
            typed = get_app().current_buffer.text
            return not scan(typed).is_whole if grammar.is_command(typed) else typed.endswith("\\")

        self._prompt: PromptSession[str] = PromptSession(
            CHAT_PROMPT if grammar is Grammar.CHAT else PROMPT,
            history=open_history(session),
            completer=LineCompleter(session, grammar),
            complete_while_typing=False,
            auto_suggest=AutoSuggestFromHistory(),
            multiline=Condition(is_unfinished),
            prompt_continuation="   .. ",
        )

    def read(self) -> str | None:
        """Read the next command; None after Ctrl+D. Raises KeyboardInterrupt if Ctrl+C discards the line."""
        try:
            return self._prompt.prompt()
        except EOFError:
            return None


# ---------------------------------------------------------------------------------------------- completion


class Candidate(NamedTuple):
    """A word, and its meaning."""

    word: str
    meaning: str = ""


class LineCompleter(Completer):
    """The adapter of `candidates` to prompt_toolkit."""

    def __init__(self, session: Session, grammar: Grammar) -> None:
        self._session = session
        self._grammar = grammar

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        if self._grammar is Grammar.CHAT and not document.text_before_cursor.startswith("/"):
            return
        begun, found = candidates(document.text_before_cursor, self._session)
        for candidate in found:
            yield Completion(candidate.word, -len(begun), display_meta=candidate.meaning)


def candidates(before: str, session: Session) -> tuple[str, list[Candidate]]:
    """Return the unfinished word at the end of the typed text, and the words that it may become."""
    if scan(before).quote:
        return "", []
    words = split(before)
    begun = "" if not before or before[-1].isspace() else words.pop()
    found = _after(words, begun, session) if words else _commands(begun[:1])
    return begun, [each for each in found if each.word.startswith(begun)]


def _commands(first: str) -> Iterator[Candidate]:
    slash = "/" if first == "/" else ""
    for command in COMMANDS:
        if slash or not command.needs_slash:
            for name in (command.name, *command.also):
                yield Candidate(slash + name, command.summary)


def _after(words: list[str], begun: str, session: Session) -> Iterator[Candidate]:
    try:
        command = find(words[0].removeprefix("/"), with_slash=words[0].startswith("/"))
    except UsageError:
        return
    flags = {name: argument for argument in command.arguments for name in argument.names if argument.is_flag}
    last = flags.get(words[-1])
    if last is not None and not last.is_switch:
        yield from _values(last, session)
    elif begun.startswith("-"):
        yield from (Candidate(name, argument.help) for name, argument in flags.items() if name not in words)
    elif (following := _next_positional(command, words[1:], flags)) is not None:
        yield from _values(following, session)


def _next_positional(command: Command, words: Iterable[str], flags: dict[str, Argument]) -> Argument | None:
    remaining = [argument for argument in command.arguments if not argument.is_flag]
    is_value = False
    for word in words:
        if not is_value and word not in flags and remaining:
            remaining.pop(0)
        is_value = not is_value and word in flags and not flags[word].is_switch
    return remaining[0] if remaining else None


def _values(argument: Argument, session: Session) -> Iterator[Candidate]:
    match argument.completes:
        case Completes.TASK:
            yield from (Candidate(task_id) for task_id in reversed(session.tasks))
        case Completes.AGENT:
            yield from (Candidate(agent) for agent in sorted(session.agents))
        case Completes.COMMAND:
            yield from (Candidate(name) for name in names())
        case Completes.NOTHING | Completes.SECRET:
            yield from (Candidate(choice) for choice in argument.choices)


# ------------------------------------------------------------------------------------------------- history


def history_file() -> Path:
    """Return the history's path. Raises OSError for a user without a home."""
    return state_folder() / "client_history"


def open_history(session: Session, path: Path | None = None) -> History:
    """Open the history file, which only its owner can read; if it can't be written, use a history in memory."""
    try:
        path = path or history_file()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _FilteredHistory(path, session)


class _FilteredHistory(FileHistory):
    """A history that leaves out lines with a key."""

    def __init__(self, path: Path, session: Session) -> None:
        super().__init__(path)
        self._session = session

    def store_string(self, string: str) -> None:
        if not holds_secret(string, self._session.client.api_key):
            super().store_string(string)


def holds_secret(typed: str, api_key: str | None = None) -> bool:
    """Return whether a line contains a key: as a secret argument, as a token of MAIL, or as the current key."""
    if _TOKEN.search(typed) or (api_key and api_key in typed):
        return True
    try:
        words = split(typed)
        name = words[0].removeprefix("/") if words else ""
        secrets = find(name, with_slash=True).secrets(words[1:]) if words else []
    except UsageError:
        return False
    except ValueError:  # a command that is not complete, unless it is text with an apostrophe
        return Grammar.MIXED.is_command(typed)
    return not all(VARIABLE.fullmatch(secret) for secret in secrets)
