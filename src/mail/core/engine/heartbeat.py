"""The heartbeat: renews the leases of the turns that run in this process, and stops turns that have lost theirs.

A lease is short, so that a worker that is dead, frozen or cut off is noticed soon. Quick turns end before the first
renewal. The longer ones are renewed together, by one call of the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf

from mail.core.engine.leased_turn import LeasedTurn
from mail.core.protocol.clock import Clock
from mail.core.task.ports import Store
from mail.core.turns.context import leave_task
from mail.errors import LeaseLost, StoreError, StoreUnavailable

LEASE_SECONDS = 40.0
"""Seconds after which the turn of a worker that is gone may be taken over."""

SKEW = 2.0
"""Seconds by which the clocks of two workers may differ."""

RENEWALS = 3
"""How many times a lease is renewed in the time in which it would expire."""

TICKS = 15
"""How many times leases are checked in that time. A turn that is younger than the pause between two checks is left
alone.
"""

OnRenewal = Callable[[float], Awaitable[None]]
"""Called as a turn begins and after each renewal, with the seconds for which other workers must not begin the turn."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Held:
    """A lease in use.

    Attributes:
        expires: when it expires, by the clock of the store's users.
        renewed: when it was renewed or, at first, taken, by the clock of the event loop.
        latest: the latest time at which it may expire.
    """

    leased: LeasedTurn
    expires: float
    renewed: float
    latest: float
    on_renewal: OnRenewal | None


class Heartbeat:
    """The leases of the turns that run in this process.

    Args:
        seconds: how long a lease lasts without a renewal.
    """

    def __init__(self, store: Store, clock: Clock, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._held: dict[str, _Held] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # a process may use one after the other
        self._beat: asyncio.Task[None] | None = None

    def __contains__(self, token: str) -> bool:
        """Return whether the turn of a lease runs here."""
        return token in self._held

    def is_late(self, leased: LeasedTurn) -> bool:
        """Return whether a turn that runs here has not renewed its lease in time, as the event loop was too busy."""
        held = self._held.get(leased.turn.lease.token)
        return held is not None and held.expires <= self._now()

    def begin(
        self,
        leased: LeasedTurn,
        life: float | None = None,
        on_renewal: OnRenewal | None = None,
    ) -> None:
        """Keep the lease of a turn that begins, until the turn must have ended.

        `life` is how long this process will live, in seconds, if that is limited.
        """
        loop = asyncio.get_running_loop()
        lease, now = leased.turn.lease, loop.time()
        latest = inf if life is None else self._now() + life + SKEW
        self._held[lease.token] = _Held(leased, lease.expires, now, latest, on_renewal)
        if self._loop is not loop:
            self._loop, self._beat = loop, None
            loop.call_later(self._seconds / TICKS, self._tick, loop)

    def end(self, leased: LeasedTurn) -> None:
        """Forget the lease of a turn that has ended."""
        self._held.pop(leased.turn.lease.token, None)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            return
        if not self._held:
            self._loop = None
            return
        if (self._beat is None or self._beat.done()) and (due := self._due(loop.time())):
            self._beat = loop.create_task(self._renew(due))
        loop.call_later(self._seconds / TICKS, self._tick, loop)

    def _due(self, now: float) -> list[_Held]:
        """Return the leases to renew: none before one of them is due, then all that are not fresh."""
        fresh, pause = now - self._seconds / TICKS, now - self._seconds / RENEWALS
        old = [held for held in self._held.values() if held.renewed <= fresh and now < held.leased.until]
        return old if any(held.renewed <= pause for held in old) else []

    async def _renew(self, due: Sequence[_Held]) -> None:
        leave_task()  # of the turn that set the timer
        loop = asyncio.get_running_loop()
        begin = loop.time()
        expires = min(self._now() + self._seconds, *(held.latest for held in due))
        time_left = min(held.expires for held in due) - SKEW - self._now()
        patience = max(self._seconds / TICKS, min(self._seconds / RENEWALS, time_left))
        try:
            async with asyncio.timeout(patience):
                lost = await self._store.renew([held.leased.turn for held in due], expires=expires)
        except (StoreUnavailable, TimeoutError):
            logger.warning("the leases of %d turns could not be renewed", len(due))
            self._stop_expired(due)
            return
        except Exception:  # nobody awaits this task
            logger.exception("the leases of %d turns could not be renewed", len(due))
            self._stop_expired(due)
            return
        renewed = []
        for held in due:
            if (token := held.leased.turn.lease.token) not in self._held:
                continue
            if token in lost:
                self._stop(held, LeaseLost())
            else:
                held.expires, held.renewed = expires, begin
                renewed.append(held)
        seconds = max(expires - self._now(), 0.0) + SKEW
        extended = (held.on_renewal(seconds) for held in renewed if held.on_renewal is not None)
        for error in await asyncio.gather(*extended, return_exceptions=True):
            if error is not None:
                logger.error("a renewal is incomplete", exc_info=error)

    def _stop_expired(self, due: Sequence[_Held]) -> None:
        """Stop the turns that other workers may have begun by now."""
        now = self._now()
        for held in due:
            if held.leased.turn.lease.token in self._held and held.expires - SKEW <= now:
                self._stop(held, StoreUnavailable())

    def _stop(self, held: _Held, error: StoreError) -> None:
        self.end(held.leased)
        held.leased.stop(error)

    def _now(self) -> float:
        return self._clock.now().timestamp()
