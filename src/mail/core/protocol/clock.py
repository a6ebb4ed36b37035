"""The engine's clock and source of ids, passed in wherever the core needs one."""

import os
import re
from datetime import UTC, datetime
from operator import itemgetter
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


def read_time(given: float | str) -> float:
    """Return a time in seconds since the epoch: given so, or in ISO 8601 with its zone.

    Raises ValueError, which says what it must be.
    """
    if not isinstance(given, str):
        return float(given)
    try:
        time = datetime.fromisoformat(given.strip())
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"ISO 8601 with its zone, such as 2026-12-01T08:00:00Z, not {given[:40]!r}")
    return time.timestamp()


_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

DURATION = r"(\d+(?:\.\d+)?)([smhdw])"
"""The pattern of a duration as text."""


def read_duration(given: float | str) -> float:
    """Return the seconds of a duration: given so, or as text such as `90s`, `15m`, `2h`, `3d` and `1w`.

    Raises ValueError, which says what it must be.
    """
    if not isinstance(given, str):
        return float(given)
    found = re.fullmatch(DURATION, given.strip())
    if found is None:
        raise ValueError(f"seconds, or text such as '90s', '15m', '2h' or '3d', not {given[:40]!r}")
    return float(found[1]) * _UNITS[found[2]]


_GROUPS = itemgetter(slice(8), slice(8, 12), slice(13, 16), 16, slice(17, 20), slice(20, None))
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


class SystemClock:
    """The real clock, and random UUIDs; passed in by `bootstrap`."""

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """Return a random UUID (version 4, RFC 9562), twice as fast as `str(uuid4())`."""
        low, mid, high, variant, sequence, node = _GROUPS(os.urandom(16).hex())
        return f"{low}-{mid}-4{high}-{_VARIANT[variant]}{sequence}-{node}"


SYSTEM_CLOCK = SystemClock()
