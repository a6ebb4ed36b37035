"""Wakes mailboxes over SQS: a FIFO queue per tier, so that a flood of one tier never delays a more urgent one.

A message is a token. Those of one mailbox are one message group of its queue, so that they come one at a time;
what turns there are, and in which order, is said by the mailbox alone. Mail for other swarms has a standard queue of
its own, as only that can hold a message back until it is time to try again. What the service limits is kept by how a
token is made: a batch of ten of them, with names as long as a table's keys may be, is a sixth of a request.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import batched
from math import ceil
from time import time
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from mail.adapters.aws.client import AwsClient, back_off
from mail.core.protocol.message import Tier
from mail.core.protocol.values import Value
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, ConfigurationError, StoreUnavailable

logger = logging.getLogger(__name__)

BATCH = 10
"""Messages in one request, at most."""

ATTEMPTS = 4
"""How often a message is sent that the service keeps refusing."""

SEND_SECONDS = 0.1
"""What the first pause before sending it again is drawn from; twice as long after each further failure."""

RETRY_SECONDS = (2, 15, 300, 1800)
"""After how long a message comes back whose turn has failed once, twice, …; the last for all further times.

What fails here is not the turn but what it needs, such as a table that can't be reached. For half an hour, that does
no turn any harm.
"""


LONGEST_DELAY = 900
"""Seconds for which SQS holds a message back, at most."""

Clock = Callable[[], float]


class _Body(Value):
    instance: str
    task_id: str
    mailbox: str
    seq: int


def encode_token(token: WakeUp) -> str:
    """The body of a token's message. All ASCII: SQS refuses some characters that JSON and names may hold."""
    return json.dumps(
        {
            "instance": token.key.instance,
            "task_id": token.key.task_id,
            "mailbox": token.mailbox,
            "seq": token.seq,
        }
    )


def decode_token(body: str) -> tuple[TaskKey, str, int]:
    """The task and mailbox that a message is about, and the seq that the task was at. Raises BadRequest."""
    try:
        fields = _Body.model_validate_json(body)
    except ValidationError as error:
        raise BadRequest(
            f"a token is an object of instance, task_id, mailbox and seq, but this is {body[:200]!r}"
        ) from error
    return TaskKey(fields.instance, fields.task_id), fields.mailbox, fields.seq


class SQSQueue:
    """`mail.core.task.ports.TurnQueue` on SQS.

    `urls` are those of the queues, tier 1 first; none where a process never publishes. `delivery_url` is that of the
    queue for other swarms' mail.
    """

    def __init__(
        self, client: AwsClient, urls: Sequence[str], delivery_url: str = "", *, clock: Clock = time
    ) -> None:
        self._client = client
        self._urls = dict(zip(Tier, urls, strict=True)) if urls else {}
        self._delivery_url = delivery_url
        self._clock = clock

    read = staticmethod(decode_token)

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        """Send the tokens. Raises StoreUnavailable when some may not have arrived; sending them again does no harm."""
        if tokens and not self._urls:
            raise ConfigurationError("set the environment variable MAIL_TURN_QUEUES; template.yaml does so")
        deliveries = [token for token in tokens if goes_out(token.mailbox)]
        turns = [token for token in tokens if not goes_out(token.mailbox)]
        tiers = {token.tier for token in turns}
        sent = await asyncio.gather(
            *(self._send_turns(tier, [token for token in turns if token.tier is tier]) for tier in tiers),
            self._send_deliveries(deliveries),
            return_exceptions=True,  # the other queues get theirs all the same
        )
        for error in sent:
            if error is not None:
                raise error

    async def retry_soon(self, record: Mapping[str, Any]) -> None:
        """Let a message that an event source brought, and whose turn failed, come back before its visibility ends.

        `record` is that of the event. The more often it has come, the longer it stays away. Where this fails the
        message only comes later.
        """
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        with suppress(StoreUnavailable):
            await self._client.call(
                "change_message_visibility",
                QueueUrl=self._url(record["eventSourceARN"]),
                ReceiptHandle=record["receiptHandle"],
                VisibilityTimeout=RETRY_SECONDS[min(receives, len(RETRY_SECONDS)) - 1],
            )

    def _url(self, arn: str) -> str:
        name = arn.rsplit(":", 1)[-1]
        for url in (*self._urls.values(), self._delivery_url):
            if url.rsplit("/", 1)[-1] == name:
                return url
        raise ConfigurationError(
            f"MAIL_TURN_QUEUES does not name the queue that this function is fed by, {arn}"
        )

    async def _send_turns(self, tier: Tier, tokens: Sequence[WakeUp]) -> None:
        """Send the tokens of one tier in their order, one batch after the other."""
        for batch in batched(tokens, BATCH):
            entries = [_turn_entry(str(n), token) for n, token in enumerate(batch)]
            await self._send_batch(self._urls[tier], entries)

    async def _send_deliveries(self, tokens: Sequence[WakeUp]) -> None:
        if tokens and not self._delivery_url:
            raise ConfigurationError(
                "set the environment variable MAIL_DELIVERY_QUEUE; template.yaml does so"
            )
        for batch in batched(tokens, BATCH):
            entries = [_delivery_entry(str(n), token, self._clock()) for n, token in enumerate(batch)]
            await self._send_batch(self._delivery_url, entries)

    async def _send_batch(self, url: str, entries: list[dict[str, Any]]) -> None:
        for attempt in range(ATTEMPTS):
            if attempt:
                await back_off(attempt - 1, base=SEND_SECONDS)
            answer = await self._client.call("send_message_batch", QueueUrl=url, Entries=entries)
            refused = {failure["Id"]: failure for failure in answer.get("Failed", ())}
            if not refused:
                return
            entries = [entry for entry in entries if entry["Id"] in refused]
        logger.error("sqs refused %d of a batch of tokens: %s", len(entries), list(refused.values()))
        raise StoreUnavailable


def _delivery_entry(entry_id: str, token: WakeUp, now: float) -> dict[str, Any]:
    delay = min(max(0, ceil(token.not_before - now)), LONGEST_DELAY)
    return {"Id": entry_id, "MessageBody": encode_token(token), "DelaySeconds": delay}


def _turn_entry(entry_id: str, token: WakeUp) -> dict[str, Any]:
    mailbox = (*token.key, token.mailbox)
    return {
        "Id": entry_id,
        "MessageBody": encode_token(token),
        "MessageGroupId": _digest(*mailbox),
        "MessageDeduplicationId": _digest(*mailbox, token.cause or uuid4().hex),
    }


def _digest(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
