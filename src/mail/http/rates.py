"""Limits of a caller: its rate of requests, by a token bucket, and the large answers that it reads at the same time."""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from mail.auth.keys import Caller
from mail.errors import RateLimited

if TYPE_CHECKING:
    from mail.config import LimitsConfig

KNOWN_CALLERS = 4096
"""Buckets that are kept; the least recently used is dropped, and its caller starts with a full one again."""


LARGE_ANSWERS = 4
"""The number of large answers that one caller may be reading."""


class RateLimiter:
    """Allows each caller `per_second` requests a second, and bursts of `burst` requests, in this process.

    `clock` returns seconds.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1, burst)
        self._clock = clock
        self._buckets: OrderedDict[Caller, tuple[float, float]] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """Count a request. Raises RateLimited, with the seconds until the next one is allowed."""
        now = self._clock()
        left, since = self._buckets.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_second)
        is_allowed = left >= 1
        self._buckets[caller] = (left - is_allowed, now)
        while len(self._buckets) > KNOWN_CALLERS:
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise RateLimited(
                f"more than {self._per_second:g} requests a second; try again later",
                retry_after=math.ceil((1 - left) / self._per_second),
            )


class LargeAnswers:
    """The large answers that a process is sending.

    Args:
        max_bytes: the largest answer that can be sent, where answers are buffered; None for any size.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self._in_flight: Counter[Caller] = Counter()
        self._alone = asyncio.Lock()

    def claim(self, caller: Caller) -> Callable[[], None]:
        """Count one more answer; return what ends it. Raises RateLimited."""
        if self._in_flight[caller] >= LARGE_ANSWERS:
            raise RateLimited(
                f"you are reading {LARGE_ANSWERS} large answers, which is the limit; read one of them to its end first"
            )
        self._in_flight[caller] += 1

        def end() -> None:
            self._in_flight[caller] -= 1
            if not self._in_flight[caller]:
                del self._in_flight[caller]

        return end

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Surround work that needs much memory, so that it is needed only once."""
        return self._alone


def rates_of(limits: "LimitsConfig") -> RateLimiter | None:
    """Return the limiter for a configuration; None if that sets no limit."""
    if not (limits.requests_per_second and limits.request_burst):
        return None
    return RateLimiter(limits.requests_per_second, limits.request_burst)
