"""Lines to words, as a POSIX shell cuts them."""

import re
from dataclasses import dataclass

_PIECE = re.compile(
    r"""
      (?P<space> [\ \t\r\n]+ )
    | (?P<plain> [^\ \t\r\n'"\\]+ )
    | ' (?P<single> [^']* ) (?P<single_end> '? )
    | " (?P<double> (?: [^"\\]++ | \\. )*+ ) (?P<double_end> \\? "? )
    | \\ (?P<escaped> .? )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\\n])')


@dataclass(frozen=True, slots=True)
class Scanned:
    """How what was typed so far ends.

    Attributes:
        quote: the quote that is open, or none.
        goes_on: whether a backslash joins the next line.
    """

    quote: str = ""
    goes_on: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.quote and not self.goes_on


def scan(typed: str, quote: str = "") -> Scanned:
    """Follow the quotes and backslashes of what was typed, where a quote may be open before it."""
    goes_on = False
    for piece in _PIECE.finditer(quote + typed):
        quote, goes_on = "", False
        match piece.lastgroup:
            case "single_end":
                quote = "" if piece["single_end"] else "'"
            case "double_end":
                quote = "" if piece["double_end"] == '"' else '"'
                goes_on = piece["double_end"] == "\\"
            case "escaped":
                goes_on = not piece["escaped"]
    return Scanned(quote, goes_on)


def split(typed: str) -> list[str]:
    """The words; a backslash before a line end joins the lines. Takes time in proportion to the length.

    Raises ValueError where a quote is open at the end, or a backslash is last.
    """
    words: list[str] = []
    word: list[str] | None = None  # None between words; an empty one may be in quotes
    for piece in _PIECE.finditer(typed):
        match piece.lastgroup:
            case "space":
                if word is not None:
                    words.append("".join(word))
                word = None
                continue
            case "plain":
                part = piece["plain"]
            case "single_end":
                if not piece["single_end"]:
                    raise ValueError("No closing quotation")
                part = piece["single"]
            case "double_end":
                if piece["double_end"] != '"':
                    raise ValueError("No closing quotation")
                part = _ESCAPED_IN_QUOTES.sub(_unescape, piece["double"])
            case _:
                if not piece["escaped"]:
                    raise ValueError("No escaped character")
                if piece["escaped"] == "\n":
                    continue
                part = piece["escaped"]
        word = word or []
        word.append(part)
    if word is not None:
        words.append("".join(word))
    return words


def _unescape(escape: re.Match[str]) -> str:
    return "" if escape[1] == "\n" else escape[1]
