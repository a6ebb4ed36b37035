"""The lines that were typed, over runs: in a file that only its owner can read, and never with a key in it."""

import os
import re
import sys
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from mail.cli.repl.arguments import UsageError
from mail.cli.repl.commands import find
from mail.cli.repl.session import VARIABLE, Session
from mail.cli.repl.words import split

_TOKEN = re.compile(r"mail_(admin|user|agent)_\w|[?&]token=|\bbearer\b", re.IGNORECASE)


def history_file() -> Path:
    """Where it is: in the folder for state that the platform has (XDG_STATE_HOME, LOCALAPPDATA)."""
    variable, folder = "XDG_STATE_HOME", Path.home() / ".local" / "state"
    if sys.platform == "win32":
        variable, folder = "LOCALAPPDATA", Path.home() / "AppData" / "Local"
    named = Path(os.environ.get(variable, ""))
    return (named if named.is_absolute() else folder) / "mail" / "client_history"


def open_history(session: Session, path: Path | None = None) -> History:
    """The history; one that lasts only for this run where the file can't be written."""
    path = path or history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _DiscreetHistory(path, session)


class _DiscreetHistory(FileHistory):
    def __init__(self, path: Path, session: Session) -> None:
        super().__init__(path)
        self._session = session

    def store_string(self, string: str) -> None:
        if not holds_secret(string, self._session.client.api_key):
            super().store_string(string)


def holds_secret(typed: str, api_key: str | None = None) -> bool:
    """Whether a line has a key in it: where a command takes one, as a token of ours, or as the one in use."""
    if _TOKEN.search(typed) or (api_key and api_key in typed):
        return True
    try:
        words = split(typed)
        secrets = find(words[0]).secrets(words[1:]) if words else []
    except UsageError:
        return False
    except ValueError:
        return True
    return not all(VARIABLE.fullmatch(secret) for secret in secrets)
