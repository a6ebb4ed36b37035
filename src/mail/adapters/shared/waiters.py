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
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, key: TaskKey, seconds: float) -> None:
        """Wait for the next `notify`, for so many seconds at most."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[key].add(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            pass
        finally:
            if key in self._waiting:
                self._waiting[key].discard(waiter)
                if not self._waiting[key]:
                    del self._waiting[key]
