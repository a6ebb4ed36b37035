"""How often a caller may ask: a token bucket for each."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from mail.auth.keys import Caller
from mail.errors import RateLimited

if TYPE_CHECKING:
    from mail.config import LimitsConfig

KNOWN_CALLERS = 4096
"""How many callers are remembered; who has not asked for longest is forgotten, and begins with a full bucket again."""


class RateLimiter:
    """Lets each caller ask `per_second` times a second, and `burst` times at once. It counts in this process only.

    `clock` counts seconds.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1, burst)
        self._clock = clock
        self._buckets: OrderedDict[Caller, tuple[float, float]] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """Count a request. Raises RateLimited, with the time after which the next one is let through."""
        now = self._clock()
        left, since = self._buckets.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_second)
        is_let = left >= 1
        self._buckets[caller] = (left - is_let, now)
        while len(self._buckets) > KNOWN_CALLERS:
            self._buckets.popitem(last=False)
        if not is_let:
            raise RateLimited(
                f"more than {self._per_second:g} requests a second; try again later",
                retry_after=math.ceil((1 - left) / self._per_second),
            )


def rates_of(limits: "LimitsConfig") -> RateLimiter | None:
    """The limiter that the configuration asks for, if it asks for one."""
    if not limits.requests_per_second:
        return None
    return RateLimiter(limits.requests_per_second, limits.request_burst)
