"""Where and how the fields of a message are written: the one description that both reading and writing follow.

A field of a typed message is annotated with its place: a `Line` (`Label: value`, perhaps under a header), a `Section`
(everything between its `## Header` and the next one), or the `Whole` body. A notation reads any text without raising
(`read`), tells whether a strict reader accepts it (`accepts`), and writes a value so that `read` returns it. All are
linear in the length of the text.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from mail.core.protocol.message import Text, Timestamp

MAX_COUNT = 10**18 - 1
"""The largest number in a message."""

MAX_BEAD_ID = 256

BULLET = re.compile(r"[ \t]*+[-*][ \t]++")


class Notation[T](ABC):
    """The notation of one kind of value."""

    expected: str
    """What a strict reader accepts, for error messages."""

    @abstractmethod
    def read(self, text: str) -> T:
        """Return the value of a stripped text; an empty value if it can't be read."""

    @abstractmethod
    def accepts(self, text: str) -> bool:
        """Return whether a non-empty text is valid."""

    def write(self, value: T) -> str:
        """Return the text of a value; empty for an empty value."""
        return str(value)

    def fits(self, value: T) -> bool:
        """Return whether the value can be written without loss."""
        return True


class LineNotation(Notation[str]):
    """Text without line breaks."""

    expected = "one line of text"

    def read(self, text: str) -> str:
        return text

    def accepts(self, text: str) -> bool:
        return True

    def fits(self, value: str) -> bool:
        return "\n" not in value and "\r" not in value


class TextNotation(Notation[str]):
    """Text of any number of lines."""

    expected = "text"

    def read(self, text: str) -> str:
        return text

    def accepts(self, text: str) -> bool:
        return True


class BeadNotation(LineNotation):
    """The id of a bead: no blanks and no brackets, as it also appears in subjects."""

    expected = f"at most {MAX_BEAD_ID} printable characters without blanks and square brackets"

    def accepts(self, text: str) -> bool:
        return text.isprintable() and len(text) <= MAX_BEAD_ID and {*" []"}.isdisjoint(text)

    def fits(self, value: str) -> bool:
        return self.accepts(value)


class ConstantNotation(LineNotation):
    """A field with a fixed value per message type."""

    def __init__(self, word: str) -> None:
        self.expected = word

    def accepts(self, text: str) -> bool:
        return text.isascii() and text.upper() == self.expected

    def fits(self, value: str) -> bool:
        return self.accepts(value)


class TimestampNotation(LineNotation):
    """A timestamp of RFC 3339, unchanged."""

    expected = "a date and time of RFC 3339, such as 2026-01-31T08:00:00Z"

    def read(self, text: str) -> str:
        return text if self.accepts(text) else ""

    def accepts(self, text: str) -> bool:
        try:
            _TIMESTAMP.validate_python(text)
        except ValidationError:
            return False
        return True

    def fits(self, value: str) -> bool:
        return value == "" or self.accepts(value)


class CountNotation(Notation[int]):
    """A number of things."""

    expected = "a whole number"
    pattern = re.compile("()([0-9]{1,18})")

    def read(self, text: str) -> int:
        found = self.pattern.fullmatch(text)
        return int(found[2]) if found else 0

    def accepts(self, text: str) -> bool:
        return self.pattern.fullmatch(text) is not None


class PercentNotation(CountNotation):
    """A percentage of the context window; it may exceed 100."""

    expected = "whole percents, such as 45%"
    pattern = re.compile(r"(\+?)([0-9]{1,18})%")

    def write(self, value: int) -> str:
        return f"{value}%"


class FlagNotation(Notation[bool]):
    """A boolean."""

    expected = "true or false"

    def read(self, text: str) -> bool:
        return text.lower() in ("true", "yes")

    def accepts(self, text: str) -> bool:
        return text.lower() in ("true", "yes", "false", "no")

    def write(self, value: bool) -> str:
        return "true" if value else "false"


class ChoiceNotation[E: StrEnum](Notation[E]):
    """One of the words of an enumeration, in any case, or one of their synonyms."""

    def __init__(self, words: type[E], synonyms: Mapping[str, E] | None = None) -> None:
        self._meaning = {word.value.upper(): word for word in words} | dict(synonyms or {})
        self._unknown = words("")
        self.expected = ", ".join(word.value for word in words if word)

    def read(self, text: str) -> E:
        return self._meaning.get(text.upper(), self._unknown) if text.isascii() else self._unknown

    def accepts(self, text: str) -> bool:
        return bool(self.read(text))


class FilesNotation(Notation[tuple[str, ...]]):
    """Paths, separated by commas or as a list with one per line."""

    expected = "paths without line breaks"

    def read(self, text: str) -> tuple[str, ...]:
        found: list[str] = []
        for line in text.split("\n"):
            bullet = BULLET.match(line)
            found += [line[bullet.end() :]] if bullet else line.split(",")
        return without_blanks([unquoted(path.strip()) for path in found])

    def accepts(self, text: str) -> bool:
        return True

    def write(self, value: tuple[str, ...]) -> str:
        if any("," in path or BULLET.match(path) for path in value):
            return "\n" + self.write_list(value)
        return ", ".join(map(quoted, value))

    def write_list(self, value: tuple[str, ...]) -> str:
        """Return one path in each line."""
        return "\n".join(f"- {quoted(path)}" for path in value)

    def fits(self, value: tuple[str, ...]) -> bool:
        return all("\n" not in path and "\r" not in path for path in value)


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

LINE = LineNotation()
TEXT = TextNotation()
BEAD = BeadNotation()
TIMESTAMP = TimestampNotation()
COUNT = CountNotation()
PERCENT = PercentNotation()
FLAG = FlagNotation()
FILES = FilesNotation()


type Needed = Callable[[Any], bool]
"""Whether a strict message must have the field, depending on its other fields."""


def always(_message: Any) -> bool:
    """Return True: the field is needed."""
    return True


def never(_message: Any) -> bool:
    """Return False: the field is optional."""
    return False


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
