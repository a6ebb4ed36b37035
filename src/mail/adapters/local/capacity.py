"""How many turns fit into the memory of this process."""

import os
from collections.abc import Iterator
from pathlib import Path

BYTES_PER_TURN = 64 * 1024
"""The memory set aside for a turn that waits for a model: its task takes a tenth of it, a connection the rest."""

SHARE = 4
"""Turns get a quarter of the memory."""

FEWEST = 64

_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The limit of a container, in either version of cgroups."""


def turns_in_memory() -> int:
    """Return how many turns may wait for their models at once in this process."""
    return max(FEWEST, min(_limits(), default=0) // SHARE // BYTES_PER_TURN)


def _limits() -> Iterator[int]:
    """Yield the sizes in bytes that bound the memory of this process; none if the system doesn't say."""
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # such as on Windows
        pass
    for path in _CGROUPS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # not "max"
            yield int(text)
