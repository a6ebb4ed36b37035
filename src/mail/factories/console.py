"""What models say while they say it, on the console: whole lines, each with its agent's name, as agents talk at once."""

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"reasoning": "dim italic", "text": ""}


@lru_cache(maxsize=1)
def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class StreamPrinter:
    """Prints the pieces of one reply as lines: reasoning dim, text plain."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: str | None = None
        self._line = ""

    def __call__(self, kind: Literal["reasoning", "text"], piece: str) -> None:
        """Take a piece; every line that is complete is printed."""
        if kind != self._kind:
            self.end()
            self._kind = kind
        *lines, self._line = (self._line + piece).split("\n")
        for line in lines:
            self._print(line)

    def end(self) -> None:
        """Print what is left of the last line."""
        if self._line:
            self._print(self._line)
        self._line = ""

    def _print(self, line: str) -> None:
        _console().print(f"[{self._name}] {line}", style=_STYLES.get(self._kind or "", ""))


def ignore(_kind: Literal["reasoning", "text"], _piece: str) -> None:
    """Listens to a reply that nobody wants printed."""
