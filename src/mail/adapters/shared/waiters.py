"""Waking those in this process who wait for something to happen to a task."""

import asyncio
from collections import defaultdict

from mail.core.task.task import TaskKey


class Waiters:
    """News about tasks: whoever waits for a task is woken by the next announcement of it."""

    def __init__(self) -> None:
        self._waiting: defaultdict[TaskKey, set[asyncio.Future[None]]] = defaultdict(set)

    def announce(self, key: TaskKey) -> None:
        """Wake all who wait for this task."""
        for waiter in self._waiting.pop(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, key: TaskKey, seconds: float) -> None:
        """Return at the next announcement, or when the time is up."""
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
