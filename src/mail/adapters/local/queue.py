"""The in-process queue and its workers: what SQS and its Lambda function are on AWS."""

import asyncio
import heapq
import logging
from collections.abc import Callable, Sequence
from itertools import count
from time import time
from typing import Protocol
from weakref import WeakValueDictionary

from mail.core.engine.runtime import Runtime
from mail.core.protocol.message import Tier
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
"""How often deadlines are looked at."""

BREAK_SECONDS = 0.001
"""How long turns that never wait may keep the event loop from everything else."""

RETRY_SECONDS = 1.0
"""How long a mailbox rests after its turn could not be stored; twice as long after each further failure."""

MAX_RETRY_SECONDS = 60.0

DELIVERIES_PER_PEER = 8
"""How many deliveries to one other swarm, or webhook, go on at once; one that is slow keeps no other waiting."""


class PriorityQueue:
    """Tokens in the order of their urgency."""

    def __init__(self) -> None:
        self._heap: list[tuple[Tier, int, TaskKey, str]] = []
        self._order = count()
        self._waiting: set[tuple[Tier, TaskKey, str]] = set()
        self._takers: set[asyncio.Future[None]] = set()  # made anew at each wait: event loops come and go

    def put(self, token: WakeUp) -> None:
        """Add a token, unless one of its tier and mailbox waits already."""
        place = (token.tier, token.key, token.mailbox)
        if place not in self._waiting:
            self._waiting.add(place)
            heapq.heappush(self._heap, (token.tier, next(self._order), token.key, token.mailbox))
            for taker in self._takers:
                if not taker.done():
                    taker.set_result(None)

    async def take(self) -> tuple[TaskKey, str]:
        """The most urgent token; waits for one. For one taker at a time."""
        while not self._heap:
            taker = asyncio.get_running_loop().create_future()
            self._takers.add(taker)
            try:
                await taker
            finally:
                self._takers.discard(taker)
        tier, _, key, mailbox = heapq.heappop(self._heap)
        self._waiting.discard((tier, key, mailbox))
        return key, mailbox

    def __len__(self) -> int:
        """How many tokens wait."""
        return len(self._heap)


class LocalQueue:
    """`mail.core.task.ports.TurnQueue` in memory: urgent tiers first, first in first out inside a tier.

    Lost with the process, which is harmless: `Runtime.recover` publishes anew what waits in the store.

    Attributes:
        turns: tokens of agents.
        deliveries: tokens of mail for other swarms, which has its own way past agents that are busy.
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.turns = PriorityQueue()
        self.deliveries = PriorityQueue()
        self._clock = clock
        self._resting: set[WakeUp] = set()

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        for token in tokens:
            if token.not_before and (delay := token.not_before - self._clock()) > 0:
                if token not in self._resting:
                    self._resting.add(token)
                    asyncio.get_running_loop().call_later(delay, self._wake, token)
            else:
                self.put(token)

    def put(self, token: WakeUp) -> None:
        """Publish one token at once."""
        (self.deliveries if goes_out(token.mailbox) else self.turns).put(token)

    def _wake(self, token: WakeUp) -> None:
        self._resting.discard(token)
        self.put(token)

    async def take(self) -> tuple[TaskKey, str]:
        """The most urgent token of an agent; waits for one. For one taker at a time."""
        return await self.turns.take()

    async def take_delivery(self) -> tuple[TaskKey, str]:
        """The most urgent token of another swarm's mail; waits for one. For one taker at a time."""
        return await self.deliveries.take()

    def __len__(self) -> int:
        """How many tokens wait, those included that are not to be worked on yet."""
        return len(self.turns) + len(self.deliveries) + len(self._resting)


class TokenSource(Protocol):
    """What workers take from: the consumer's end of a queue."""

    async def take(self) -> tuple[TaskKey, str]:
        """The most urgent token of an agent; waits for one. For one taker at a time."""
        ...

    async def take_delivery(self) -> tuple[TaskKey, str]:
        """The most urgent token of another swarm's mail; waits for one. For one taker at a time."""
        ...

    def put(self, token: WakeUp) -> None:
        """Publish one token."""
        ...

    def __len__(self) -> int:
        """How many tokens wait that nobody else may take."""
        ...


class LocalWorkers:
    """Runs turns off a queue, at most `concurrency` at once, until stopped.

    Mail for other swarms doesn't count: it waits for them, and keeps no agent waiting.
    """

    def __init__(self, runtime: Runtime, queue: TokenSource, *, concurrency: int = 64) -> None:
        self._runtime = runtime
        self._queue = queue
        self._concurrency = concurrency
        self._turns: set[asyncio.Task[None]] = set()
        self._failures: dict[tuple[TaskKey, str], int] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._at_work = 0
        self._watchers: set[asyncio.Future[None]] = set()

    async def start(self) -> None:
        """Take up what an earlier process left, and begin to work."""
        await self._runtime.recover()
        self._loops = [
            asyncio.create_task(self._dispatch()),
            asyncio.create_task(self._dispatch_deliveries()),
            asyncio.create_task(self._sweep()),
        ]

    async def stop(self, grace: float = 10.0) -> None:
        """Begin no new turn, let the running ones finish for `grace` seconds, and cancel the rest.

        A cancelled turn is lost, its mail is not: it is run again after the next start.
        """
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._turns:
            _, late = await asyncio.wait(self._turns, timeout=grace)
            if late:
                logger.warning("%d turns did not end within %g s; they will be run again", len(late), grace)
            for turn in late:
                turn.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def idle(self) -> None:
        """Return once no turn runs or is to be tried again, and no mailbox waits for one."""
        while self._at_work or self._queue:
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.add(watcher)
            try:
                await watcher
            finally:
                self._watchers.discard(watcher)

    async def _dispatch_deliveries(self) -> None:
        """Let each other swarm, and each webhook, have its share."""
        shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        while True:
            key, mailbox = await self._queue.take_delivery()
            self._at_work += 1
            share = shares.get(mailbox) or asyncio.Semaphore(DELIVERIES_PER_PEER)
            shares[mailbox] = share
            delivery = asyncio.create_task(self._deliver(key, mailbox, share))
            self._turns.add(delivery)
            delivery.add_done_callback(self._turns.discard)

    async def _deliver(self, key: TaskKey, mailbox: str, share: asyncio.Semaphore) -> None:
        await share.acquire()
        await self._run(key, mailbox, share)

    async def _dispatch(self) -> None:
        """Start turns in the order of their urgency.

        A turn is started eagerly: what it can do without waiting it does at once, without a detour through
        the event loop, which gets its share all the same.
        """
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(self._concurrency)
        last_break = loop.time()
        while True:
            await free.acquire()
            key, mailbox = await self._queue.take()
            self._at_work += 1
            turn = asyncio.Task(self._run(key, mailbox, free), loop=loop, eager_start=True)
            if not turn.done():
                self._turns.add(turn)
                turn.add_done_callback(self._turns.discard)
            if loop.time() - last_break > BREAK_SECONDS:
                await asyncio.sleep(0)
                last_break = loop.time()

    async def _run(self, key: TaskKey, mailbox: str, free: asyncio.Semaphore) -> None:
        try:
            await self._runtime.run_turn(key, mailbox)
        except Exception:  # the outermost loop: one task's trouble must not stop the others
            logger.exception("task %s: the turn of %s could not be run", key.task_id, mailbox)
            self._failures[key, mailbox] = failures = self._failures.get((key, mailbox), 0) + 1
            delay = min(RETRY_SECONDS * 2 ** (failures - 1), MAX_RETRY_SECONDS)
            self._at_work += 1
            asyncio.get_running_loop().call_later(delay, self._try_again, WakeUp(key, mailbox, Tier.AGENT))
        else:
            self._failures.pop((key, mailbox), None)
        finally:
            free.release()
            self._rest()

    def _try_again(self, token: WakeUp) -> None:
        self._queue.put(token)
        self._rest()

    def _rest(self) -> None:
        """One turn is over; tell those who wait for the last."""
        self._at_work -= 1
        if not self._at_work and not self._queue:
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_result(None)

    async def _sweep(self) -> None:
        while True:
            try:
                await self._runtime.expire_overdue()
            except Exception:  # as in _run
                logger.exception("deadlines could not be looked at")
            await asyncio.sleep(SWEEP_SECONDS)
