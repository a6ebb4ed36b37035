"""Attempts at turns that an error of the engine itself ends, and the end of a task whose turn keeps failing that way.

A failing agent or action has a result, which is committed. A turn that is counted here has none: its result can't be
decided, encoded or stored.
"""

import logging

from mail.core.engine.leased_turn import LeasedTurn, conceal
from mail.core.task.change import TaskChange, Turn
from mail.core.task.task import TaskKey
from mail.errors import MAILError

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""The number of attempts at a turn; SQS delivers a wake-up as often."""

COUNTED_TURNS = 10_000
"""The most turns that are counted; the count of the oldest is dropped first."""


class Attempts:
    """Counts the failed attempts at each turn in this process; on AWS, SQS counts those of all functions."""

    def __init__(self) -> None:
        self._failed: dict[tuple[TaskKey, str, int], int] = {}

    async def end(self, leased: LeasedTurn, error: BaseException) -> TaskChange | None:
        """Count an attempt that an error has ended; after the last one, abandon the turn. None if it is to be retried.

        A store that can't be reached or is busy doesn't count, nor does any other MAILError: a retry may succeed.
        """
        if isinstance(error, MAILError) or not isinstance(error, Exception):
            return None
        turn = leased.turn
        # a webhook's turn has no message
        identity = turn.task.key, turn.mailbox, turn.entry.seq if isinstance(turn, Turn) else 0
        self._failed[identity] = failed = self._failed.get(identity, 0) + 1
        if len(self._failed) > COUNTED_TURNS:
            del self._failed[next(iter(self._failed))]
        if failed < MAX_ATTEMPTS:
            return None
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
