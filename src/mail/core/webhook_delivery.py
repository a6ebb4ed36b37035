"""A webhook's mailbox being worked on: the events that it wants are sent, and what came of it is committed."""

import asyncio
import logging

from mail.core.agents import SwarmCore
from mail.core.change import Hold, TaskChange
from mail.core.events import EventKind
from mail.core.hooks import Hook
from mail.core.peers import hook_of
from mail.core.ports import Store
from mail.core.stamp import Stamp
from mail.core.turn_work import DeliveryEnd, TurnReport, TurnWork
from mail.core.webhooks import (
    EVENTS_AT_ONCE,
    RETRY_SECONDS,
    Batch,
    Reply,
    Webhooks,
    body_of,
    event_id,
    settle,
)

REQUEST_SECONDS = 15.0
"""How long a receiver may take for its answer."""

NO_WEBHOOKS = "this server sends no webhooks"

logger = logging.getLogger(__name__)


class WebhookDelivery(TurnWork):
    """Sends a webhook what waits for it, one event after the other, until all is sent or one fails.

    How far it has come is committed once. Where the process dies before, or the commit fails, the events are sent
    again, each under its same id.
    """

    turn: Hold

    def __init__(
        self, turn: Hold, swarm: SwarmCore, store: Store, stamp: Stamp, webhooks: Webhooks | None
    ) -> None:
        super().__init__(turn, swarm, store, stamp)
        self._webhooks = webhooks
        self._end: DeliveryEnd | None = None

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """What there is to measure."""
        return TurnReport(outcome, self._conflicts, delivery=self._end)

    async def run(self, seconds: float) -> TaskChange | None:
        """Send what waits, within `seconds`; None where nothing does, or it is to be left alone for now."""
        hook = self._waiting()
        if hook is None or self._stamp.now().timestamp() < hook.retry_at:
            return None
        return await self._settle(await self._send(hook, seconds))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Count a failure; None where all that waits is newer than `upto`."""
        hook = self._waiting()
        if hook is None or hook.after >= upto:
            return None
        return await self._settle(Batch((), None, hook.after + 1, Reply(None, reason)))

    def _waiting(self) -> Hook | None:
        hook = self.turn.task.hooks.get(hook_of(self.turn.mailbox) or "")
        return hook if hook is not None and hook.is_waiting else None

    async def _settle(self, batch: Batch) -> TaskChange | None:
        self._end = DeliveryEnd.DELIVERED if batch.failed is None else DeliveryEnd.DELAYED
        schedule = RETRY_SECONDS if self._webhooks is None else self._webhooks.retry_seconds
        change = await self._commit(
            lambda task: settle(task, self._swarm, self.turn, batch, schedule, self._stamp)
        )
        if change is not None and change.events[-1].kind is EventKind.DEAD_LETTER:
            self._end = DeliveryEnd.RETURNED
        return change

    async def _send(self, hook: Hook, seconds: float) -> Batch:
        """Send as much as there is time for; the first event has all of it."""
        task = self.turn.task
        events = await self._store.read_events(task.key, after=hook.after)
        wanted = [event for event in events if hook.wants(event)][:EVENTS_AT_ONCE]
        if self._webhooks is None or not wanted:
            reason = NO_WEBHOOKS if wanted else "the events are not kept any more"
            return Batch((), None, hook.after + 1, Reply(None, reason))
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        sent: list[int] = []
        status: int | None = None
        for event in wanted:
            left = min(REQUEST_SECONDS, end - clock())
            if sent and left < REQUEST_SECONDS:
                break
            try:
                body = body_of(task, event)
                reply = await self._webhooks.send(hook, event_id(task, event), body, seconds=left)
            except Exception as error:  # what else goes wrong must not keep the mailbox from resting
                logger.exception("task %s: webhook %s", task.task_id, hook.shown)
                reply = Reply(None, f"{type(error).__name__}; the server's log says more")
            if not reply.is_success:
                return Batch(tuple(sent), status, event.seq, reply)
            sent.append(event.seq)
            status = reply.status
        return Batch(tuple(sent), status)
