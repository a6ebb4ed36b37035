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
    """The words of typed text, and the state of the lexer after it.

    Attributes:
        quote: the open quote; empty if there is none.
        is_continued: whether a final backslash joins the next line.
    """

    words: list[str]
    quote: str = ""
    is_continued: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the text is complete."""
        return not self.quote and not self.is_continued


def scan(typed: str, quote: str = "") -> Scanned:
    """Split text into words, in linear time; a backslash before a line end joins the lines.

    It may begin inside a quote.
    """
    words: list[str] = []
    word: list[str] | None = None  # None between words; an empty one may be in quotes
    is_continued = False
    for piece in _PIECE.finditer(quote + typed):
        quote, is_continued = "", False
        match piece.lastgroup:
            case "space":
                if word is not None:
                    words.append("".join(word))
                word = None
                continue
            case "plain":
                chunk = piece["plain"]
            case "single_end":
                quote = "" if piece["single_end"] else "'"
                chunk = piece["single"]
            case "double_end":
                quote = "" if piece["double_end"] == '"' else '"'
                is_continued = piece["double_end"] == "\\"
                chunk = _ESCAPED_IN_QUOTES.sub(lambda escape: escape[1].removesuffix("\n"), piece["double"])
            case _:
                chunk = piece["escaped"]
                is_continued = not chunk
                if chunk == "\n":
                    continue
        word = word or []
        word.append(chunk)
    if word is not None:
        words.append("".join(word))
    return Scanned(words, quote, is_continued)


def split(typed: str) -> list[str]:
    """Return the words of a text. Raises ValueError if a quote is open at the end, or a backslash is last."""
    scanned = scan(typed)
    if not scanned.is_whole:
        raise ValueError("No end of a quote or of a line")
    return scanned.words
