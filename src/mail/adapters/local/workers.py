"""Workers in this process: what the turn function is on AWS."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

from mail.adapters.local.capacity import turns_in_memory
from mail.adapters.shared.backend import WakeUpSource
from mail.core.engine.fairness import NONE_FULL, Shares
from mail.core.engine.runtime import Runtime
from mail.core.protocol.message import Tier
from mail.core.task.leases import Lease
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
"""Seconds between two checks for overdue tasks and for turns of workers that are gone."""

DELETION_SECONDS = 30.0
"""Seconds for which the deletion of one caller, or of outdated tasks, keeps that of others waiting."""

BREAK_SECONDS = 0.001
"""The longest time that turns which never wait may block the event loop."""

RETRY_SECONDS = 1.0
"""Seconds before the retry of a turn that could not be stored; twice as long after each further failure."""

MAX_RETRY_SECONDS = 60.0

SENDING_PER_MAILBOX = 8
"""How many turns send to one swarm or webhook at a time, so that a slow one does not block the rest."""


class LocalWorkers:
    """Runs the turns that a queue wakes, at most `concurrency` at a time, until stopped.

    By default that many are as fit into memory. No caller takes all of it (`Shares`), so that nobody waits for
    another's long turns. Turns that send to other swarms and webhooks don't count: they mostly wait, and keep no
    agent waiting. Each sweep begins with `refresh`.
    """

    def __init__(
        self,
        runtime: Runtime,
        queue: WakeUpSource,
        *,
        concurrency: int | None = None,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._runtime = runtime
        self._refresh = refresh
        self._queue = queue
        self._shares = Shares(concurrency or turns_in_memory())
        self._share_ended = asyncio.Event()
        self._full = NONE_FULL
        self._taking: asyncio.Task[tuple[TaskKey, str]] | None = None
        self._turns: set[asyncio.Task[None]] = set()
        self._failures: dict[tuple[TaskKey, str], int] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._at_work = 0
        self._watchers: set[asyncio.Future[None]] = set()

    async def start(self) -> None:
        """Resume the work of an earlier process, and begin to take wake-ups."""
        await self._runtime.recover()
        self._queue.serve(self)
        self._loops = [
            asyncio.create_task(self._dispatch()),
            asyncio.create_task(self._dispatch_outbound()),
            asyncio.create_task(self._sweep()),
            asyncio.create_task(self._delete()),
        ]

    async def stop(self, grace: float = 10.0) -> None:
        """Begin no new turn, give running turns `grace` seconds to finish, and cancel the rest.

        A cancelled turn is run again after the next start, as its mail is still there.
        """
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._queue.serve(None)
        if self._turns:
            _, late = await asyncio.wait(self._turns, timeout=grace)
            if late:
                logger.warning(
                    "%d turns did not end within %g s; they are run again after the next start",
                    len(late),
                    grace,
                )
            for turn in late:
                turn.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def free(self) -> int:
        """The number of turns of agents that may begin at once."""
        return self._shares.free

    def lets_begin(self, caller: str, reserved: int = 0) -> bool:
        """Return whether a turn of a caller may begin at once besides `reserved` others, and a worker stays free."""
        return self._shares.lets_begin(caller, reserved)

    def new_lease(self) -> Lease:
        """Return a lease for a turn that waits for one of them."""
        return self._runtime.new_lease()

    async def idle(self) -> None:
        """Wait until no turn runs or waits for a retry, and no mailbox waits for a turn."""
        while self._at_work or self._queue:
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.add(watcher)
            try:
                await watcher
            finally:
                self._watchers.discard(watcher)

    async def _dispatch_outbound(self) -> None:
        """Start turns of outbound mailboxes, with a limit per swarm and webhook."""
        shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        while True:
            key, mailbox = await self._queue.take_outbound()
            self._at_work += 1
            share = shares.get(mailbox) or asyncio.Semaphore(SENDING_PER_MAILBOX)
            shares[mailbox] = share
            turn = asyncio.create_task(self._send(key, mailbox, share))
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)

    async def _send(self, key: TaskKey, mailbox: str, share: asyncio.Semaphore) -> None:
        async with share:
            await self._run(key, mailbox)

    async def _dispatch(self) -> None:
        """Start turns, most urgent first.

        A turn starts eagerly: it runs up to its first wait without a detour through the event loop, which runs
        at least every `BREAK_SECONDS`.
        """
        loop = asyncio.get_running_loop()
        time = loop.time  # not the system's: chaos runs on a loop whose time it sets
        last_break = time()
        while True:
            key, mailbox = await self._next()
            self._at_work += 1
            self._shares.begin(key.instance)
            turn = asyncio.Task(self._run(key, mailbox, has_share=True), loop=loop, eager_start=True)
            if not turn.done():
                self._turns.add(turn)
                turn.add_done_callback(self._turns.discard)
            if time() - last_break > BREAK_SECONDS:
                if self._queue:  # else it waits for the next wake-up
                    await asyncio.sleep(0)
                last_break = time()

    async def _next(self) -> tuple[TaskKey, str]:
        """Return the next wake-up of a caller that may run one more turn, when there is one."""
        while True:
            if not self._shares.free:
                self._share_ended.clear()
                await self._share_ended.wait()
            full = self._shares.full()
            if not full:
                return await self._queue.take()
            self._full = full
            taking = asyncio.Task(self._queue.take(full), loop=asyncio.get_running_loop(), eager_start=True)
            if taking.done():
                return taking.result()
            self._taking = taking
            try:
                return await taking
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # by `stop`, not by `_end_share`
                    raise
            finally:
                self._taking = None

    def _end_share(self, caller: str) -> None:
        """Count a turn of an agent as over, and let a caller begin one that had to wait for that."""
        self._shares.end(caller)
        self._share_ended.set()
        if self._taking is not None and self._shares.full() != self._full:
            self._taking.cancel()

    async def _run(self, key: TaskKey, mailbox: str, *, has_share: bool = False) -> None:
        try:
            await self._runtime.run_turn(key, mailbox)
        except Exception as error:  # the outermost loop: a failure of one task must not stop the rest
            trace = None if isinstance(error, StoreUnavailable) else error
            logger.error("task %s: the turn of %s failed: %s", key.task_id, mailbox, error, exc_info=trace)
            self._failures[key, mailbox] = failures = self._failures.get((key, mailbox), 0) + 1
            delay = min(RETRY_SECONDS * 2 ** (failures - 1), MAX_RETRY_SECONDS)
            self._at_work += 1
            asyncio.get_running_loop().call_later(delay, self._retry, WakeUp(key, mailbox, Tier.AGENT))
        else:
            if self._failures:
                self._failures.pop((key, mailbox), None)
        finally:
            self._end_one()
            if has_share:
                self._end_share(key.instance)

    def _retry(self, wake_up: WakeUp) -> None:
        self._queue.put(wake_up)
        self._end_one()

    def _end_one(self) -> None:
        """Count a turn as over, and wake `idle` after the last."""
        self._at_work -= 1
        if not self._at_work and self._watchers and not self._queue:
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_result(None)

    async def _sweep(self) -> None:
        async def sweep() -> None:
            if self._refresh is not None:
                await self._refresh()
            await self._runtime.sweep()

        await _repeat(sweep, "the check for overdue tasks and dead workers")

    async def _delete(self) -> None:
        work = partial(self._runtime.deletions.work, seconds=DELETION_SECONDS)
        await _repeat(work, "the deletion of callers and outdated tasks")


async def _repeat(work: Callable[[], Awaitable[object]], what: str) -> None:
    """Do some work again and again, with pauses; failures are logged."""
    while True:
        try:
            await work()
        except StoreUnavailable:
            logger.warning("%s waits, as the store can't be reached", what)
        except Exception:  # the outermost loop
            logger.exception("%s has failed; it is repeated", what)
        await asyncio.sleep(SWEEP_SECONDS)
