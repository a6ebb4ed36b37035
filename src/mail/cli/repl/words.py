"""Lines to words, as a POSIX shell cuts them."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was typed so far.

    Attributes:
        text: it, less the ends of lines that go on in the next.
        quote: the quote that is open at the end, or none.
        goes_on: whether it ends with a backslash, which joins the next line.
    """

    text: str
    quote: str = ""
    goes_on: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.quote and not self.goes_on


def scan(typed: str) -> Scanned:
    """Follow the quotes and backslashes of one line, or of several."""
    kept: list[str] = []
    quote, escaped = "", False
    for character in typed:
        if escaped:
            escaped = False
            if character == "\n":
                kept.pop()
                continue
        elif character == "\\" and quote != "'":
            escaped = True
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        kept.append(character)
    return Scanned("".join(kept), quote, escaped)


def split(typed: str) -> list[str]:
    """The words. Raises ValueError where a quote is open at the end."""
    return shlex.split(scan(typed).text)
