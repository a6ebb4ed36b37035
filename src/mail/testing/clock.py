"""A deterministic `mail.core.protocol.clock.Clock`."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


class FakeClock:
    """A clock whose ids count up and whose time stands still until `advance`.

    `run` separates the ids of two clocks, such as those before and after a restart.
    """

    def __init__(self, run: int = 0, start: datetime = EPOCH) -> None:
        self._now = start
        self._ids = run << 64

    def now(self) -> datetime:
        """Return the current time."""
        return self._now

    def new_id(self) -> str:
        """Return the next id."""
        self._ids += 1
        return str(UUID(int=self._ids))

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self._now += timedelta(seconds=seconds)
