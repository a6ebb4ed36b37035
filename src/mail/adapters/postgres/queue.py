"""Wakes mailboxes over PostgreSQL: a table of wake-ups, which the workers of all servers take from.

A free worker takes the most urgent wake-up, past those that other workers are taking (SKIP LOCKED). Inside a tier, callers
take turns: those that wait are in rounds with at most one wake-up of each caller (a fair queue by start tags). A wake-up that waits
already is not added twice, so that the table has one row per waiting mailbox. Like every queue it has hints only: if a
server crashes right after taking one, a sweep finds the mailbox.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from math import inf
from time import time
from typing import Any, LiteralString
from uuid import UUID

from mail.adapters.postgres.notifier import Notifier, wake_topic
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.schema import task_number
from mail.core.protocol.message import Tier
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable

RETRY_SECONDS = 1.0
"""Seconds before a worker that could not reach the table retries."""

_PUT: LiteralString = """
INSERT INTO mail.wake_ups AS waiting
    (swarm, task, mailbox, tier, place, not_before, instance, task_id, is_delivery, round)
SELECT %(swarm)s, task, mailbox, tier, place, not_before, instance, task_id, is_delivery,
    CASE WHEN is_delivery THEN 0 ELSE greatest(
        now_at,
        (SELECT min(round) FROM mail.wake_ups
         WHERE swarm = %(swarm)s AND is_delivery = new.is_delivery AND tier = new.tier),
        (SELECT max(round) + 1 FROM mail.wake_ups
         WHERE swarm = %(swarm)s AND NOT is_delivery AND tier = new.tier AND instance = new.instance)
    ) + row_number() OVER (PARTITION BY is_delivery, tier, instance ORDER BY place) - 1 END
FROM unnest(
    %(task)s::uuid[], %(mailbox)s::text[], %(tier)s::smallint[], %(place)s::bigint[],
    %(not_before)s::double precision[], %(instance)s::text[], %(task_id)s::text[], %(is_delivery)s::boolean[],
    %(now_at)s::bigint[]
) AS new (task, mailbox, tier, place, not_before, instance, task_id, is_delivery, now_at)
ORDER BY task, mailbox, tier
ON CONFLICT (task, mailbox, tier) DO UPDATE SET not_before = excluded.not_before
WHERE excluded.not_before < waiting.not_before
"""
# In the order of their keys, as servers that insert in different orders would deadlock. A wake-up joins the round that
# is being taken, or the one after the last that its caller waits for.

_TAKE: LiteralString = """
DELETE FROM mail.wake_ups WHERE (task, mailbox, tier) = (
    SELECT task, mailbox, tier FROM mail.wake_ups
    WHERE swarm = %(swarm)s AND is_delivery = %(is_delivery)s AND not_before <= %(now)s
        AND instance <> ALL(%(excluded)s::text[])
    ORDER BY tier, round, place LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING instance, task_id, mailbox, tier, round
"""

_NEXT: LiteralString = (
    "SELECT min(not_before) FROM mail.wake_ups WHERE swarm = %(swarm)s AND is_delivery = %(is_delivery)s"
)

logger = logging.getLogger(__name__)


class PostgresQueue:
    """`mail.core.task.ports.TurnQueue` on PostgreSQL, for the servers of one swarm; and what `LocalWorkers` take from."""

    def __init__(
        self, postgres: Postgres, notifier: Notifier, swarm: str, *, clock: Callable[[], float] = time
    ) -> None:
        self._sql = postgres
        self._notifier = notifier
        self._swarm = swarm
        self._topics = {kind: wake_topic(swarm, is_delivery=kind) for kind in (False, True)}
        self._clock = clock
        self._last_position = 0
        self._rounds = dict.fromkeys(Tier, 0)
        self._running: set[asyncio.Task[Any]] = set()

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        """Add wake-ups. Raises StoreUnavailable."""
        if not wake_ups:
            return
        rows: dict[tuple[UUID, str, int], WakeUp] = {}
        for wake_up in wake_ups:
            rows.setdefault((task_number(wake_up.key), wake_up.mailbox, wake_up.tier), wake_up)
        published = list(rows.values())
        is_delivery = [goes_out(wake_up.mailbox) for wake_up in published]
        values: dict[str, object] = {
            "swarm": self._swarm,
            "task": [task for task, _, _ in rows],
            "mailbox": [wake_up.mailbox for wake_up in published],
            "tier": [int(wake_up.tier) for wake_up in published],
            "place": [self._next_position() for _ in published],
            "not_before": [wake_up.not_before for wake_up in published],
            "instance": [wake_up.key.instance for wake_up in published],
            "task_id": [wake_up.key.task_id for wake_up in published],
            "is_delivery": is_delivery,
            "now_at": [self._rounds[wake_up.tier] for wake_up in published],
        }
        await self._sql.fetch(_PUT, values)
        self._notifier.notify(*{self._topics[kind] for kind in is_delivery})

    def put(self, wake_up: WakeUp) -> None:
        """Publish one wake-up soon. If that fails, a sweep wakes its mailbox."""
        _ = self._begin(self._put(wake_up))

    async def close(self) -> None:
        """Wait for running work, after the last `take`."""
        while self._running:
            await asyncio.wait(self._running)

    async def take(self, excluded: Collection[str] = ()) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up of an agent, for a caller that is not excluded, when there is one."""
        return await self._take(is_delivery=False, excluded=excluded)

    async def take_delivery(self) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up for outbound mail, when there is one."""
        return await self._take(is_delivery=True)

    def __len__(self) -> int:
        """Return 0: every wake-up can be taken by another server."""
        return 0

    async def _put(self, wake_up: WakeUp) -> None:
        with suppress(StoreUnavailable):
            await self.publish([wake_up])

    async def _take(self, *, is_delivery: bool, excluded: Collection[str] = ()) -> tuple[TaskKey, str]:
        with self._notifier.subscribe(self._topics[is_delivery]) as subscription:
            while True:
                try:
                    if (wake_up := await self._take_now(is_delivery, excluded)) is not None:
                        return wake_up.key, wake_up.mailbox
                    await subscription.wait(await self._seconds_to_next(is_delivery))
                except StoreUnavailable:  # retry until the database can be reached again
                    await asyncio.sleep(RETRY_SECONDS)

    async def _take_now(self, is_delivery: bool, excluded: Collection[str]) -> WakeUp | None:
        """Return the most urgent wake-up; put it back if the taker is cancelled before it arrives."""
        taking = self._begin(self._delete(is_delivery, excluded))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._put_back)
            raise

    def _put_back(self, taking: "asyncio.Task[WakeUp | None]") -> None:
        if not taking.cancelled() and taking.exception() is None and (wake_up := taking.result()) is not None:
            self.put(wake_up)

    def _begin[T](self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _delete(self, is_delivery: bool, excluded: Collection[str]) -> WakeUp | None:
        values = {
            "swarm": self._swarm,
            "is_delivery": is_delivery,
            "now": self._clock(),
            "excluded": list(excluded),
        }
        for instance, task_id, mailbox, tier, at in await self._sql.fetch(_TAKE, values):
            self._rounds[Tier(tier)] = max(at, self._rounds[Tier(tier)])
            return WakeUp(TaskKey(instance, task_id), mailbox, Tier(tier))
        return None

    async def _seconds_to_next(self, is_delivery: bool) -> float:
        """Return the seconds until the next delayed wake-up may be taken; those of agents are never delayed."""
        if not is_delivery:
            return inf
        values = {"swarm": self._swarm, "is_delivery": is_delivery}
        ((first,),) = await self._sql.fetch(_NEXT, values)
        return inf if first is None else max(0.0, first - self._clock())

    def _next_position(self) -> int:
        """Return a position by time, so that the wake-ups of all servers are ordered, and each is unique."""
        self._last_position = max(self._last_position + 1, int(self._clock() * 1_000_000))
        return self._last_position
