"""The output of commands: JSON for programs, or text for humans, in colour on a terminal."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle
from typing import TYPE_CHECKING, Any, TextIO

from mail.errors import MAILError

if TYPE_CHECKING:
    from rich.console import Console


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The ids of tasks that MAIL generates."""

SHORT_ID = 8
"""Characters of such an id that people read."""


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

            text = _printable(json.dumps(value, ensure_ascii=False))
            self.console().print(JSON(text, ensure_ascii=False), soft_wrap=True)
        else:
            self.write(_printable(json.dumps(value, indent=2, ensure_ascii=False)))

    def text(self, text: str, *, style: str = "") -> None:
        """Print text for humans: on a terminal wrapped at words, but not lines that are indented, such as commands."""
        from shutil import get_terminal_size

        text = _printable(text)
        most = get_terminal_size().columns // 2  # as some characters take two columns
        is_long = any(len(line) > most for line in text.splitlines())
        if not self.is_terminal or not (style or is_long):
            self.write(text)
            return
        from rich.text import Text

        console = self.console()
        for line in text.split("\n"):
            is_kept = not line or line[0].isspace()
            for part in [Text(line)] if is_kept else Text(line).wrap(console, console.width):
                part.rstrip()
                console.print(part, style=style, soft_wrap=True)

    def answer(self, text: str) -> None:
        """Print what an agent has written: on a terminal its Markdown, else as it is."""
        if not self.is_terminal:
            self.write(_printable(text))
            return
        from mail.cli.views.markdown import render

        console = self.console()
        for line in render(text, console):
            console.print(line, soft_wrap=True)

    def id(self, text: str) -> str:
        """Return the id of a task as people read it: on a terminal the beginning of a long one, which commands take."""
        return text[:SHORT_ID] if self.is_terminal and UUID.fullmatch(text) else text

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        none: str = "",
        excerpts: Sequence[Sequence[str]] = (),
    ) -> None:
        """Print headings and rows: on a terminal in columns, cut to its width; else uncut, separated by tabs.

        On a terminal, `none` stands for a table without rows. Each row may have an excerpt in pieces, every second of
        which is bold: on a terminal it has a line of its own, else it is the last column.
        """
        if not rows and none and self.is_terminal:
            self.text(none)
            return
        if not self.is_terminal:
            if excerpts:
                headings = (*headings, "excerpt")
                rows = [(*row, "".join(pieces)) for row, pieces in zip(rows, excerpts, strict=True)]
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
            if number and any(excerpts[number - 1 : number]):
                styles = cycle(("dim", "bold"))
                found = [(_printable(piece), next(styles)) for piece in excerpts[number - 1]]
                console.print(Text.assemble("  ", *found), no_wrap=True, overflow="ellipsis", crop=True)

    def time(self, timestamp: str) -> str:
        """Return a timestamp as people read it: on a terminal short and in local time, else unchanged."""
        if not self.is_terminal or not timestamp:
            return timestamp
        try:
            time = datetime.fromisoformat(timestamp).astimezone()
        except ValueError:
            return timestamp
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
    return _printable(" ".join(str(text).split()))


def _printable(text: str) -> str:
    from mail.core.protocol.visible_text import printable  # takes 9 ms, which help doesn't need

    return printable(text)


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
