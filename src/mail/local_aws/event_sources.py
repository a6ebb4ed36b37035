"""Queues and schedules that invoke functions, like Lambda's event source mappings and EventBridge.

A batch is what one receive call returns; while it is handled, the queue withholds the other messages of its groups.
Handled messages are deleted; failed ones, and those of a function that dies, become visible again after their timeout.
https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any
from uuid import uuid4

from mail.adapters.aws.client import AwsClient, Refused
from mail.errors import StoreUnavailable
from mail.local_aws.functions import Invocation, LambdaFunction, Outcome
from mail.local_aws.ministack import REGION
from mail.local_aws.stack import EventSource, Schedule


class Repeat(Enum):
    """When a message is delivered again: while it is handled, right after, or later, behind its group."""

    NEVER = auto()
    CONCURRENTLY = auto()
    AFTERWARDS = auto()
    LATER = auto()


@dataclass
class Faults:
    """The rates of injected faults, by default 0.

    Attributes:
        kill: share of the queues' invocations that are killed, at a random time.
        duplicate: share of the messages that are delivered twice.
        delay: the maximum delay of a delivery in seconds; each delay is random.
        seed: seeds the random choices, which are reproducible apart from timing.
    """

    kill: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    seed: int = 0
    _owed: float = 0.0
    _durations: deque[float] = field(default_factory=lambda: deque([0.05], maxlen=200))

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - reproducible, not secret

    def repeat(self) -> Repeat:
        """Choose whether, and when, a message is delivered again."""
        if self._chance.random() >= self.duplicate:
            return Repeat.NEVER
        return self._chance.choice([Repeat.CONCURRENTLY, Repeat.AFTERWARDS, Repeat.LATER])

    def lateness(self) -> float:
        """Return the random delay of a delivery, in seconds."""
        return self._chance.uniform(0.0, self.delay)

    def death(self) -> float | None:
        """Return the seconds after which an invocation is killed; None if it isn't.

        Some invocations end earlier. Later ones make up for that, so that the share of kills stays correct.
        """
        self._owed += self.kill
        if self._chance.random() >= self._owed:
            return None
        return self._chance.random() * self._chance.choice(self._durations)

    def note(self, seconds: float, *, killed: bool) -> None:
        """Record the duration of an invocation, or that it was killed."""
        if killed:
            self._owed -= 1.0
        else:
            self._durations.append(seconds)


WAIT_SECONDS = 2

_EXPIRED = "ReceiptHandleIsInvalid"
"""The message was handled too slowly and delivered again."""

Message = dict[str, Any]

logger = logging.getLogger(__name__)


class Poller:
    """Feeds a function from a queue, with at most `concurrency` concurrent invocations.

    `watch` is called after every invocation.
    """

    def __init__(
        self,
        source: EventSource,
        function: LambdaFunction,
        sqs: AwsClient,
        *,
        concurrency: int,
        faults: Faults,
        watch: Callable[[EventSource, Invocation], None],
    ) -> None:
        self._source = source
        self._function = function
        self._sqs = sqs
        self._free = asyncio.Semaphore(concurrency)
        self._faults = faults
        self._watch = watch
        self._deliveries: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Poll until cancelled; running deliveries are cancelled, too."""
        try:
            while True:
                await self._free.acquire()
                batch = await self._receive()
                if batch:
                    self._spawn(self._handle(batch))
                else:
                    self._free.release()
        finally:
            for delivery in self._deliveries:
                delivery.cancel()
            await asyncio.gather(*self._deliveries, return_exceptions=True)

    async def _receive(self) -> list[Message]:
        try:
            answer = await self._sqs.call(
                "receive_message",
                QueueUrl=self._source.queue_url,
                MaxNumberOfMessages=self._source.batch_size,
                WaitTimeSeconds=WAIT_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        except StoreUnavailable:
            await asyncio.sleep(1)
            return []
        messages: list[Message] = answer.get("Messages", [])
        return messages

    def _spawn(self, delivery: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(delivery)
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _handle(self, batch: Sequence[Message]) -> None:
        try:
            await asyncio.sleep(self._faults.lateness())
            await self._deliver(batch)
        finally:
            self._free.release()

    async def _deliver(self, batch: Sequence[Message]) -> None:
        """Deliver a batch, repeatedly if a fault says so, and delete the messages that were handled."""
        repeat = self._faults.repeat()
        if repeat is Repeat.CONCURRENTLY:
            handled = set().union(*await asyncio.gather(self._invoke(batch), self._invoke(batch)))
        else:
            handled = await self._invoke(batch)
            if repeat is Repeat.AFTERWARDS:
                handled |= await self._invoke(batch)
        for message in batch:
            if message["MessageId"] in handled:
                await self._delete(message)
        if repeat is Repeat.LATER:
            self._spawn(self._deliver_late(batch))

    async def _deliver_late(self, batch: Sequence[Message]) -> None:
        await asyncio.sleep(self._faults.lateness())
        await self._invoke(batch)

    async def _invoke(self, batch: Sequence[Message]) -> set[str]:
        """Invoke the function with a batch; return the ids of the handled messages."""
        event = {"Records": [self._record(message) for message in batch]}
        done = await self._function.invoke(event, kill_after=self._faults.death())
        self._faults.note(done.ended - done.begun, killed=done.outcome is Outcome.KILLED)
        self._watch(self._source, done)
        if not done.succeeded:
            level = logging.DEBUG if done.outcome is Outcome.KILLED else logging.WARNING
            logger.log(
                level, "%s: %s: %s", done.function, done.outcome, done.payload.decode(errors="replace")
            )
            return set()
        failed = _failures(done.result) if self._source.reports_failures else set()
        return {message["MessageId"] for message in batch} - failed

    async def _delete(self, message: Message) -> None:
        try:
            await self._sqs.call(
                "delete_message",
                expect={_EXPIRED},
                QueueUrl=self._source.queue_url,
                ReceiptHandle=message["ReceiptHandle"],
            )
        except (Refused, StoreUnavailable):
            logger.warning("a handled message could not be deleted, and will be delivered again")

    def _record(self, message: Message) -> Message:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": {},
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": self._source.queue_arn,
            "awsRegion": REGION,
        }


def _failures(result: Any) -> set[str]:
    """Return the ids that a partial batch response reports as failed."""
    failures = result.get("batchItemFailures", []) if isinstance(result, Mapping) else []
    return {failure["itemIdentifier"] for failure in failures}


async def run_schedule(schedule: Schedule, function: LambdaFunction) -> None:
    """Invoke a function at an interval, one invocation at a time."""
    while True:
        await asyncio.sleep(schedule.seconds)
        event = {
            "version": "0",
            "id": str(uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": "000000000000",
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [schedule.name],
            "detail": "{}",
        }
        done = await function.invoke(event)
        if not done.succeeded:
            logger.warning("%s: %s: %s", done.function, done.outcome, done.payload.decode(errors="replace"))
