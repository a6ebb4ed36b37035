"""Limits of a caller's rate of requests, by a token bucket."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address, ip_network

from mail.auth.keys import Caller
from mail.errors import RateLimited

KNOWN_CALLERS = 4096
"""Buckets of callers that are kept, and of strangers; a caller whose bucket is dropped, the least recently used, starts
with a full one again.
"""

NETWORK_BITS = 64
"""The length of the prefix of an IPv6 address that its owner can't change."""


class RateLimiter:
    """Allows each caller `per_second` requests a second, and bursts of `burst` requests, in this process.

    0 sets no limit. `clock` returns seconds.
    """

    def __init__(
        self, per_second: float = 0, burst: int = 0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._callers: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._strangers: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def admit_stranger(self, address: str) -> None:
        """Count a request without a valid key by its address; an IPv6 address by its network. Raises RateLimited."""
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
        if not (self._per_second and self._burst):
            return
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
