"""The turn of a webhook's mailbox: the events that it subscribes to are sent, and the result is committed."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from mail.core.decisions.reviewers import LINK_PATH, find_call, request_body
from mail.core.decisions.webhooks import EVENTS_AT_ONCE, Batch, body_of, event_id, push_body, settle
from mail.core.engine.leased_turn import LeasedTurn, OutboundResult, conceal
from mail.core.engine.watch import SLICE_BYTES
from mail.core.engine.wiring import Wiring
from mail.core.task.change import TaskChange
from mail.core.task.events import Event
from mail.core.task.extras import ReviewExtra
from mail.core.task.leases import WebhookClaim
from mail.core.task.mailboxes import hook_of
from mail.core.task.task import Task
from mail.core.task.webhooks import RETRY_SECONDS, Reply, TaskWebhook
from mail.errors import BadRequest

REQUEST_SECONDS = 15.0
"""Seconds after which a request to a receiver is abandoned."""

EVENTS_PER_READ = 100
"""How many events one read of a timeline returns; the webhook may want few of them."""

NO_WEBHOOKS = "this server sends no webhooks"

logger = logging.getLogger(__name__)


class WebhookTurn(LeasedTurn):
    """Sends the events that wait for a webhook, in order, until all are sent or one fails.

    A single commit stores the progress. If the process crashes before it, or the commit fails, the events are sent
    again under the same ids.
    """

    turn: WebhookClaim

    def __init__(self, turn: WebhookClaim, wiring: Wiring) -> None:
        super().__init__(turn, wiring.swarm, wiring.store, wiring.clock)
        self._webhooks = wiring.webhooks
        self._base_url = wiring.base_url

    async def run(self, seconds: float) -> TaskChange | None:
        """Send the waiting events within `seconds`; None if there are none, or it is too early for a retry."""
        hook = self._waiting()
        if hook is None or self._clock.now().timestamp() < hook.retry_at:
            return None
        return await self._settle(await self._send(hook, seconds))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Count a failure; None if all waiting events are newer than `upto`."""
        hook = self._waiting()
        if hook is None or hook.after >= upto:
            return None
        return await self._settle(Batch((), None, hook.after + 1, Reply(None, reason)))

    async def abandon(self, reason: str, attempts: int) -> TaskChange | None:
        """Count a failure, and wait before the next attempt."""
        return await self.fail(reason, self.turn.task.seq, attempts)

    def _waiting(self) -> TaskWebhook | None:
        hook = self.turn.task.webhooks.get(hook_of(self.turn.mailbox) or "")
        return hook if hook is not None and hook.is_waiting else None

    async def _settle(self, batch: Batch) -> TaskChange | None:
        self._end = OutboundResult.DELIVERED if batch.failed is None else OutboundResult.DELAYED
        schedule = RETRY_SECONDS if self._webhooks is None else self._webhooks.retry_seconds
        change = await self.commit(lambda draft: settle(draft, self.turn, batch, schedule))
        if change is not None and change.dead_letters:
            self._end = OutboundResult.RETURNED
        return change

    async def _send(self, hook: TaskWebhook, seconds: float) -> Batch:
        """Send as many events as there is time for; the first may use all of it."""
        monotonic = asyncio.get_running_loop().time
        end = monotonic() + seconds
        sent: list[int] = []
        status: int | None = None
        async with aclosing(self._wanted(hook)) as wanted:
            async for event in wanted:
                left = min(REQUEST_SECONDS, end - monotonic())
                if len(sent) == EVENTS_AT_ONCE or (sent and left < REQUEST_SECONDS):
                    break
                reply = await self._send_one(hook, event, left)
                if not reply.is_success:
                    return Batch(tuple(sent), status, event.seq, reply)
                sent.append(event.seq)
                status = reply.status
        if not sent:
            return Batch((), None, hook.after + 1, Reply(None, "the events are no longer stored"))
        return Batch(tuple(sent), status)

    async def _wanted(self, hook: TaskWebhook) -> AsyncGenerator[Event]:
        """Yield the events to send, reading the timeline page by page."""
        after = hook.after
        while after < hook.upto:
            events = await self._store.read_events(
                self.turn.task.key, after=after, limit=EVENTS_PER_READ, max_bytes=SLICE_BYTES
            )
            if not events:
                return
            for event in filter(hook.wants, events):
                if (
                    hook.push is None or event.seq <= hook.upto
                ):  # what comes after the end of a run isn't for it
                    yield event
            after = events[-1].seq

    async def _send_one(self, hook: TaskWebhook, event: Event, seconds: float) -> Reply:
        task = self.turn.task
        if self._webhooks is None:
            return Reply(None, NO_WEBHOOKS)
        try:
            if hook.asks:
                body = request_body(task, event, await self._link(task, event))
            else:
                body = body_of(task, event) if hook.push is None else push_body(hook.push, task, event)
            return await self._webhooks.send(hook, event_id(task, event), body, seconds=seconds)
        except BadRequest as error:  # the secret of a link is missing
            return Reply(None, error.detail)
        except Exception as error:  # after any failure the mailbox has to wait before the retry
            logger.exception("task %s: webhook %s", task.task_id, hook.shown)
            return Reply(None, conceal(error))

    async def _link(self, task: Task, event: Event) -> str:
        """Return the link by which a reviewer decides on a call; empty if it has none, or was decided on."""
        about = event.extra
        assert isinstance(about, ReviewExtra)
        call = find_call(task, about.approval_id)
        rule = None if call is None else call.reviewers
        if rule is None or not rule.has_links or not self._base_url or self._webhooks is None:
            return ""
        token = await self._webhooks.link_token(rule.secret, about.approval_id)
        return f"{self._base_url}{LINK_PATH}{about.approval_id}/{token}"
