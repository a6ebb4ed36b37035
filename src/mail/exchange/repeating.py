"""Doing something again and again, until told to stop."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

from mail.errors import BadRequest, StoreUnavailable

logger = logging.getLogger(__name__)


class Repeater:
    """Runs something at an interval. It may run in several threads at once; `stop` stops all of them.

    A `stop` while nothing runs, but for what is told already, holds for the next run: it ends before it has begun.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_stopped = False
        self._untold: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    async def run(self, action: Callable[[], Awaitable[object]], interval: float) -> None:
        """Do the action, wait for `interval` seconds, and so on. Raises BadRequest for an interval below zero.

        Where a store can't be reached it is tried again at the next interval.
        """
        if not interval >= 0:
            raise BadRequest(f"an interval is a number of seconds from 0 on, not {interval!r}")
        stopped = asyncio.Event()
        with self._lock:
            if self._is_stopped:
                self._is_stopped = False
                return
            self._untold[stopped] = asyncio.get_running_loop()
        try:
            while not stopped.is_set():
                try:
                    await action()
                except StoreUnavailable:
                    logger.exception("an exchange could not be synchronized; it is tried again")
                await _wait(stopped, interval)
        finally:
            with self._lock:
                self._untold.pop(stopped, None)

    def stop(self) -> None:
        """Let all runs end as soon as what they do is done."""
        with self._lock:
            told = [_tell(stopped, loop) for stopped, loop in self._untold.items()]
            self._untold.clear()
            self._is_stopped = not any(told)


def _tell(stopped: asyncio.Event, loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the run can still hear it: its loop may have been closed without letting it end."""
    try:
        loop.call_soon_threadsafe(stopped.set)
    except RuntimeError:
        return False
    return True


async def _wait(stopped: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 1e-9)):
            await stopped.wait()
    except TimeoutError:
        pass
