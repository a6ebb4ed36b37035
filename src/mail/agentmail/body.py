"""The lines of a body: the first occurrence of each label and header, found in one pass.

A line of free text that looks like a header (`##`) or a label of its message is escaped with a backslash, as in Markdown,
and unescaped on reading, so that no text is lost or mistaken for a field. In a message whose text is the whole body,
headers have no meaning and stay as they are.
"""

import re
from functools import cache

from mail.agentmail.messages import CLASSES, MessageType, layout
from mail.agentmail.notation import BULLET, Line, Whole


class Grammar:
    """The labels and headers in bodies of one message type."""

    def __init__(self, kind: MessageType) -> None:
        shape = CLASSES[kind]
        fields = layout(shape).values()
        self.has_sections = not any(isinstance(field, Whole) for field in fields)
        labels = [*shape.bead_labels, *(field.label for field in fields if isinstance(field, Line))]
        names = "|".join(re.escape(label) for label in labels)
        self.field = re.compile(rf"[ \t]*+(?:[-*][ \t]++)?+({names}):")
        meaningful = rf"\\*+(?:[ \t]*+(?:[-*][ \t]++)?+(?:{names}):{'|##' if self.has_sections else ''})"
        self._special = re.compile(rf"^(?={meaningful})", re.MULTILINE)
        self._escaped = re.compile(rf"^\\(?={meaningful})", re.MULTILINE)

    def escape(self, text: str) -> str:
        """Return the text as it is written into a body."""
        return self._special.sub(r"\\", text)

    def unescape(self, text: str) -> str:
        """Return the inverse of `escape`."""
        return self._escaped.sub("", text)


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
        for number, line in enumerate(self._lines):
            if line.startswith("##"):
                self._sections.setdefault(header, (start, number))
                header, start = line[2:].strip().lower(), number + 1
            elif found := self._grammar.field.match(line):
                self._fields.setdefault(found[1], number)
                if header:
                    self._bound_fields.setdefault((header, found[1]), number)
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
        return self._lines[number].partition(":")[2].strip()

    def _list_below(self, number: int) -> str:
        items: list[str] = []
        for line in self._lines[number + 1 :]:
            if not items and not line.strip():
                continue
            item = self._grammar.unescape(line)
            if line.startswith("##") or self._grammar.field.match(line) or not BULLET.match(item):
                break
            items.append(item)
        return "\n".join(items)
