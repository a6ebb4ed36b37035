"""Looking for a text in files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mail.errors import AgentFault
from mail.stdlib.fs.contents import read_piece
from mail.stdlib.fs.tree import Entry
from mail.stdlib.outcomes import cut

MAX_MATCHES = 200
"""Lines that one search returns."""

MAX_FILE_BYTES = 1024 * 1024
"""Files that are larger are left out."""

MAX_SEARCHED_BYTES = 64 * 1024 * 1024
"""Bytes that one search reads."""

MAX_LINE = 300
"""Characters of a line that are returned."""


@dataclass(slots=True)
class Found:
    """The lines found; `is_partial` where files or lines were left out. Files that are no text aren't missed."""

    matches: list[dict[str, Any]] = field(default_factory=list)
    is_partial: bool = False


def search(files: Iterable[Entry], text: str, *, ignore_case: bool) -> Found:
    """The lines of the files that hold the text."""
    found = Found()
    wanted = text.casefold() if ignore_case else text
    searched = 0
    for entry in files:
        if entry.size > MAX_FILE_BYTES or searched + entry.size > MAX_SEARCHED_BYTES:
            found.is_partial = True
            continue
        searched += entry.size
        try:
            lines = _lines(entry)
        except AgentFault:  # gone, changed or closed to us meanwhile
            found.is_partial = True
            continue
        for number, line in enumerate(lines, start=1):
            if wanted not in (line.casefold() if ignore_case else line):
                continue
            if len(found.matches) == MAX_MATCHES:
                found.is_partial = True
                return found
            found.matches.append({"path": entry.path, "line": number, "text": cut(line, MAX_LINE)})
    return found


def _lines(entry: Entry) -> Iterator[str]:
    text = read_piece(entry.parts, 0, MAX_FILE_BYTES).text or ""
    return iter(text.split("\n"))
