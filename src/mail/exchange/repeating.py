"""Running an action at an interval until stopped."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from inspect import markcoroutinefunction
from typing import Any
from weakref import WeakSet

from mail.errors import BadRequest, StoreUnavailable

logger = logging.getLogger(__name__)


def coroutine_function[F: Callable[..., Any]](function: F) -> F:
    """Let a function that returns a coroutine look like an `async def` without a result, as it is documented."""
    function.__annotations__["return"] = None
    return markcoroutinefunction(function)


class Repeater:
    """Runs an action at an interval, perhaps in several threads; `stop` stops all runs that have begun.

    A run begins when it is asked for, even before its coroutine starts. A `stop` before the first run, or while the
    last one still ends, stops the next run; a `stop` after a run has ended has no effect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_new = True
        self._is_stopped = False
        self._runs: WeakSet[Run] = WeakSet()

    def begin(self, interval: float) -> "Run":
        """Begin a run with an interval in seconds. Raises BadRequest for an interval that is no number, or negative."""
        if not isinstance(interval, int | float) or not interval >= 0:
            raise BadRequest(f"the interval must be 0 or more seconds, not {interval!r}")
        run = Run(interval)
        with self._lock:
            if self._is_stopped:
                run.stop()
            self._is_new = self._is_stopped = False
            self._runs.add(run)
        return run

    def stop(self) -> None:
        """End all runs after their present action."""
        with self._lock:
            runs = [run for run in self._runs if not run.is_over]
            stopped = [run.stop() for run in runs]
            self._is_stopped = (self._is_new or bool(runs)) and not any(stopped)


class Run:
    """One run of an action. It ends with its coroutine, or when nobody holds that any more."""

    def __init__(self, interval: float) -> None:
        self.is_over = False
        self._interval = interval
        self._lock = threading.Lock()
        self._is_stopped = False
        self._started: tuple[asyncio.Event, asyncio.AbstractEventLoop] | None = None

    async def repeat(self, action: Callable[[], Awaitable[object]]) -> None:
        """Run the action at each interval. If a store can't be reached, the action is retried at the next one."""
        stopped = asyncio.Event()
        with self._lock:
            self._started = stopped, asyncio.get_running_loop()
            if self._is_stopped:
                stopped.set()
        try:
            while not stopped.is_set():
                try:
                    await action()
                except StoreUnavailable:
                    logger.exception("an exchange could not be synchronized; it is retried")
                await _wait(stopped, self._interval)
        finally:
            self.is_over = True

    def stop(self) -> bool:
        """End the run, in any thread; return False if it had ended, or if its loop was closed before that."""
        with self._lock:
            if self._is_stopped:
                return False
            self._is_stopped = True
            if self._started is None:
                return True
            stopped, loop = self._started
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
