"""The in-process queue and its workers: what SQS and its Lambda function are on AWS."""

import asyncio
import heapq
import logging
from collections.abc import Sequence
from itertools import count

from mail.core.message import Tier
from mail.core.ports import Token
from mail.core.runtime import Runtime
from mail.core.tasks import TaskKey

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
"""How often deadlines are looked at."""

RETRY_SECONDS = 1.0
"""How long a mailbox rests after its turn could not be stored."""


class LocalQueue:
    """`mail.core.ports.TurnQueue` in memory: urgent tiers first, first in first out inside a tier.

    Lost with the process, which is harmless: `Runtime.recover` publishes anew what waits in the store.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Tier, int, TaskKey, str]] = []
        self._order = count()
        self._waiting: set[tuple[Tier, TaskKey, str]] = set()
        self._idle: list[asyncio.Future[None]] = []

    async def publish(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            place = (token.tier, token.key, token.mailbox)
            if place in self._waiting:
                continue
            self._waiting.add(place)
            heapq.heappush(self._heap, (token.tier, next(self._order), token.key, token.mailbox))
            self._wake_one()

    async def take(self) -> tuple[TaskKey, str]:
        """The most urgent token; waits for one."""
        while not self._heap:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            try:
                await idle
            except asyncio.CancelledError:
                if idle in self._idle:
                    self._idle.remove(idle)
                elif self._heap:
                    self._wake_one()
                raise
        tier, _, key, mailbox = heapq.heappop(self._heap)
        self._waiting.discard((tier, key, mailbox))
        return key, mailbox

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return


class LocalWorkers:
    """Runs turns off a `LocalQueue`, at most `concurrency` at once, until stopped."""

    def __init__(self, runtime: Runtime, queue: LocalQueue, *, concurrency: int = 64) -> None:
        self._runtime = runtime
        self._queue = queue
        self._concurrency = concurrency
        self._tasks: list[asyncio.Task[None]] = []
        self._busy = 0
        self._stopping = False
        self._drained = asyncio.Event()

    async def start(self) -> None:
        """Take up what an earlier process left, and begin to work."""
        await self._runtime.recover()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        self._tasks.append(asyncio.create_task(self._sweep()))

    async def stop(self, grace: float = 10.0) -> None:
        """Begin no new turn, let the running ones finish for `grace` seconds, and cancel the rest.

        A cancelled turn is lost, its mail is not: it is run again after the next start.
        """
        self._stopping = True
        if self._busy:
            try:
                await asyncio.wait_for(self._drained.wait(), grace)
            except TimeoutError:
                logger.warning("%d turns did not end within %g s; they will be run again", self._busy, grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            key, mailbox = await self._queue.take()
            if self._stopping:
                return
            self._busy += 1
            try:
                await self._runtime.run_turn(key, mailbox)
            except Exception:  # the outermost loop: one task's trouble must not stop the others
                logger.exception("task %s: the turn of %s could not be run", key.task_id, mailbox)
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, key, mailbox)
            finally:
                self._end_turn()
            await asyncio.sleep(0)

    def _end_turn(self) -> None:
        self._busy -= 1
        if self._stopping and not self._busy:
            self._drained.set()

    def _retry(self, key: TaskKey, mailbox: str) -> None:
        if not self._stopping:
            self._tasks.append(asyncio.create_task(self._queue.publish([Token(key, mailbox, Tier.AGENT)])))

    async def _sweep(self) -> None:
        while True:
            try:
                await self._runtime.expire_overdue()
            except Exception:  # as in _work
                logger.exception("deadlines could not be looked at")
            await asyncio.sleep(SWEEP_SECONDS)
