"""Where results go: JSON for programs, or text for people, which a terminal shows in colours."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal might obey instead of showing it; line ends and tabs are harmless."""


def printable(text: str) -> str:
    """Text of others, less what could take over a terminal."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to `stream`. With `as_json` each is one line of JSON, else it is what people read."""

    stream: TextIO
    as_json: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it, in colours."""
        return not self.as_json and self.stream.isatty()

    def result(self, value: object, show: Callable[[], None] | None = None) -> None:
        """Print a value; people get what `show` prints instead, or JSON over several lines."""
        if self.as_json:
            self.write(json.dumps(value))
        elif show is not None:
            show()
        elif self.is_terminal:
            from rich.json import JSON

            text = printable(json.dumps(value, ensure_ascii=False))
            self.console().print(JSON(text, ensure_ascii=False), soft_wrap=True)
        else:
            self.write(printable(json.dumps(value, indent=2, ensure_ascii=False)))

    def text(self, text: str, *, style: str = "") -> None:
        """Print text for people, as it is."""
        if style and self.is_terminal:
            from rich.text import Text

            self.console().print(Text(printable(text), style), soft_wrap=True)
        else:
            self.write(printable(text))

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: in columns, cut to the width of the terminal; where there is none whole, parted by tabs."""
        if not self.is_terminal:
            for row in rows:
                self.write("\t".join(_one_cell(cell) for cell in row))
            return
        from rich.cells import cell_len
        from rich.text import Text

        lines = [tuple(headings), *(tuple(_one_cell(cell) for cell in row) for row in rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        console = self.console()
        for number, cells in enumerate(lines):
            padded = (
                cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)
            )
            line = Text("  ".join(padded).rstrip(), style="" if number else "dim")
            console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

    def write(self, line: str) -> None:
        """Print a line as it is, at once."""
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def console(self) -> "Console":
        """Rich's way to the stream."""
        from rich.console import Console

        return Console(file=self.stream, highlight=False)


def one_line(text: Any) -> str:
    """Text of others as one line."""
    return printable(" ".join(str(text).split()))


def _one_cell(text: str) -> str:
    return one_line(text) or "-"
