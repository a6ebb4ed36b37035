"""The output of commands: JSON for programs, or text for humans, in colour on a terminal."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from mail.errors import MAILError

if TYPE_CHECKING:
    from rich.console import Console

_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d"
    r"\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING = (  # scripts whose letters take other forms beside a joiner: Arabic, of India, Burmese, Khmer, Mongolian
    r"\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\ua840-\ua87f\ua8e0-\ua8ff\uaa60-\uaa7f"
    r"\ufb50-\ufdff\ufe70-\ufefc\U00011000-\U000114ff"
)
_VIRAMA = r"\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
_HIDDEN = re.compile(
    # what a script or an emoji needs is kept …
    rf"(?<=[{_VIRAMA}])[\u200c\u200d]|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\ufe00-\ufe02\U000e0100-\U000e01ef]"
    r"|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]"
    # … and the rest is escaped: control and format characters, invisible letters, tags, halves of pairs
    r"|([\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])"
)
"""Characters that don't show and change what does, or that a terminal obeys. components/visible.js has the same for
the page.
"""


def printable(text: str) -> str:
    """Return text with what is hidden in it escaped, as JSON does it; line ends and tabs stay."""
    return _HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    units = found[1].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


@dataclass(frozen=True, slots=True)
class Output:
    """A printer of results to `stream`: with `as_json` a line of JSON each, else text for humans."""

    stream: TextIO
    as_json: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether the text goes to a terminal."""
        return not self.as_json and self.stream.isatty()

    def result(self, value: object, show: Callable[[], None] | None = None) -> None:
        """Print a value as JSON; for humans, call `show` instead, or print indented JSON without it.

        Raises MAILError for an answer of a server that `show` can't read.
        """
        if self.as_json:
            self.write(json.dumps(value))
        elif show is not None:
            try:
                show()
            except LookupError as error:
                raise MAILError(f"the server's answer can't be shown: it has no {error}") from error
        elif self.is_terminal:
            from rich.json import JSON

            text = printable(json.dumps(value, ensure_ascii=False))
            self.console().print(JSON(text, ensure_ascii=False), soft_wrap=True)
        else:
            self.write(printable(json.dumps(value, indent=2, ensure_ascii=False)))

    def text(self, text: str, *, style: str = "") -> None:
        """Print text for humans."""
        if style and self.is_terminal:
            from rich.text import Text

            self.console().print(Text(printable(text), style), soft_wrap=True)
        else:
            self.write(printable(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, none: str = "") -> None:
        """Print headings and rows: on a terminal in columns, cut to its width; else uncut, separated by tabs.

        On a terminal, `none` stands for a table without rows.
        """
        if not rows and none and self.is_terminal:
            self.text(none)
            return
        if not self.is_terminal:
            for row in (headings, *rows):
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

    def time(self, timestamp: str) -> str:
        """Return a timestamp as people read it: on a terminal short and in local time, else unchanged."""
        if not self.is_terminal or not timestamp:
            return timestamp
        time = datetime.fromisoformat(timestamp).astimezone()
        return f"{time:%m-%d %H:%M}" if time.year == datetime.now().astimezone().year else f"{time:%Y-%m-%d}"

    def write(self, line: str) -> None:
        """Print a line unchanged, and flush it."""
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def console(self) -> "Console":
        from rich.console import Console

        return Console(file=self.stream, highlight=False)


def one_line(text: Any) -> str:
    """Return text as one line, with what is hidden in it escaped."""
    return printable(" ".join(str(text).split()))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things as people write it; `plural` is for nouns that take more than an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def price(usage: Mapping[str, Any]) -> str:
    """Return the cost of model calls in words, as far as their prices are known."""
    if usage.get("unpriced_calls") and not usage["cost"]:
        return "unknown price"
    return f"{'at least ' if usage.get('unpriced_calls') else ''}{usage['cost']:.4f} USD"


def _one_cell(text: str) -> str:
    return one_line(text) or "-"
