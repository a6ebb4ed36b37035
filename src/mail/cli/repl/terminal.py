"""Lines from somebody at a terminal, who can edit, complete and repeat them."""

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import Condition

from mail.cli.repl.completion import LineCompleter
from mail.cli.repl.history import open_history
from mail.cli.repl.session import Session
from mail.cli.repl.words import scan

PROMPT = "mail> "


class TerminalLines:
    """What is typed, command by command. Enter goes on in a new line where a quote is open or a backslash is last."""

    def __init__(self, session: Session) -> None:
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            history=open_history(session),
            completer=LineCompleter(session),
            complete_while_typing=False,
            auto_suggest=AutoSuggestFromHistory(),
            multiline=Condition(lambda: not scan(get_app().current_buffer.text).is_whole),
            prompt_continuation="   .. ",
        )

    def read(self) -> str | None:
        """The next command; None after Ctrl+D. Raises KeyboardInterrupt where Ctrl+C throws it away."""
        try:
            return self._prompt.prompt()
        except EOFError:
            return None
