"""A lexer that splits lines into words as a POSIX shell does."""

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
    """The state of the lexer after the typed text.

    Attributes:
        quote: the open quote; empty if there is none.
        is_continued: whether a final backslash joins the next line.
    """

    quote: str = ""
    is_continued: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the text is complete."""
        return not self.quote and not self.is_continued


def scan(typed: str, quote: str = "") -> Scanned:
    """Follow the quotes and backslashes of typed text, which may begin inside a quote."""
    is_continued = False
    for piece in _PIECE.finditer(quote + typed):
        quote, is_continued = "", False
        match piece.lastgroup:
            case "single_end":
                quote = "" if piece["single_end"] else "'"
            case "double_end":
                quote = "" if piece["double_end"] == '"' else '"'
                is_continued = piece["double_end"] == "\\"
            case "escaped":
                is_continued = not piece["escaped"]
    return Scanned(quote, is_continued)


def split(typed: str) -> list[str]:
    """Split text into words, in linear time; a backslash before a line end joins the lines.

    Raises ValueError if a quote is open at the end, or a backslash is last.
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
                chunk = piece["plain"]
            case "single_end":
                if not piece["single_end"]:
                    raise ValueError("No closing quotation")
                chunk = piece["single"]
            case "double_end":
                if piece["double_end"] != '"':
                    raise ValueError("No closing quotation")
                chunk = _ESCAPED_IN_QUOTES.sub(lambda escape: escape[1].removesuffix("\n"), piece["double"])
            case _:
                if not piece["escaped"]:
                    raise ValueError("No escaped character")
                if piece["escaped"] == "\n":
                    continue
                chunk = piece["escaped"]
        word = word or []
        word.append(chunk)
    if word is not None:
        words.append("".join(word))
    return words
