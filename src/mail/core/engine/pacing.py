"""Spaces out work that holds the event loop, so that short work isn't delayed by more than one piece of it."""

import asyncio
from collections.abc import Generator
from typing import Protocol

LARGE = 256 * 1024
"""The size of a message, in bytes, from which the work of a turn on it is long."""

PIECE_BYTES = 64 * 1024
"""About how many bytes are worked on between two pauses: some milliseconds of work."""

PAUSE_SECONDS = 0.002
"""In which short work that waits is done."""

PAUSES = 8
"""Pauses, one after the other, while they take longer than they should because there is much short work."""


class Paced(Protocol):
    """Spaces out the work of a request, of a turn, or of a whole process."""

    async def pause(self, size: int) -> None:
        """Wait until a piece of work on so many bytes may begin."""


async def in_slices[T](work: Generator[None, None, T], pacer: Paced) -> T:
    """Do long work, which yields after each slice of it, with pauses between the slices; return its result."""
    try:
        while True:
            next(work)
            await pacer.pause(PIECE_BYTES)
    except StopIteration as end:
        result: T = end.value
        return result


def at_once[T](work: Generator[None, None, T]) -> T:
    """Do such work without pauses."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result


class Pacer:
    """Lets work on an event loop begin piece by piece, with pauses in which everything else runs.

    The pieces of all requests and turns count together, as many short ones hold the loop as long as a few large ones.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._done = 0

    async def pause(self, size: int) -> None:
        """Wait for the turn of a piece of work on so many bytes; after little work it begins immediately."""
        self._done += size
        if self._done > PIECE_BYTES:
            self._done = 0
            async with self._lock:
                loop = asyncio.get_running_loop()
                for _ in range(PAUSES):
                    begun = loop.time()
                    await asyncio.sleep(PAUSE_SECONDS)
                    if loop.time() - begun < 2 * PAUSE_SECONDS:
                        break
