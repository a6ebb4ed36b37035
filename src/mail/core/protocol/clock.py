"""The engine's clock and source of ids, passed in wherever the core needs one."""

import os
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Port: time and ids; tests pass their own."""

    def now(self) -> datetime:
        """Return the time, in UTC."""

    def new_id(self) -> str:
        """Return a new UUID as text."""


def format_time(seconds: float) -> str:
    """Return a time, in seconds since the epoch, in RFC 3339 and UTC, without fractions of a second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


class SystemClock:
    """The real clock, and random UUIDs; passed in by `bootstrap`."""

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """Return a random UUID (version 4, RFC 9562), twice as fast as `str(uuid4())`."""
        digits = os.urandom(16).hex()
        variant = _VARIANT[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


SYSTEM_CLOCK = SystemClock()
