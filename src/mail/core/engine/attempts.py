"""Attempts at turns that an error of the engine itself ends, and the end of a task whose turn keeps failing that way.

A failing agent or action has a result, which is committed. A turn that is counted here has none: its result can't be
decided, encoded or stored.
"""

import logging
from collections.abc import Coroutine

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
    """Counts the failed attempts at each turn in this process; on AWS, SQS counts those of all functions.

    A store that can't be reached or is busy doesn't count, nor does any other MAILError: a later attempt may succeed.
    """

    def __init__(self) -> None:
        self._failed: dict[tuple[TaskKey, str, int], int] = {}

    async def complete(
        self, leased: LeasedTurn, work: Coroutine[None, None, TaskChange | None]
    ) -> TaskChange | None:
        """Do the work of a turn. Raise its error, or abandon the turn if this was the last attempt."""
        try:
            change = await work
        except MAILError:
            raise
        except Exception as error:
            failed = self._count(leased)
            if failed < MAX_ATTEMPTS:
                raise
            turn = leased.turn
            logger.exception(
                "task %s: the turn of %s is abandoned: attempt %d has failed",
                *(turn.task.task_id, turn.mailbox, failed),
            )
            change = await leased.abandon(conceal(error), failed)
        if self._failed:
            self._failed.pop(_identity(leased), None)
        return change

    def _count(self, leased: LeasedTurn) -> int:
        turn = _identity(leased)
        self._failed[turn] = failed = self._failed.get(turn, 0) + 1
        if len(self._failed) > COUNTED_TURNS:
            del self._failed[next(iter(self._failed))]
        return failed


def _identity(leased: LeasedTurn) -> tuple[TaskKey, str, int]:
    """Return the task, the mailbox and the message of a turn; a webhook's has no message."""
    turn = leased.turn
    return turn.task.key, turn.mailbox, turn.entry.seq if isinstance(turn, Turn) else 0
