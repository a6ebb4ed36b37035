"""The lines of a body: the first occurrence of each label and header, found in one pass.

Labels may be bold (`**Bead:** x`). A header is `## Name`, with two or more `#`. Lines inside a code block (between
two equal fences) are text.

A line of free text that looks like a header (`##`), a label of its message, or a fence without its counterpart is
escaped with a backslash, as in Markdown, and unescaped on reading, so that no text is lost or mistaken for a field.
In a message whose text is the whole body, headers have no meaning and stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

from mail.agentmail.messages import CLASSES, MessageType, layout
from mail.agentmail.notation import BULLET, Line, Whole

_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)([^`]*)$")


class Grammar:
    """The labels and headers in bodies of one message type."""

    def __init__(self, kind: MessageType) -> None:
        shape = CLASSES[kind]
        fields = layout(shape).values()
        self.has_sections = not any(isinstance(field, Whole) for field in fields)
        labels = [*shape.bead_labels, *(field.label for field in fields if isinstance(field, Line))]
        names = "|".join(re.escape(label) for label in labels)
        start = r"[ \t]*+(?:[-*][ \t]++)?+"
        label = rf"{start}(?:({names}):|(\*\*|__)({names})(?:\2:|:\2))"
        self._field = re.compile(label)
        self._special = re.compile(
            rf"\\*+(?:{label}{'|##' if self.has_sections else ''}|[ ]{{0,3}}(?:```|~~~))"
        )

    def find_field(self, line: str) -> tuple[str, str] | None:
        """Return the label and the value of a line that begins with a label."""
        found = self._field.match(line)
        return None if found is None else (found[1] or found[3], line[found.end() :].strip())

    def escape(self, text: str) -> str:
        """Return the text as it is written into a body."""
        return self._outside_code(text, lambda line: f"\\{line}" if self._special.match(line) else line)

    def unescape(self, text: str) -> str:
        """Return the inverse of `escape`."""
        return self._outside_code(
            text, lambda line: line[1:] if line.startswith("\\") and self._special.match(line) else line
        )

    def _outside_code(self, text: str, change: Callable[[str], str]) -> str:
        lines = text.split("\n")
        return "\n".join(
            line if is_code else change(line) for line, is_code in zip(lines, mark_code(lines), strict=True)
        )


def mark_code(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it belongs to a code block: a fence, the same fence again, and the lines between."""
    marks = [False] * len(lines)
    fences = [_FENCE.match(line) for line in lines]
    ends: list[int | None] = [None] * len(lines)
    below: dict[str, int] = {}
    for number in range(len(lines) - 1, -1, -1):
        if (fence := fences[number]) is not None:
            ends[number] = below.get(fence[1])
            if not fence[2].strip():
                below[fence[1]] = number
    number = 0
    while number < len(lines):
        end = ends[number]
        if end is not None:
            marks[number : end + 1] = [True] * (end + 1 - number)
            number = end
        number += 1
    return marks


@cache
def grammar_of(kind: MessageType) -> Grammar:
    """Return the grammar of a type's bodies."""
    return Grammar(kind)


class Body:
    """A body, scanned in time linear in its length."""

    def __init__(self, text: str, kind: MessageType) -> None:
        self.text = text
        self._grammar = grammar_of(kind)
        self._lines = text.split("\n")
        self._fields: dict[str, int] = {}
        self._bound_fields: dict[tuple[str, str], int] = {}
        self._sections: dict[str, tuple[int, int]] = {}
        self._scan()

    def _scan(self) -> None:
        header, start = "", 0
        for number, (line, is_code) in enumerate(zip(self._lines, mark_code(self._lines), strict=True)):
            if is_code:
                continue
            if line.startswith("##"):
                self._sections.setdefault(header, (start, number))
                header, start = line.lstrip("#").strip().lower(), number + 1
            elif (found := self._grammar.find_field(line)) is not None:
                label = found[0]
                self._fields.setdefault(label, number)
                if header:
                    self._bound_fields.setdefault((header, label), number)
        self._sections.setdefault(header, (start, len(self._lines)))

    def value(self, label: str, header: str = "") -> str:
        """Return the text after the first occurrence of a label, in the body or in the sections with this header."""
        number = self._find(label, header)
        return "" if number is None else self._rest(number)

    def value_or_list(self, label: str) -> str:
        """Return the text after a label or, if it is empty, the list in the lines below it."""
        number = self._find(label, "")
        if number is None:
            return ""
        return self._rest(number) or self._list_below(number)

    def section(self, header: str) -> str:
        """Return the text between the first header of this name and the next header."""
        start, end = self._sections.get(header.lower(), (0, 0))
        return self.free_text("\n".join(self._lines[start:end]))

    def free_text(self, text: str) -> str:
        """Return a piece of the body, stripped and unescaped."""
        return self._grammar.unescape(text.strip())

    def _find(self, label: str, header: str) -> int | None:
        return self._bound_fields.get((header.lower(), label)) if header else self._fields.get(label)

    def _rest(self, number: int) -> str:
        found = self._grammar.find_field(self._lines[number])
        return "" if found is None else found[1]

    def _list_below(self, number: int) -> str:
        items: list[str] = []
        for line in self._lines[number + 1 :]:
            if not items and not line.strip():
                continue
            item = self._grammar.unescape(line)
            if line.startswith("##") or self._grammar.find_field(line) or not BULLET.match(item):
                break
            items.append(item)
        return "\n".join(items)
