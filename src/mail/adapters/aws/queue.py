"""Wakes mailboxes over SQS: a FIFO queue per tier, so that a flood of one tier never delays a more urgent one.

A message of SQS is a wake-up. Those of one mailbox are one message group, so that they arrive one at a time, except
those of the sweeper: a message that a dead worker has taken hides the rest of its group. Which turns
there are, and in which order, depends on the mailbox alone. Outbound mail has a standard queue, as only such a queue
can delay single messages for retries. It also holds the wake-ups of parked turns until their time, for `LONGEST_DELAY`
at most, and its function then sends them to the queue of their tier (`SQSQueue.forward`); and those without a mailbox,
for tasks that will be due (`mail.core.task.ports.look_at`). Requests are always small enough: a batch of ten wake-ups,
with names as long as the table allows, takes a sixth of the limit.
"""

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import batched
from math import ceil
from time import time
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from mail.adapters.aws.client import AwsClient, Refused, back_off
from mail.core.engine.heartbeat import OnRenewal
from mail.core.protocol.message import Tier
from mail.core.protocol.values import Value
from mail.core.task.mailboxes import is_sent
from mail.core.task.ports import Store, WakeUp
from mail.core.task.task import TaskKey
from mail.core.turns.context import CURRENT_TASK
from mail.errors import BadRequest, ConfigurationError, StoreUnavailable

logger = logging.getLogger(__name__)

BATCH = 10
"""The most messages in one request."""

ATTEMPTS = 4
"""The number of attempts for a message that the service refuses."""

SEND_SECONDS = 0.1
"""The longest first pause before a retry; twice as long after each further failure."""

RETRY_SECONDS = (2, 15, 300, 1800)
"""Seconds before the retry of a turn after its first, second, … failed attempt; the last for all further ones.

That leaves half an hour to roll back a version whose turns fail, before they become dead letters.
"""

REFUSED_SECONDS = (2, 30)
"""The shortest and the longest pause before the retry of a turn of which no attempt counts as failed.

Then services fail, such as a table that can't be reached. The pause is random, so that turns don't return all at once.
"""

EVER = -1.0
"""A time before that of leases which have ended; they still count attempts."""

LONGEST_DELAY = 900
"""The longest delay of SQS, in seconds."""

EXPIRED = ("ReceiptHandleIsInvalid", "InvalidParameterValue")
"""How SQS refuses to delete a message that has become visible again."""

Clock = Callable[[], float]

RunTurn = Callable[[TaskKey, str, OnRenewal], Awaitable[object]]
"""Runs the next turn of a mailbox; the last argument is that of `Runtime.run_turn`."""


class Received(Value):
    """What a message says.

    Attributes:
        mailbox: which mailbox to wake; empty to look after the task.
        seq: the task's seq when it was sent.
        tier: the tier of an agent's mail, in a message that was delayed; else None.
    """

    instance: str
    task_id: str
    mailbox: str
    seq: int
    tier: Tier | None = None

    @property
    def key(self) -> TaskKey:
        """The task."""
        return TaskKey(self.instance, self.task_id)


def encode_wake_up(wake_up: WakeUp) -> str:
    """Encode the body of a message. All ASCII: SQS refuses some characters that JSON and names may contain."""
    body = {
        "instance": wake_up.key.instance,
        "task_id": wake_up.key.task_id,
        "mailbox": wake_up.mailbox,
        "seq": wake_up.seq,
    }
    if wake_up.not_before and wake_up.mailbox and not is_sent(wake_up.mailbox):
        body["tier"] = wake_up.tier
    return json.dumps(body)


def decode_wake_up(body: str) -> Received:
    """Decode the body of a message. Raises BadRequest."""
    try:
        return Received.model_validate_json(body, extra="ignore")  # of a later version
    except ValidationError as error:
        raise BadRequest(
            f"a wake-up is an object of instance, task_id, mailbox and seq, but this is {body[:200]!r}"
        ) from error


class SQSQueue:
    """`mail.core.task.ports.TurnQueue` on SQS.

    Args:
        urls: the URLs of the queues, tier 1 first; none if this process never publishes. The attribute
            has them by tier.
        outbound_url: the URL of the queue for outbound mail.
        store: counts the failed attempts at turns, in their leases; None in a process that can't open it yet.
    """

    def __init__(
        self,
        client: AwsClient,
        urls: Sequence[str],
        outbound_url: str = "",
        *,
        clock: Clock = time,
        store: Store | None = None,
    ) -> None:
        self._client = client
        self.urls = dict(zip(Tier, urls, strict=True)) if urls else {}
        self._outbound_url = outbound_url
        self._clock = clock
        self._store = store

    read = staticmethod(decode_wake_up)

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        """Send wake-ups. Raises StoreUnavailable if some may not have arrived; it is safe to send them again."""
        if wake_ups and not self.urls:
            raise ConfigurationError("set the environment variable MAIL_TURN_QUEUES; template.yaml does so")
        now = self._clock()
        outbound = [each for each in wake_ups if not _is_of_turn(each, now)]
        turns = [each for each in wake_ups if _is_of_turn(each, now)]
        tiers = {each.tier for each in turns}
        sent = await asyncio.gather(
            *(self._send_turns(tier, [each for each in turns if each.tier is tier]) for tier in tiers),
            self._send_outbound(outbound),
            return_exceptions=True,  # a failure of one queue does not stop the rest
        )
        for error in sent:
            if error is not None:
                raise error

    async def handle(self, record: Mapping[str, Any], run: RunTurn, *, is_hidden: bool = False) -> None:
        """Do what a message asks for: run an agent's turn, or a delivery to another swarm or to a webhook.

        One that was delayed, for an agent whose turn was parked, is only sent to the queue of its tier. `record` is
        that of the event. If this raises, the message is delivered again, later after each attempt.

        Args:
            is_hidden: whether the message is hidden already for as long as the lease of its turn.
        """

        async def hide(seconds: float) -> None:
            nonlocal is_hidden
            if not is_hidden:
                await self.hide(record, seconds)
            is_hidden = False

        try:
            wake_up = self.read(record["body"])
            CURRENT_TASK.set(wake_up.key.task_id)
            if wake_up.tier is not None:
                await self.forward(wake_up, wake_up.tier)
                return
            await run(wake_up.key, wake_up.mailbox, hide)
        except Exception as error:
            trace = None if isinstance(error, StoreUnavailable) else error  # which the client has logged
            logger.error("a turn failed; its wake-up is retried: %s", error, exc_info=trace)
            await self.retry_soon(record)
            raise

    async def forward(self, delayed: Received, tier: Tier) -> None:
        """Send a wake-up that was delayed to the queue of its tier. Raises StoreUnavailable.

        If its turn is parked for longer than SQS can delay a message, a sweep has the task looked at in time.
        """
        await self.publish([WakeUp(delayed.key, delayed.mailbox, tier, seq=delayed.seq)])

    async def retry_soon(self, record: Mapping[str, Any]) -> None:
        """Retry a message whose turn has failed before its visibility timeout, later after each failed attempt.

        `record` is that of the event. If this fails, the message returns after its visibility timeout.
        """
        failed = 0
        with suppress(BadRequest, StoreUnavailable):
            failed = await self._failed_attempts(record)
        pause: float = RETRY_SECONDS[min(failed, len(RETRY_SECONDS)) - 1]
        with suppress(StoreUnavailable):
            await self.hide(record, pause if failed else random.uniform(*REFUSED_SECONDS))  # noqa: S311

    async def _failed_attempts(self, record: Mapping[str, Any]) -> int:
        """Return how many attempts at the turn of a message have failed. Raises BadRequest and StoreUnavailable.

        The store counts those of agents: a receipt may be a throttled one. Nothing but receipts counts deliveries,
        which become dead letters after few of them.
        """
        if self._url(record["eventSourceARN"]) == self._outbound_url:
            return int(record["attributes"]["ApproximateReceiveCount"])
        if self._store is None:
            return 0
        wake_up = self.read(record["body"])
        left = (await self._store.read_leases(wake_up.key, now=EVER)).get(wake_up.mailbox)
        return 0 if left is None else left.attempt

    async def hide(self, record: Mapping[str, Any], seconds: float) -> None:
        """Let a message be delivered again after so many seconds, if it is not deleted before. Raises StoreUnavailable.

        Lambda refuses queues whose own timeout is shorter than that of the function.
        """
        await self._client.call(
            "change_message_visibility",
            QueueUrl=self._url(record["eventSourceARN"]),
            ReceiptHandle=record["receiptHandle"],
            VisibilityTimeout=ceil(seconds),
        )

    async def delete(self, record: Mapping[str, Any]) -> None:
        """Delete a message that was handled. If this fails, it is delivered again, and finds nothing to do."""
        with suppress(Refused, StoreUnavailable):
            await self._client.call(
                "delete_message",
                expect=EXPIRED,
                QueueUrl=self._url(record["eventSourceARN"]),
                ReceiptHandle=record["receiptHandle"],
            )

    def _url(self, arn: str) -> str:
        name = arn.rsplit(":", 1)[-1]
        for url in (*self.urls.values(), self._outbound_url):
            if url.rsplit("/", 1)[-1] == name:
                return url
        raise ConfigurationError(
            f"MAIL_TURN_QUEUES does not name the queue that this function is fed by, {arn}"
        )

    async def _send_turns(self, tier: Tier, wake_ups: Sequence[WakeUp]) -> None:
        """Send the wake-ups of one tier in order, batch by batch."""
        for batch in batched(wake_ups, BATCH):
            entries = [_turn_entry(str(n), wake_up) for n, wake_up in enumerate(batch)]
            await self._send_batch(self.urls[tier], entries)

    async def _send_outbound(self, wake_ups: Sequence[WakeUp]) -> None:
        if wake_ups and not self._outbound_url:
            raise ConfigurationError(
                "set the environment variable MAIL_DELIVERY_QUEUE; template.yaml does so"
            )
        for batch in batched(wake_ups, BATCH):
            entries = [_outbound_entry(str(n), each, self._clock()) for n, each in enumerate(batch)]
            await self._send_batch(self._outbound_url, entries)

    async def _send_batch(self, url: str, entries: list[dict[str, Any]]) -> None:
        for attempt in range(ATTEMPTS):
            if attempt:
                await back_off(attempt - 1, base=SEND_SECONDS)
            answer = await self._client.call("send_message_batch", QueueUrl=url, Entries=entries)
            refused = {failure["Id"]: failure for failure in answer.get("Failed", ())}
            if not refused:
                return
            entries = [entry for entry in entries if entry["Id"] in refused]
        logger.error("sqs refused %d of a batch of wake-ups: %s", len(entries), list(refused.values()))
        raise StoreUnavailable


def _is_of_turn(wake_up: WakeUp, now: float) -> bool:
    """Return whether a wake-up is for an agent, and for now: a FIFO queue can't delay single messages."""
    return bool(wake_up.mailbox) and not is_sent(wake_up.mailbox) and wake_up.not_before <= now


def _outbound_entry(entry_id: str, wake_up: WakeUp, now: float) -> dict[str, Any]:
    delay = min(max(0, ceil(wake_up.not_before - now)), LONGEST_DELAY)
    return {"Id": entry_id, "MessageBody": encode_wake_up(wake_up), "DelaySeconds": delay}


def _turn_entry(entry_id: str, wake_up: WakeUp) -> dict[str, Any]:
    mailbox = (*wake_up.key, wake_up.mailbox)
    group = (*mailbox, wake_up.cause) if wake_up.overtakes else mailbox
    return {
        "Id": entry_id,
        "MessageBody": encode_wake_up(wake_up),
        "MessageGroupId": _digest(*group),
        "MessageDeduplicationId": _digest(*mailbox, wake_up.cause or uuid4().hex),
    }


def _digest(*names: str) -> str:
    return sha256(json.dumps(names).encode()).hexdigest()
