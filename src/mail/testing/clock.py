"""A deterministic `mail.core.protocol.clock.Clock`."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


class FakeClock:
    """Ids count up; time stands still until `advance`.

    `run` keeps the ids of two stamps apart, such as those before and after a restart.
    """

    def __init__(self, run: int = 0, start: datetime = EPOCH) -> None:
        self._now = start
        self._ids = run << 64

    def now(self) -> datetime:
        return self._now

    def new_id(self) -> str:
        self._ids += 1
        return str(UUID(int=self._ids))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
