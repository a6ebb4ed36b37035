"""Spaces out work that holds the event loop for long, so that short work isn't delayed by more than one piece of it."""

import asyncio

LARGE = 256 * 1024
"""The size of what is worked on, in bytes, from which work is long."""

PAUSE_SECONDS = 0.005
"""In which short work that waits is done."""


class Pacer:
    """Lets long pieces of work on an event loop begin one by one, with pauses in which everything else runs."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def pause(self, size: int) -> None:
        """Wait for the turn of a piece of work on so many bytes; a short one begins immediately."""
        if size > LARGE:
            async with self._lock:
                await asyncio.sleep(PAUSE_SECONDS)
