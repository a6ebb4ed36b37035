"""The engine's clock and source of ids, handed in wherever the core needs one."""

from datetime import UTC, datetime
from typing import Protocol
from uuid import uuid4


class Stamp(Protocol):
    """Time and identity. The engine decides with what it is handed, so that tests can hand in theirs."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def new_id(self) -> str:
        """A fresh UUID, as text."""
        ...


class SystemStamp:
    """The real clock and random UUIDs: what `bootstrap` hands in."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """A random UUID (version 4)."""
        return str(uuid4())


SYSTEM_STAMP = SystemStamp()
