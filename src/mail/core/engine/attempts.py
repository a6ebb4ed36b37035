"""Attempts at turns: counts those that have failed, and keeps turns apart that may be the reason why processes end.

An attempt has failed if its process ended during it, or if an error of the engine itself prevented its commit. The
lease of the turn carries the count (`Lease.attempt`), so that it outlives the process and costs a turn nothing. Not
counted are the turns that a shutdown hands back, and a store that can't be reached. A commit and the end of an action
reset the count.

A process that ends takes all its turns with it, and most are innocent. So the turns that have failed repeatedly are
run beside fewer and fewer of their kind: those at fault are soon alone, and the innocent ones end. One that never
succeeds becomes a dead letter.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

from mail.core.engine.leased_turn import LeasedTurn, conceal
from mail.core.task.change import TaskChange, Turn
from mail.core.task.leases import Lease, WebhookClaim
from mail.errors import MAILError

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""The number of attempts at a turn."""

NARROWED, ALONE = 2, 3
"""The failed attempts from which few turns, and then single ones, run at a time."""

FEW = 8
"""How many turns that have failed twice run at a time in a process."""

PATIENCE_SECONDS = 30.0
"""The longest wait of a turn for turns that have failed as often."""

HELD_SECONDS = 40.0
"""The lease of a turn that waits for them: longer than that, and as long as others take to notice a frozen process."""

CALM_SECONDS = 10.0
"""How much longer a process must have lived for each further failure before such a turn runs alone: one that is killed
every few seconds has others to blame."""

ENDED = "the process ended during this turn, five times"
"""The reason of a dead letter."""


def counted_attempts(turn: Turn | WebhookClaim) -> int:
    """Return how many attempts at a turn had failed when it was opened, those before its last progress included."""
    if turn.replaced is None:
        return 0
    return turn.replaced.attempt if turn.replaced.seq in (0, seq_of(turn)) else 0


def failed_attempts(turn: Turn | WebhookClaim) -> int:
    """Return how many attempts at a turn have failed in a row, without any progress."""
    progress = 0
    if isinstance(turn, Turn) and turn.checkpoint is not None and turn.checkpoint.ended:
        progress = turn.checkpoint.attempt
    return max(0, counted_attempts(turn) - progress)


def seq_of(turn: Turn | WebhookClaim) -> int:
    """Return the seq of the message of a turn; 0 for a webhook's turn, which has none."""
    return turn.entry.seq if isinstance(turn, Turn) else 0


def left_by(turn: Turn | WebhookClaim, error: BaseException) -> Lease:
    """Return the lease that a turn leaves which an error has ended.

    A store that can't be reached or is busy doesn't count, nor does any other MAILError: a retry may succeed.
    """
    return turn.lease.ended(counted_attempts(turn) + _counts(error), seq_of(turn))


async def abandon_last(leased: LeasedTurn, error: BaseException) -> TaskChange | None:
    """Abandon a turn if an error has ended its last attempt; None if it is to be retried."""
    turn, failed = leased.turn, failed_attempts(leased.turn) + 1
    if not _counts(error) or failed < MAX_ATTEMPTS:
        return None
    assert isinstance(error, Exception)
    logger.error(
        "task %s: the turn of %s is abandoned after %d attempts",
        *(turn.task.task_id, turn.mailbox, failed),
        exc_info=error,
    )
    try:
        return await leased.abandon(conceal(error), failed)
    except Exception:  # the turn is retried, and abandoned again
        logger.exception("task %s: the turn of %s can't be abandoned", turn.task.task_id, turn.mailbox)
        return None


def _counts(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, MAILError)


class Suspects:
    """The turns of this process that have failed repeatedly.

    Args:
        is_quiet: returns whether no other turn runs here.
    """

    def __init__(self, is_quiet: Callable[[], bool]) -> None:
        self._few = _Lane(FEW)
        self._alone = _Lane(1, is_quiet)
        self._begin: float | None = None

    @asynccontextmanager
    async def admit(self, failed: int, since: float) -> AsyncGenerator[bool]:
        """Wait until a turn may run that has failed so often; yield whether its attempt counts.

        It doesn't if the turn has waited for `PATIENCE_SECONDS` and others of its kind still have all places. Those
        that began last (`since`) are admitted first: the process may have ended because of them. A turn that would
        run alone also waits until its process has lived for a while and no other turn runs, so that processes which
        end for other reasons don't count. On a busy server other turns always run: after half of its wait such a turn
        takes the place beside them, when it is its turn, and counts, or it could end the server for ever.
        """
        if failed < NARROWED:
            yield True
            return
        lane, patience = self._few, PATIENCE_SECONDS
        if failed >= ALONE:
            lane = self._alone
            patience -= await self._await_calm(failed)
        async with lane.enter(since, patience) as counts:
            yield counts

    async def _await_calm(self, failed: int) -> float:
        """Wait until the process has lived long enough, counted from its first such turn; return the seconds waited."""
        now = asyncio.get_running_loop().time()
        if self._begin is None:
            self._begin = now
        seconds = max(0.0, self._begin + CALM_SECONDS * (failed - NARROWED) - now)
        await asyncio.sleep(seconds)
        return seconds

    def note_end(self) -> None:
        """Admit the next turn that would run alone, if the last of the others has ended."""
        if self._alone.waiting:
            self._alone.admit()


class _Lane:
    """A limit on the turns that run at a time."""

    def __init__(self, size: int, may_begin: Callable[[], bool] = lambda: True) -> None:
        self._free = size
        self._may_begin = may_begin
        self.waiting: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._numbers = count()

    @asynccontextmanager
    async def enter(self, since: float, patience: float) -> AsyncGenerator[bool]:
        loop = asyncio.get_running_loop()
        admitted = loop.create_future()
        heappush(self.waiting, (-since, next(self._numbers), loop.time() + patience / 2, admitted))
        self.admit()
        has_place = False
        try:
            await asyncio.wait([admitted], timeout=patience / 2)
            self.admit()
            await asyncio.wait([admitted], timeout=patience / 2)
            has_place = admitted.done() or self._free > 0
            if not admitted.done():
                admitted.cancel()
                self._free -= has_place
            yield has_place
        finally:
            if has_place or (admitted.done() and not admitted.cancelled()):
                self._free += 1
            admitted.cancel()
            self.admit()

    def admit(self) -> None:
        """Admit those who wait, as far as there is room; after half of its wait a turn begins in any case."""
        now = asyncio.get_running_loop().time()
        while self.waiting and self._free and (self._may_begin() or self.waiting[0][2] <= now):
            *_, admitted = heappop(self.waiting)
            if not admitted.done():
                self._free -= 1
                admitted.set_result(None)
