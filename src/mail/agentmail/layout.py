"""Where the fields of a typed message stand in its body: the one description that both reading and writing follow.

A field of a typed message is annotated with its place: a `Line` (`Label: value`, perhaps under a header) or a `Section`
(all between its `## Header` and the next); `Whole` is the body itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mail.agentmail.notation import LINE, TEXT, Notation

type Needed = Callable[[Any], bool]
"""Whether a strict message must have the field, by what else it says."""


def always(_message: Any) -> bool:
    """The field is needed."""
    return True


def never(_message: Any) -> bool:
    """The field may be left out."""
    return False


@dataclass(frozen=True)
class Line:
    """A field in a line of its own: `Label: value`.

    `under` is the header below which it is written. It is read wherever it stands, unless it is `bound` to its header.
    """

    label: str
    notation: Notation[Any] = LINE
    under: str = ""
    bullet: bool = False
    bound: bool = False
    needed: Needed = always

    @property
    def place(self) -> str:
        """As an error tells it."""
        return f"'{self.label}:' under '## {self.under}'" if self.under else f"'{self.label}:'"


@dataclass(frozen=True)
class Section:
    """A field that is all of a section."""

    header: str
    notation: Notation[Any] = TEXT
    needed: Needed = always

    @property
    def place(self) -> str:
        """As an error tells it."""
        return f"'## {self.header}'"


@dataclass(frozen=True)
class Whole:
    """A field that is the whole body."""

    needed: Needed = always
    notation: Notation[Any] = TEXT
    place: str = "the body"


type Place = Line | Section | Whole

PLACES = (Line, Section, Whole)
