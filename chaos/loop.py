"""An event loop whose time leaps to the next timer when nobody is at work."""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from typing import Any

GRACE = 0.001
"""Seconds in which news that nobody has asked for may still come, before time leaps."""

MOMENTS = 20_000
"""How often the loop may turn around while its time stands still."""


class Stuck(Exception):
    """Time does not go on any more."""


class NumberedFuture(asyncio.Future[Any]):
    """A future that sets keep at the same place in each run, whatever its address is."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class LeapingSelector(selectors.DefaultSelector):
    """Waits for timers only as long as something is under way outside.

    Attributes:
        leapt: seconds that were skipped so far.
        under_way: how many pieces of work are, such as requests to a database.
        ends: functions that wait for a thread and set its result; they are called in order, each when nothing else is
            ready, so that a result comes at the same place in each run.
    """

    def __init__(self, grace: float) -> None:
        super().__init__()
        self.leapt = 0.0
        self.under_way = 0
        self.ends: deque[Callable[[], None]] = deque()
        self._grace = grace
        self._busy = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; where nothing is, and nothing is under way, time leaps by `timeout`."""
        if self.under_way or (timeout is not None and timeout <= 0):
            self._busy += 1
            if self._busy > MOMENTS and not self._grace:
                self._busy = 0
                raise Stuck("somebody is busy for ever")
            if self.ends and (timeout is None or timeout > 0):
                self.ends.popleft()()
                timeout = 0
            return super().select(timeout)
        self._busy = 0
        if timeout is None:
            if not self._grace:
                raise Stuck("everybody waits for somebody else, and no timer will ever end it")
            return super().select(timeout)
        ready = super().select(min(timeout, self._grace))
        if not ready:
            self.leapt += max(0.0, timeout - self._grace)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """The loop of a round.

    Its time stands still but for leaps where `real` is false: then a run is the same each time, if all that it waits
    for is timers and threads. Else it passes as usual, and leaps besides.
    """

    def __init__(self, *, real: bool) -> None:
        self._is_real = real
        self._leaping = LeapingSelector(GRACE if real else 0.0)
        self._clock: Callable[[], float] = time.monotonic if real else lambda: 0.0
        self._futures = count()
        super().__init__(self._leaping)
        self._threads = (
            ThreadPoolExecutor()
        )  # not the loop's default, whose end is awaited for a time that would leap

    @property
    def under_way(self) -> int:
        """How many pieces of work keep time from leaping."""
        return self._leaping.under_way

    def time(self) -> float:
        return self._clock() + self._leaping.leapt

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(next(self._futures), loop=self)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As usual; what a thread does is under way until its result is set, or it is cancelled before it has begun."""
        work: Future[Any] = (executor or self._threads).submit(func, *args)
        self._leaping.under_way += 1
        if self._is_real:
            result = asyncio.wrap_future(work, loop=self)
            work.add_done_callback(lambda _: self.call_soon_threadsafe(self._done))  # after the result
            return result
        result = self.create_future()
        self._leaping.ends.append(lambda: self._end(work, result))
        return result

    def close(self) -> None:
        """As usual, after the end of all threads."""
        self._threads.shutdown()
        super().close()

    def _end(self, work: Future[Any], result: asyncio.Future[Any]) -> None:
        """Wait for a thread, and set its result unless that was cancelled."""
        wait([work])
        self._done()
        if result.done():
            return
        error = work.exception()
        if error is None:
            result.set_result(work.result())
        else:
            result.set_exception(error)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Something is under way."""
        self._leaping.under_way += 1
        try:
            yield
        finally:
            self._done()

    def _done(self) -> None:
        self._leaping.under_way -= 1
