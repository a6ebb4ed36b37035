"""Limits of a caller's rate of requests, by a token bucket."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from mail.auth.keys import Caller
from mail.errors import RateLimited

if TYPE_CHECKING:
    from mail.config import LimitsConfig

KNOWN_CALLERS = 4096
"""Buckets of callers that are kept, and of strangers; a caller whose bucket is dropped, the least recently used, starts
with a full one again.
"""

NETWORK_BITS = 64
"""The length of the prefix of an IPv6 address that its owner can't change."""


class RateLimiter:
    """Allows each caller `per_second` requests a second, and bursts of `burst` requests, in this process.

    `clock` returns seconds.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1, burst)
        self._clock = clock
        self._callers: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._strangers: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def admit_stranger(self, address: str) -> None:
        """Count a request without a key by its address; an IPv6 address by its network. Raises RateLimited."""
        try:
            ip = ip_address(address)
        except ValueError:
            address = ""
        else:
            if isinstance(ip, IPv6Address):
                address = str(ip.ipv4_mapped or ip_network((ip.packed, NETWORK_BITS), strict=False))
        self._count(self._strangers, address)

    def admit(self, caller: Caller) -> None:
        """Count a request. Raises RateLimited, with the seconds until the next one is allowed."""
        self._count(self._callers, caller)

    def _count(self, buckets: OrderedDict[Hashable, tuple[float, float]], key: Hashable) -> None:
        now = self._clock()
        left, since = buckets.pop(key, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_second)
        is_allowed = left >= 1
        buckets[key] = (left - is_allowed, now)
        while len(buckets) > KNOWN_CALLERS:
            buckets.popitem(last=False)
        if not is_allowed:
            raise RateLimited(
                f"more than {self._per_second:g} requests a second; try again later",
                retry_after=math.ceil((1 - left) / self._per_second),
            )


def rates_of(limits: "LimitsConfig") -> RateLimiter | None:
    """Return the limiter for a configuration; None if that sets no limit."""
    if not (limits.requests_per_second and limits.request_burst):
        return None
    return RateLimiter(limits.requests_per_second, limits.request_burst)
