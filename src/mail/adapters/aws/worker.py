"""Turns in a long-lived process: takes wake-ups from the queues that otherwise invoke the turn function.

Each queue is asked by long polls. A poll takes slots for the turns that it may bring before it asks, so that a message
is never received and then kept waiting: it stays in its queue, where another worker or a function takes it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from mail.adapters.aws.client import AwsClient, back_off
from mail.adapters.aws.queue import BATCH, RunTurn, SQSQueue
from mail.core.protocol.message import Tier
from mail.errors import ConfigurationError, StoreUnavailable

logger = logging.getLogger(__name__)

WAIT_SECONDS = 10
"""How long a poll waits for a message. When the worker stops, it waits for its polls."""

OPEN_SECONDS = 10.0
"""Seconds from the receipt of a message to the lease of its turn, at most."""

REFUSED_SECONDS = 0.5
MAX_REFUSED_SECONDS = 30.0
"""The longest pause before the next poll after AWS has refused one or a turn, and after it has refused many."""

MOST_REFUSALS = 6
"""The refusals after which pauses grow no longer."""

SHARES = {Tier.SYSTEM: 10, Tier.PERSON: 30, Tier.INTERRUPT: 15, Tier.BROADCAST: 5, Tier.AGENT: 40}
"""The shares of the tiers while all have mail, in percent."""


class Slots:
    """Slots for turns, which tiers share by weight.

    A tier that asks gets what is free. If several wait for a slot, it goes to the one with the fewest turns for its
    weight, so that a flood of one tier leaves the others their shares as its turns end.
    """

    def __init__(self, limit: int, weights: Mapping[Tier, int]) -> None:
        self._free = limit
        self._weights = weights
        self._taken = dict.fromkeys(weights, 0)
        self._asking: dict[Tier, tuple[int, asyncio.Future[int]]] = {}

    async def acquire(self, tier: Tier, most: int) -> int:
        """Take up to `most` slots, once there is one; return how many. One caller per tier at a time."""
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asking[tier] = most, granted
        self._grant()
        try:
            return await granted
        except asyncio.CancelledError:
            if self._asking.pop(tier, None) is None:
                self.release(tier, granted.result())
            raise

    def release(self, tier: Tier, count: int = 1) -> None:
        """Give slots to those who wait for them."""
        self._taken[tier] -= count
        self._free += count
        self._grant()

    def _grant(self) -> None:
        while self._free and self._asking:
            tier = min(self._asking, key=lambda each: self._taken[each] / self._weights[each])
            most, granted = self._asking.pop(tier)
            count = 1 if self._asking else min(most, self._free)
            self._taken[tier] += count
            self._free -= count
            granted.set_result(count)


class SQSWorker:
    """Runs the turns that the queues of a deployment wake, at most `concurrency` at a time, until stopped.

    A slot that becomes free goes to the tier with the fewest turns for its share; a tier without mail keeps one. A turn
    that fails is retried as in a function. While AWS refuses turns or polls, pauses between polls grow, and
    each poll brings one message.

    Args:
        sqs: a client for polls, one connection per tier, whose time limit is longer than `WAIT_SECONDS`.
        run: runs a turn.
        lease_seconds: how long a lease lasts; until then, nobody else gets the message of a turn.
        on_failure: called after a turn that is retried.
    """

    def __init__(
        self,
        sqs: AwsClient,
        queue: SQSQueue,
        run: RunTurn,
        *,
        concurrency: int,
        lease_seconds: float,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        if concurrency < len(Tier):
            raise ConfigurationError(
                f"a worker needs a slot for each tier: at least {len(Tier)}, not {concurrency}"
            )
        self._sqs = sqs
        self._queue = queue
        self._run_turn = run
        self._on_failure = on_failure
        self._hidden = int(lease_seconds + OPEN_SECONDS)
        self._concurrency = concurrency
        self._slots = Slots(concurrency, SHARES)
        self._turns: set[asyncio.Task[None]] = set()
        self._refusals = 0
        self._refused = 0.0

    @property
    def running(self) -> int:
        """The number of turns that run."""
        return len(self._turns)

    async def run(self, stopping: asyncio.Event, grace: float) -> None:
        """Take wake-ups until `stopping` is set; then give running turns `grace` seconds, and hand back the rest.

        What is handed back has no lease and is visible in its queue, so that another worker resumes it at once.
        """
        polls = [asyncio.create_task(self._poll(tier, url)) for tier, url in self._queue.urls.items()]
        logger.info("the worker takes turns, at most %d at once", self._concurrency)
        await stopping.wait()
        for poll in polls:
            poll.cancel()
        logger.info("the worker stops: %d turns have %g seconds to end", len(self._turns), grace)
        _, late = await asyncio.wait({*polls, *self._turns}, timeout=grace)
        if unfinished := late & self._turns:
            logger.warning("%d turns did not end in time; other workers resume them", len(unfinished))
        for each in late:
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _poll(self, tier: Tier, url: str) -> None:
        """Take the wake-ups of a tier: one when its queue has been empty, then as many as there are slots.

        A slot that a poll hasn't used is kept for the next one: others never take the last slot of a tier without mail.
        """
        most, kept = 1, 0
        while True:
            if refusals := self._recent_refusals():
                most = 1
                await back_off(refusals, base=REFUSED_SECONDS, cap=MAX_REFUSED_SECONDS)
            slots = kept or await self._slots.acquire(tier, most)
            records: list[dict[str, Any]] = []
            try:
                records = await self._receive(url, slots)
                most = BATCH if records else 1
            except StoreUnavailable:
                self._refuse()
            except Exception:  # the outermost loop
                logger.exception("the poll of tier %d has failed; it is repeated", tier)
                self._refuse()
            finally:
                kept = min(1, slots - len(records))
                self._slots.release(tier, slots - len(records) - kept)
            for record in records:
                turn = asyncio.create_task(self._run(tier, record))
                self._turns.add(turn)
                turn.add_done_callback(self._turns.discard)

    async def _receive(self, url: str, most: int) -> list[dict[str, Any]]:
        """Return messages as an event of the function has them. If the worker stops meanwhile, hand them back."""
        polling = asyncio.create_task(
            self._sqs.call(
                "receive_message",
                QueueUrl=url,
                MaxNumberOfMessages=most,
                WaitTimeSeconds=WAIT_SECONDS if most == 1 else 1,  # many slots don't wait for long
                VisibilityTimeout=self._hidden,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        )
        try:
            return _records(url, await asyncio.shield(polling))
        except asyncio.CancelledError:
            with suppress(StoreUnavailable):
                await asyncio.gather(*(self._hand_back(record) for record in _records(url, await polling)))
            raise

    async def _run(self, tier: Tier, record: dict[str, Any]) -> None:
        try:
            await self._queue.handle(record, self._run_turn, is_hidden=True)
            self._refusals = 0
            await self._queue.delete(record)
        except asyncio.CancelledError:
            await self._hand_back(record)
        except Exception as error:  # noqa: BLE001  # `handle` has logged it
            if isinstance(error, StoreUnavailable):
                self._refuse()
            self._on_failure()
        finally:
            self._slots.release(tier)

    async def _hand_back(self, record: dict[str, Any]) -> None:
        try:
            await self._queue.hide(record, 0)
        except StoreUnavailable:
            logger.warning("a wake-up could not be handed back; it is delivered again in %d s", self._hidden)

    def _refuse(self) -> None:
        self._refusals = min(self._refusals + 1, MOST_REFUSALS)
        self._refused = monotonic()

    def _recent_refusals(self) -> int:
        """Return how often AWS has refused something since the last turn that it let end, if that is not long ago."""
        if monotonic() - self._refused > MAX_REFUSED_SECONDS:
            self._refusals = 0
        return self._refusals


def _records(url: str, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    queue = url.rsplit("/", 1)[-1]
    return [
        {
            "body": message["Body"],
            "receiptHandle": message["ReceiptHandle"],
            "attributes": message["Attributes"],
            "eventSourceARN": queue,
        }
        for message in answer.get("Messages", ())
    ]
