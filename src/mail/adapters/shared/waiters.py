"""Waits, in this process, for a change of a task."""

import asyncio
from collections import defaultdict

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


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
