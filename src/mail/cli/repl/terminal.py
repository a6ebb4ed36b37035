"""Lines from a terminal, with editing, completion and a history (prompt_toolkit)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from click.shell_completion import CompletionItem, ShellComplete
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from mail.auth.local_keys import state_folder
from mail.cli.command import Command
from mail.cli.repl.commands import PROMPT, Grammar
from mail.cli.repl.words import scan, split
from mail.cli.session import VARIABLE, Session

CLIENT_PROMPT = "mail> "
CHAT_PROMPT = "you> "

KEPT_ROWS = 4
"""Rows of the terminal that unfolded steps leave for the line being typed."""

_TOKEN = re.compile(r"mail_(admin|user|agent|local)_\w|[?&]token=|\bbearer\b", re.IGNORECASE)


class TerminalLines:
    """The lines typed at the prompt.

    Enter continues in a new line after a final backslash, and in commands after an open quote; lines that are pasted
    stay one text. Ctrl+O unfolds what agents did for the last answer, and folds it again.
    """

    def __init__(self, session: Session, grammar: Grammar = Grammar.MIXED) -> None:
        def is_unfinished() -> bool:
            typed = get_app().current_buffer.text
            return not scan(typed).is_whole if grammar.is_command(typed) else typed.endswith("\\")

        prompt = CHAT_PROMPT if grammar is Grammar.CHAT else CLIENT_PROMPT

        def message() -> str:
            memory, rows = session.memory, max(get_app().output.get_size().rows - KEPT_ROWS, 1)
            steps = memory.steps[-rows:] if memory.is_unfolded else []
            return "\n".join([*steps, prompt])

        keys = KeyBindings()

        @keys.add("c-o")
        def _(_event: KeyPressEvent) -> None:
            session.memory.is_unfolded = not session.memory.is_unfolded

        self._prompt: PromptSession[str] = PromptSession(
            message,
            key_bindings=keys,
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
            yield Completion(candidate.value, -len(begun), display_meta=candidate.help or "")


def candidates(before: str, session: Session) -> tuple[str, list[CompletionItem]]:
    """Return the unfinished word at the end of the typed text, and the words that it may become."""
    if scan(before).quote:
        return "", []
    words = split(before)
    begun = "" if not before or before[-1].isspace() else words.pop()
    if words and words[0] not in PROMPT.words and words[0].removeprefix("/") not in PROMPT.commands:
        return begun, []
    completion = ShellComplete(PROMPT, {"obj": session}, "", "")
    return begun, completion.get_completions(words, begun)


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
    except ValueError:  # a command that is not complete, unless it is text with an apostrophe
        return Grammar.MIXED.is_command(typed)
    command = PROMPT.commands.get(words[0].removeprefix("/")) if words else None
    secrets = command.secrets(words[1:]) if isinstance(command, Command) else []
    return not all(VARIABLE.fullmatch(secret) for secret in secrets)
