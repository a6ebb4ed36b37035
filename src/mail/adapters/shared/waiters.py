"""Waits, in this process, for a change of a task, or for new rows."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mail.core.task.rows import Wait
from mail.core.task.task import TaskKey


class Waiters:
    """Coroutines that wait for tasks. `notify` wakes those of one task."""

    def __init__(self) -> None:
        self._waiting: defaultdict[TaskKey, set[asyncio.Future[None]]] = defaultdict(set)

    def notify(self, key: TaskKey) -> None:
        """Wake everything that waits for this task."""
        for waiter in self._waiting.pop(key, ()):
            _end(waiter)

    async def wait(self, key: TaskKey, seconds: float) -> None:
        """Wait for the next `notify`, for so many seconds at most."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[key].add(waiter)
        timer = loop.call_later(seconds, _end, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if key in self._waiting:
                self._waiting[key].discard(waiter)
                if not self._waiting[key]:
                    del self._waiting[key]


class Watches:
    """Watches of places; `notify` ends the waits of those whose places get rows, also a wait that begins later."""

    def __init__(self) -> None:
        self._watched: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def notify(self, changed: Iterable[str]) -> None:
        """Wake everything that watches one of the places that have changed."""
        for place in changed:
            for event in self._watched.get(place, ()):
                event.set()

    @contextmanager
    def watched(self, place: str) -> "Iterator[Wait]":
        """Watch a place; see `mail.core.task.rows.Rows`."""
        event = asyncio.Event()
        self._watched[place].add(event)

        async def wait(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
            event.clear()

        try:
            yield wait
        finally:
            self._watched[place].discard(event)
            if not self._watched[place]:
                del self._watched[place]


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
