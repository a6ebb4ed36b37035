"""The notation of a message's fields: the one description that both reading and writing follow.

A field of a typed message is annotated with its place: a `Line` (`Label: value`, perhaps under a header), a `Section`
(everything between its `## Header` and the next one), or the `Whole` body. A notation reads any text without raising
(`read`), tells whether a strict reader accepts it (`accepts`), and writes a value so that `read` returns it. All are
linear in the length of the text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from mail.core.protocol.message import Text, Timestamp

MAX_COUNT = 10**18 - 1
"""The largest number in a message."""

MAX_BEAD_ID = 256

BULLET = re.compile(r"[ \t]*+[-*][ \t]++")


def always(_: Any) -> bool:
    """Return True."""
    return True


def never(_: Any) -> bool:
    """Return False."""
    return False


@dataclass(frozen=True)
class Notation[T]:
    """The notation of one kind of value.

    Attributes:
        expected: what a strict reader accepts, for error messages.
        read: returns the value of a stripped text; an empty value if it can't be read.
        accepts: returns whether a non-empty text is valid.
        write: returns the text of a value; empty for an empty value.
        fits: returns whether the value can be written without loss.
    """

    expected: str
    read: Callable[[str], T]
    accepts: Callable[[str], bool] = always
    write: Callable[[T], str] = str
    fits: Callable[[T], bool] = always


_SPAN = re.compile(r"(`++)(.*[^`])\1", re.DOTALL)
_TICKS = re.compile("`+")


def unquoted(text: str) -> str:
    """Return the text inside a Markdown code span that is the whole text, such as `9f8e7d6` between backticks."""
    found = _SPAN.fullmatch(text)
    if found is None or any(len(run) == len(found[1]) for run in _TICKS.findall(found[2])):
        return text
    return found[2].strip()


def quoted(text: str) -> str:
    """Return the inverse of `unquoted`: a text that would be read as a code span becomes the content of another."""
    if unquoted(text) == text:
        return text
    ticks = "`" * (max(map(len, _TICKS.findall(text))) + 1)
    return f"{ticks} {text} {ticks}"


def without_blanks(paths: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the paths that aren't empty, without white space around them."""
    return tuple(stripped for path in paths if (stripped := path.strip()))


_TIMESTAMP: TypeAdapter[Any] = TypeAdapter(Timestamp, config=ConfigDict(defer_build=True))

Stripped = Annotated[Text, AfterValidator(str.strip)]
"""Text without surrounding white space."""

Files = Annotated[tuple[Text, ...], AfterValidator(without_blanks)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


def _is_line(text: str) -> bool:
    return "\n" not in text and "\r" not in text


LINE = Notation[str]("one line of text", str, fits=_is_line)
TEXT = Notation[str]("text", str)


def _is_bead(text: str) -> bool:
    return text.isprintable() and len(text) <= MAX_BEAD_ID and {*" []"}.isdisjoint(text)


BEAD = Notation[str](
    f"at most {MAX_BEAD_ID} printable characters without blanks and square brackets",
    str,
    accepts=_is_bead,
    fits=_is_bead,
)
"""The id of a bead: no blanks and no brackets, as it also appears in subjects."""


def constant(word: str) -> Notation[str]:
    """Return the notation of a field with a fixed value per message type."""

    def is_word(text: str) -> bool:
        return text.isascii() and text.upper() == word

    return Notation(word, str, accepts=is_word, fits=is_word)


def _is_timestamp(text: str) -> bool:
    try:
        _TIMESTAMP.validate_python(text)
    except ValidationError:
        return False
    return True


TIMESTAMP = Notation[str](
    "a date and time of RFC 3339, such as 2026-01-31T08:00:00Z",
    lambda text: text if _is_timestamp(text) else "",
    accepts=_is_timestamp,
    fits=lambda value: value == "" or _is_timestamp(value),
)


def _number(expected: str, pattern: str, write: Callable[[int], str] = str) -> Notation[int]:
    """Return the notation of a number, which is the group of a pattern."""
    number = re.compile(pattern)

    def read(text: str) -> int:
        found = number.fullmatch(text)
        return int(found[1]) if found else 0

    return Notation(expected, read, accepts=lambda text: number.fullmatch(text) is not None, write=write)


COUNT = _number("a whole number", "([0-9]{1,18})")
PERCENT = _number("whole percents, such as 45%", r"\+?([0-9]{1,18})%", lambda value: f"{value}%")
"""A percentage of the context window; it may exceed 100."""

FLAG = Notation[bool](
    "true or false",
    lambda text: text.lower() in ("true", "yes"),
    accepts=lambda text: text.lower() in ("true", "yes", "false", "no"),
    write=lambda value: "true" if value else "false",
)


def choice[E: StrEnum](words: type[E], synonyms: Mapping[str, E] = MappingProxyType({})) -> Notation[E]:
    """Return the notation of one of the words of an enumeration, in any case, or one of their synonyms."""
    meaning = {word.value.upper(): word for word in words} | dict(synonyms)
    unknown = words("")

    def read(text: str) -> E:
        return meaning.get(text.upper(), unknown) if text.isascii() else unknown

    expected = ", ".join(word.value for word in words if word)
    return Notation(expected, read, accepts=lambda text: bool(read(text)))


def _read_files(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for line in text.split("\n"):
        bullet = BULLET.match(line)
        found += [line[bullet.end() :]] if bullet else line.split(",")
    return without_blanks([unquoted(path.strip()) for path in found])


def _write_files(paths: tuple[str, ...]) -> str:
    if any("," in path or BULLET.match(path) for path in paths):
        return "\n" + write_list(paths)
    return ", ".join(map(quoted, paths))


def write_list(paths: tuple[str, ...]) -> str:
    """Return one path in each line."""
    return "\n".join(f"- {quoted(path)}" for path in paths)


FILES = Notation[tuple[str, ...]](
    "paths without line breaks", _read_files, write=_write_files, fits=lambda paths: all(map(_is_line, paths))
)
"""Paths, separated by commas or as a list with one per line."""


type Needed = Callable[[Any], bool]
"""Whether a strict message must have the field, depending on its other fields."""


@dataclass(frozen=True)
class Line:
    """A field in a line of its own: `Label: value`.

    It is written under the header `under`, and read from anywhere unless it is `bound` to its header.
    """

    label: str
    notation: Notation[Any] = LINE
    under: str = ""
    bullet: bool = False
    bound: bool = False
    needed: Needed = always

    @property
    def place(self) -> str:
        """Its position, for error messages."""
        return f"'{self.label}:' under '## {self.under}'" if self.under else f"'{self.label}:'"


@dataclass(frozen=True)
class Section:
    """A field that fills a section."""

    header: str
    notation: Notation[Any] = TEXT
    needed: Needed = always

    @property
    def place(self) -> str:
        """Its position, for error messages."""
        return f"'## {self.header}'"


@dataclass(frozen=True)
class Whole:
    """A field that fills the body."""

    needed: Needed = always
    notation: Notation[Any] = TEXT
    place: str = "the body"


type Place = Line | Section | Whole

PLACES = (Line, Section, Whole)
