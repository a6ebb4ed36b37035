"""Wakes mailboxes over PostgreSQL: a table of wake-ups, which the workers of all servers take from.

A free worker takes the most urgent wake-up, past those that other workers are taking (SKIP LOCKED). Inside a tier,
callers take turns: those that wait are in rounds with at most one wake-up of each caller (a fair queue by start
tags). A wake-up that waits already is not added twice, so that the table has one row per waiting mailbox. Like every
queue it has hints only: if a server crashes right after taking one, a sweep finds the mailbox.

A server looks at the table when something has been published, and again as long as it finds something. Other servers
are notified only of wake-ups for which no worker is free here. Turns that commits have opened
(`mail.adapters.postgres.ahead`) don't go through the table.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from math import inf
from time import time
from typing import Any, LiteralString
from uuid import UUID

from mail.adapters.postgres.ahead import Ahead
from mail.adapters.postgres.notifier import POLL_SECONDS, Notifier, wake_topic
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.schema import task_number
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.shared.backend import Workers
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.mailboxes import is_sent
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

_NEXT: LiteralString = "SELECT min(not_before) FROM mail.wake_ups WHERE swarm = %(swarm)s AND is_delivery"

logger = logging.getLogger(__name__)


class PostgresQueue:
    """`mail.core.task.ports.TurnQueue` on PostgreSQL, for the servers of one swarm; and what `LocalWorkers` take from.

    Args:
        store: opens turns ahead for the workers that the queue serves; without it, all wake-ups go through the table.
    """

    def __init__(
        self,
        postgres: Postgres,
        notifier: Notifier,
        swarm: str,
        *,
        store: PostgresStore | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._sql = postgres
        self._notifier = notifier
        self._swarm = swarm
        self._topics = {kind: wake_topic(swarm, is_delivery=kind) for kind in (False, True)}
        self._clock = clock
        self._last_position = 0
        self._rounds = dict.fromkeys(Tier, 0)
        self._running: set[asyncio.Task[Any]] = set()
        self._store = store
        self._ahead = Ahead(notifier) if store is None else store.ahead
        self._ahead.on_opened = self._begin_turn
        self._ahead.on_planned = self._wake_takers
        self._ready: deque[Turn | WakeUp] = deque()
        self._takers: set[asyncio.Future[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._listens = False
        self._has_news = True
        self._is_secret = False
        self._looked_at = -inf
        self._excluded: Collection[str] = ()

    def serve(self, workers: Workers | None) -> None:
        """Open turns ahead for these workers; with None, leave all turns that have not begun to other servers."""
        self._ahead.workers = workers
        if workers is None:
            self._announce()
            _ = self._begin(self._hand_over())

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        """Add wake-ups, except for mailboxes whose turn is open here. Raises StoreUnavailable."""
        wake_ups = [
            each for each in wake_ups if each.mailbox and not self._ahead.covers(each.key, each.mailbox)
        ]
        if not wake_ups:
            return
        rows: dict[tuple[UUID, str, int], WakeUp] = {}
        for wake_up in wake_ups:
            rows.setdefault((task_number(wake_up.key), wake_up.mailbox, wake_up.tier), wake_up)
        published = list(rows.values())
        is_delivery = [is_sent(wake_up.mailbox) for wake_up in published]
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
        if True in is_delivery:
            self._notifier.notify(self._topics[True], is_urgent=True)
        if False in is_delivery:
            if self._can_run([wake_up for wake_up in published if not is_sent(wake_up.mailbox)]):
                self._is_secret = True
                self._notifier.notify_here(self._topics[False])
            else:
                self._notifier.notify(self._topics[False], is_urgent=True)

    def put(self, wake_up: WakeUp) -> None:
        """Publish one wake-up soon. If that fails, a sweep wakes its mailbox."""
        _ = self._begin(self._put(wake_up))

    async def close(self) -> None:
        """Wait for running work, after the last `take`."""
        while self._running:
            await asyncio.wait(self._running)
        if self._listens:
            self._notifier.remove(self._topics[False], self)
            self._listens = False

    def notify(self, news: object) -> None:
        """Look at the table soon: wake-ups of agents have been published."""
        self._has_news = True
        self._wake_takers()

    async def take(self, excluded: Collection[str] = ()) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up of an agent, for a caller that is not excluded, when there is one.

        Turns that are open come first, as they have a worker to themselves.
        """
        if not self._listens:
            self._notifier.add(self._topics[False], self)
            self._listens = True
        loop = asyncio.get_running_loop()
        while True:
            while self._ready:
                match self._ready.popleft():
                    case WakeUp(key=key, mailbox=mailbox):
                        return self._taken(key, mailbox)
                    case turn if self._ahead.has(turn):
                        return self._taken(turn.task.key, turn.mailbox)
            if self._looking is None and self._has_worker() and self._is_look_due(excluded, loop.time()):
                self._has_news = self._is_secret = False
                self._looked_at, self._excluded = loop.time(), excluded
                self._looking = self._begin(self._look(excluded))
            taker = loop.create_future()
            self._takers.add(taker)
            try:
                await asyncio.wait_for(taker, POLL_SECONDS)
            except TimeoutError:
                pass
            finally:
                self._takers.discard(taker)

    async def take_outbound(self) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up for outbound mail, when there is one."""
        with self._notifier.subscribe(self._topics[True]) as subscription:
            while True:
                try:
                    if (wake_up := await self._take_outbound_now()) is not None:
                        return wake_up.key, wake_up.mailbox
                    await subscription.wait(await self._seconds_to_next_outbound())
                except StoreUnavailable:  # retry until the database can be reached again
                    await asyncio.sleep(RETRY_SECONDS)

    def __len__(self) -> int:
        """Return the number of turns that wait for a worker here; others can take the wake-ups in the table."""
        return len(self._ready)

    def _begin_turn(self, turn: Turn) -> None:
        """Let a worker begin a turn that a commit has opened."""
        self._ready.append(turn)
        if self._ahead.workers is None:
            _ = self._begin(self._hand_over())
        self._wake_takers()

    async def _hand_over(self) -> None:
        """Release the turns that have not begun, and publish wake-ups for them."""
        waiting = [each for each in self._ready if isinstance(each, WakeUp)]
        self._ready.clear()
        turns = self._ahead.abandon()
        with suppress(StoreUnavailable):
            for turn in turns:
                if self._store is not None:
                    await self._store.release(turn)
            waiting += [WakeUp(turn.task.key, turn.mailbox, turn.entry.tier) for turn in turns]
            await self.publish(waiting)

    def _taken(self, key: TaskKey, mailbox: str) -> tuple[TaskKey, str]:
        """Return what a worker begins now; if it is the last free one, let other servers look at the table."""
        workers = self._ahead.workers
        if workers is not None and workers.free <= 1:
            self._announce()
        return key, mailbox

    def _announce(self) -> None:
        """Notify the other servers of wake-ups that only this one has been notified of."""
        if self._is_secret:
            self._is_secret = False
            self._notifier.notify(self._topics[False], is_urgent=True)

    def _can_run(self, wake_ups: Sequence[WakeUp]) -> bool:
        """Return whether workers that are free here can run all of these turns at once."""
        workers = self._ahead.workers
        return workers is not None and all(
            workers.lets_begin(wake_up.key.instance, self._ahead.reserved + n)
            for n, wake_up in enumerate(wake_ups)
        )

    def _has_worker(self) -> bool:
        """Return whether a worker is free for a wake-up, besides those that open turns need."""
        workers = self._ahead.workers
        return workers is None or workers.free > self._ahead.reserved

    def _is_look_due(self, excluded: Collection[str], now: float) -> bool:
        """Return whether the table may hold wake-ups that the last look did not find."""
        is_other = not set(self._excluded) <= set(excluded)
        return self._has_news or is_other or now >= self._looked_at + POLL_SECONDS

    async def _look(self, excluded: Collection[str]) -> None:
        """Take a wake-up from the table; put it back if nobody is left to take it."""
        wake_up = None
        try:
            wake_up = await self._delete(False, excluded)
        except StoreUnavailable:  # retry until the database can be reached again
            self._has_news = True
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._looking = None
        if wake_up is not None:
            self._has_news = True
            if self._takers:
                self._ready.append(wake_up)
            else:
                self.put(wake_up)
        self._wake_takers()

    def _wake_takers(self) -> None:
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)

    async def _put(self, wake_up: WakeUp) -> None:
        with suppress(StoreUnavailable):
            await self.publish([wake_up])

    async def _take_outbound_now(self) -> WakeUp | None:
        """Return the most urgent wake-up; put it back if the taker is cancelled before it arrives."""
        taking = self._begin(self._delete(is_delivery=True))
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

    async def _delete(self, is_delivery: bool, excluded: Collection[str] = ()) -> WakeUp | None:
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

    async def _seconds_to_next_outbound(self) -> float:
        """Return the seconds until the next delayed wake-up may be taken."""
        ((first,),) = await self._sql.fetch(_NEXT, {"swarm": self._swarm})
        return inf if first is None else max(0.0, first - self._clock())

    def _next_position(self) -> int:
        """Return a position by time, so that the wake-ups of all servers are ordered, and each is unique."""
        self._last_position = max(self._last_position + 1, int(self._clock() * 1_000_000))
        return self._last_position
