"""Looking through the directories below the root."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mail.errors import AgentFault
from mail.stdlib.fs.root import MAX_DEPTH, Parts, explained, kind_of, open_directory

MAX_VISITED = 50_000
"""Directory entries that one search looks at."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is in a directory."""

    parts: Parts
    kind: str
    size: int

    @property
    def path(self) -> str:
        """The path below the root."""
        return "/".join(self.parts)


class Walk:
    """The entries below a directory, each before what is in it, and all in the order of their names.

    Attributes:
        top: the directory.
        is_partial: whether entries were left out, after `MAX_VISITED` of them or below `MAX_DEPTH`.
    """

    def __init__(self, top: Parts) -> None:
        self.is_partial = False
        self.top = top
        self._visited = 0

    def __iter__(self) -> Iterator[Entry]:
        waiting = [iter(list_entries(self.top))]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                continue
            if self._visited == MAX_VISITED:
                self.is_partial = True
                return
            self._visited += 1
            yield entry
            if entry.kind == "directory":
                waiting.append(iter(self._below(entry)))

    def _below(self, entry: Entry) -> list[Entry]:
        """What is in a directory that was there a moment ago."""
        if len(entry.parts) >= MAX_DEPTH:
            self.is_partial = True
            return []
        try:
            return list_entries(entry.parts)
        except AgentFault:  # gone, changed or closed to us meanwhile
            self.is_partial = True
            return []


def list_entries(parts: Parts) -> list[Entry]:
    """The entries of a directory, by name."""
    with open_directory(parts) as descriptor, explained(parts), os.scandir(descriptor) as scan:
        entries = [_entry(parts, each) for each in scan]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.parts)


def _entry(parts: Parts, each: os.DirEntry[str]) -> Entry | None:
    try:
        found = each.stat(follow_symlinks=False)
    except FileNotFoundError:  # gone meanwhile
        return None
    return Entry((*parts, each.name), kind_of(found.st_mode), found.st_size)


def matches(parts: Parts, pattern: Parts) -> bool:
    """Whether a path fits a glob: `*`, `?` and `[…]` within a part, `**` for any number of parts.

    The time is that of parts × pattern, whatever the pattern.
    """
    reached = _past_stars({0}, pattern)
    for part in parts:
        after = {place for place in reached if place < len(pattern) and pattern[place] == "**"}
        after |= {
            place + 1
            for place in reached
            if place < len(pattern) and pattern[place] != "**" and fnmatchcase(part, pattern[place])
        }
        reached = _past_stars(after, pattern)
    return len(pattern) in reached


def _past_stars(places: set[int], pattern: Parts) -> set[int]:
    """The places in the pattern, and those behind each `**`, which may stand for nothing."""
    found = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == "**":
            place += 1  # noqa: PLW2901
            found.add(place)
    return found
