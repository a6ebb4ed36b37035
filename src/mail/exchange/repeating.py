"""Running an action at an interval until stopped."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
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
        self._stops_next = False
        self._runs: WeakSet[Run] = WeakSet()

    def begin(self, interval: float) -> "Run":
        """Begin a run with an interval in seconds. Raises BadRequest for an interval that is no number, or negative."""
        if not isinstance(interval, int | float) or not interval >= 0:
            raise BadRequest(f"the interval must be 0 or more seconds, not {interval!r}")
        run = Run(interval)
        with self._lock:
            if self._stops_next:
                run.stopped.set_result(None)
            self._is_new = self._stops_next = False
            self._runs.add(run)
        return run

    def stop(self) -> None:
        """End all runs after their present action."""
        with self._lock:
            runs = [run for run in self._runs if not run.is_over]
            stopped = [run for run in runs if run.can_stop]
            for run in stopped:
                run.stopped.set_result(None)
            self._stops_next = (self._is_new or bool(runs)) and not stopped


class Run:
    """One run of an action. It ends with its coroutine, or when nobody holds that any more.

    Attributes:
        stopped: has a result once the run is to end; set in any thread.
    """

    def __init__(self, interval: float) -> None:
        self.is_over = False
        self.stopped: Future[None] = Future()
        self._interval = interval
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def can_stop(self) -> bool:
        """Whether it was not stopped before, and its loop was not closed under it."""
        return not self.stopped.done() and (self._loop is None or not self._loop.is_closed())

    async def repeat(self, action: Callable[[], Awaitable[object]]) -> None:
        """Run the action at each interval. If a store can't be reached, the action is retried at the next one."""
        self._loop = asyncio.get_running_loop()
        stopped = asyncio.wrap_future(self.stopped)
        try:
            while not self.stopped.done():
                try:
                    await action()
                except StoreUnavailable:
                    logger.exception("an exchange could not be synchronized; it is retried")
                await asyncio.wait([stopped], timeout=self._interval)
        finally:
            self.is_over = True
