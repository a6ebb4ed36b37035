"""The engine's clock and source of ids, handed in wherever the core needs one."""

import os
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time and identity. The engine decides with what it is handed, so that tests can hand in theirs."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def new_id(self) -> str:
        """A fresh UUID, as text."""
        ...


_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


class SystemClock:
    """The real clock and random UUIDs: what `bootstrap` hands in."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """A random UUID (version 4, RFC 9562), in half the time that `str(uuid4())` takes."""
        digits = os.urandom(16).hex()
        variant = _VARIANT[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


SYSTEM_CLOCK = SystemClock()
