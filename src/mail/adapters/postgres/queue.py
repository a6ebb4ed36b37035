"""Wakes mailboxes over PostgreSQL: a table of tokens, which the workers of all servers take from.

Whoever has a worker free takes the most urgent token, past those that others are just taking (SKIP LOCKED). A token that
waits already is not put in again, so the table never holds more than the mailboxes that wait. It holds hints, as every
queue does: what is lost with a server that dies right after taking one is found by whoever sweeps.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from math import inf
from operator import itemgetter
from time import time
from typing import Any, LiteralString
from uuid import UUID

from mail.adapters.postgres.keys import task_number, wake_topic
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.core.protocol.message import Tier
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable

RETRY_SECONDS = 1.0
"""How long a worker rests that could not reach the table."""

_PUT: LiteralString = """
INSERT INTO mail.wake_ups AS waiting
    (swarm, task, mailbox, tier, place, not_before, instance, task_id, is_delivery)
SELECT %s, token.* FROM unnest(
    %s::uuid[], %s::text[], %s::smallint[], %s::bigint[], %s::double precision[], %s::text[], %s::text[], %s::boolean[]
) AS token
ON CONFLICT (task, mailbox, tier) DO UPDATE SET not_before = excluded.not_before
WHERE excluded.not_before < waiting.not_before
"""

_TAKE: LiteralString = """
DELETE FROM mail.wake_ups WHERE (task, mailbox, tier) = (
    SELECT task, mailbox, tier FROM mail.wake_ups
    WHERE swarm = %(swarm)s AND is_delivery = %(is_delivery)s AND not_before <= %(now)s
    ORDER BY tier, place LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING instance, task_id, mailbox, tier
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
        self._topics = {lane: wake_topic(swarm, is_delivery=lane) for lane in (False, True)}
        self._clock = clock
        self._place = 0
        self._under_way: set[asyncio.Task[Any]] = set()

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        """Put the tokens in. Raises StoreUnavailable."""
        if not tokens:
            return
        rows: dict[tuple[UUID, str, int], tuple[int, WakeUp]] = {}
        for token in tokens:
            rows.setdefault(
                (task_number(token.key), token.mailbox, int(token.tier)), (self._next_place(), token)
            )
        # in the order of their keys: two servers that insert in different orders would wait for each other
        columns = [
            (*key, place, token.not_before, *token.key, goes_out(token.mailbox))
            for key, (place, token) in sorted(rows.items(), key=itemgetter(0))
        ]
        await self._sql.fetch(_PUT, [self._swarm, *map(list, zip(*columns, strict=True))])
        self._notifier.ring(*{self._topics[column[-1]] for column in columns})

    def put(self, token: WakeUp) -> None:
        """Publish one token soon. Where that can't be done, a sweep wakes its mailbox."""
        _ = self._begin(self._put(token))

    async def close(self) -> None:
        """Wait for what is under way; to be called when nobody takes any more."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def take(self) -> tuple[TaskKey, str]:
        """The most urgent token of an agent; waits for one."""
        return await self._take(is_delivery=False)

    async def take_delivery(self) -> tuple[TaskKey, str]:
        """The most urgent token of another swarm's mail; waits for one."""
        return await self._take(is_delivery=True)

    def __len__(self) -> int:
        """No token waits in this process alone."""
        return 0

    async def _put(self, token: WakeUp) -> None:
        with suppress(StoreUnavailable):
            await self.publish([token])

    async def _take(self, *, is_delivery: bool) -> tuple[TaskKey, str]:
        with self._notifier.subscribe(self._topics[is_delivery]) as news:
            while True:
                try:
                    if (token := await self._take_now(is_delivery)) is not None:
                        return token.key, token.mailbox
                    await news.wait(await self._rest(is_delivery))
                except StoreUnavailable:  # the workers live on until it can be reached again
                    await asyncio.sleep(RETRY_SECONDS)

    async def _take_now(self, is_delivery: bool) -> WakeUp | None:
        """The most urgent token. It is put back where whoever wanted it has gone before it came."""
        taking = self._begin(self._delete(is_delivery))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._put_back)
            raise

    def _put_back(self, taking: "asyncio.Task[WakeUp | None]") -> None:
        if not taking.cancelled() and taking.exception() is None and (token := taking.result()) is not None:
            self.put(token)

    def _begin[T](self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _delete(self, is_delivery: bool) -> WakeUp | None:
        values = {"swarm": self._swarm, "is_delivery": is_delivery, "now": self._clock()}
        for instance, task_id, mailbox, tier in await self._sql.fetch(_TAKE, values):
            return WakeUp(TaskKey(instance, task_id), mailbox, Tier(tier))
        return None

    async def _rest(self, is_delivery: bool) -> float:
        """Seconds until one of the tokens may be taken that may not be taken yet; those of agents never wait."""
        if not is_delivery:
            return inf
        values = {"swarm": self._swarm, "is_delivery": is_delivery}
        ((first,),) = await self._sql.fetch(_NEXT, values)
        return inf if first is None else max(0.0, first - self._clock())

    def _next_place(self) -> int:
        """By time, so that those of all servers are in order, and each its own."""
        self._place = max(self._place + 1, int(self._clock() * 1_000_000))
        return self._place
