"""The queue in this process: what SQS is on AWS."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from time import time

from mail.adapters.shared.backend import Workers
from mail.core.engine.fairness import RoundRobin
from mail.core.protocol.message import Tier
from mail.core.task.mailboxes import is_sent
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey


class PriorityQueue:
    """Wake-ups by priority. Inside a tier, callers take turns, and the wake-ups of one are first in first out."""

    def __init__(self) -> None:
        self._tiers: dict[Tier, tuple[set[tuple[TaskKey, str]], RoundRobin[tuple[TaskKey, str]]]] = {
            tier: (set(), RoundRobin()) for tier in Tier
        }
        self._takers: set[asyncio.Future[None]] = set()  # new ones at each wait: event loops come and go

    def put(self, wake_up: WakeUp) -> None:
        """Add a wake-up, unless one of its tier and mailbox waits already."""
        key = wake_up.key
        (waiting, callers), item = self._tiers[wake_up.tier], (key, wake_up.mailbox)
        if item not in waiting:
            waiting.add(item)
            callers.put(key.instance, item)
            for taker in self._takers:
                if not taker.done():
                    taker.set_result(None)

    async def take(self, excluded: Collection[str] = ()) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up of a caller that is not excluded, once there is one; one taker at a time."""
        while (found := self._take_now(excluded)) is None:
            taker = asyncio.get_running_loop().create_future()
            self._takers.add(taker)
            try:
                await taker
            finally:
                self._takers.discard(taker)
        return found

    def _take_now(self, excluded: Collection[str]) -> tuple[TaskKey, str] | None:
        for waiting, callers in self._tiers.values():
            if waiting and (found := callers.take(excluded)) is not None:
                waiting.remove(found)
                return found
        return None

    def __len__(self) -> int:
        """Return the number of wake-ups that wait."""
        return sum(len(waiting) for waiting, _ in self._tiers.values())


class LocalQueue:
    """`mail.core.task.ports.TurnQueue` in memory. It ends with the process: `Runtime.recover` fills it again.

    Attributes:
        turns: wake-ups of agents.
        outbound: wake-ups for outbound mail, which does not queue behind busy agents.
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.turns = PriorityQueue()
        self.outbound = PriorityQueue()
        self._clock = clock
        self._delayed: dict[WakeUp, float] = {}

    @property
    def depths(self) -> Mapping[str, Callable[[], float]]:
        """The lengths of the queues, for metrics."""
        return {"turns": lambda: len(self.turns), "deliveries": lambda: len(self.outbound)}

    def serve(self, workers: Workers | None) -> None:
        """Do nothing: all of its wake-ups are for this process."""

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        for wake_up in wake_ups:
            if not wake_up.mailbox:
                continue
            if wake_up.not_before and (delay := wake_up.not_before - self._clock()) > 0:
                if wake_up.not_before < self._delayed.get(wake_up, inf):
                    self._delayed[wake_up] = wake_up.not_before
                    asyncio.get_running_loop().call_later(delay, self._wake, wake_up)
            else:
                self.put(wake_up)

    def put(self, wake_up: WakeUp) -> None:
        """Publish one wake-up immediately."""
        (self.outbound if is_sent(wake_up.mailbox) else self.turns).put(wake_up)

    def _wake(self, wake_up: WakeUp) -> None:
        if self._delayed.get(wake_up) == wake_up.not_before:
            del self._delayed[wake_up]
        self.put(wake_up)

    async def take(self, excluded: Collection[str] = ()) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up of an agent, for a caller that is not excluded; for one taker at a time."""
        return await self.turns.take(excluded)

    async def take_outbound(self) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up for outbound mail, when there is one; for one taker at a time."""
        return await self.outbound.take()

    def __len__(self) -> int:
        """Return the number of wake-ups, delayed ones included."""
        return len(self.turns) + len(self.outbound) + len(self._delayed)
