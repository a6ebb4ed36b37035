"""Markdown as lines of a terminal."""

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.text import Text

from mail.core.protocol.visible_text import printable

_FENCED = re.compile(r"(^ {0,3}(```|~~~).*?(?:^ {0,3}\2[`~]*\s*$|\Z))", re.MULTILINE | re.DOTALL)


class _LeftHeading(Heading):
    """A heading at the left, where rich centres those of the first level."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Answer(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012  # as in the class above


def render(text: str, console: Console) -> list[Text]:
    """Return the lines of a text in Markdown, wrapped at words, without spaces at their ends.

    Single line breaks stay, as people and models mean them; the addresses of links are shown.
    """
    pieces = _FENCED.split(printable(text))
    broken = "".join(
        piece if n % 3 else re.sub(r"(?<=\S)\n(?=\S)", "  \n", piece)
        for n, piece in enumerate(pieces)
        if n % 3 < 2
    )
    rows = console.render_lines(_Answer(broken, code_theme="ansi_dark", hyperlinks=False), pad=False)
    lines = [Text.assemble(*((piece.text, piece.style or "") for piece in row)) for row in rows]
    for line in lines:
        line.rstrip()
    while lines and not lines[0].plain:
        del lines[0]
    return lines
