"""Running an action at an interval until stopped."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

from mail.errors import BadRequest, StoreUnavailable

logger = logging.getLogger(__name__)


class Repeater:
    """Runs an action at an interval, perhaps in several threads; `stop` stops all of them.

    A `stop` while nothing runs stops the next run before it begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_stopped = False
        self._running: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    async def run(self, action: Callable[[], Awaitable[object]], interval: float) -> None:
        """Run the action every `interval` seconds. Raises BadRequest for a negative interval.

        If a store can't be reached, the action is retried at the next interval.
        """
        if not interval >= 0:
            raise BadRequest(f"the interval must be 0 or more seconds, not {interval!r}")
        stopped = asyncio.Event()
        with self._lock:
            if self._is_stopped:
                self._is_stopped = False
                return
            self._running[stopped] = asyncio.get_running_loop()
        try:
            while not stopped.is_set():
                try:
                    await action()
                except StoreUnavailable:
                    logger.exception("an exchange could not be synchronized; it is retried")
                await _wait(stopped, interval)
        finally:
            with self._lock:
                self._running.pop(stopped, None)

    def stop(self) -> None:
        """End all runs after their present action."""
        with self._lock:
            reached = [_signal(stopped, loop) for stopped, loop in self._running.items()]
            self._running.clear()
            self._is_stopped = not any(reached)


def _signal(stopped: asyncio.Event, loop: asyncio.AbstractEventLoop) -> bool:
    """Signal a run to stop; return False if its loop was closed before it ended."""
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
