"""Waits: what is due of a task's open calls and timers. Pure functions.

| due is | effect |
| --- | --- |
| a call | its agent reads that it has failed |
| a reminder | its mail enters its mailbox |
| a message of a caller | it is posted, as if the caller posted it now |

Each happens in the commit that ends the record. Those that the end of their task has cancelled are seen to in turns of
their own (`mail.core.decisions.callbacks.settle_calls`).
"""

from collections.abc import Sequence
from itertools import takewhile

from mail.core.decisions.callbacks import expire_calls, takes_result
from mail.core.decisions.stalls import prevent_stall
from mail.core.decisions.timers import is_open as is_timer_open
from mail.core.decisions.timers import post, remind
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.task import Task
from mail.core.task.timers import Timer
from mail.core.task.waits import MOST_ENDED, Wait

CHECK_SECONDS = 60.0
"""Seconds between two looks for missed heartbeats in a task, so that they cost no more than a commit a minute."""


def is_open(task: Task, wait: Wait) -> bool:
    """Return whether a call still takes a result, or a timer still waits."""
    return takes_result(task, wait) if isinstance(wait, LaterCall) else is_timer_open(task, wait)


def fall_due(draft: Draft, waits: Sequence[Wait] | None, now: float) -> TaskChange | None:
    """End calls and timers of a task that are due, and note when the next one is.

    `waits` are the first that are open, one more than `MOST_ENDED`, of which some may have been heard of since the
    task was due; None if they have not been read. A caller's message has a commit of its own. Return None if nothing
    is due, or if the records have not been read.
    """
    if waits is None or not draft.waits.is_due(now):
        return None
    due = [wait for wait in waits if wait.due <= now][:MOST_ENDED]
    ends = [*takewhile(lambda wait: not (isinstance(wait, Timer) and wait.is_of_caller), due)]
    if not ends and due and isinstance(first := due[0], Timer):
        ends, draft = [first], post(draft, first)
    else:
        _end(draft, ends)
    left = [_look_at(wait, now) for wait in waits if wait not in ends]
    draft.waits = draft.waits.until(min(left, default=None))
    prevent_stall(draft)
    return draft.seal()


def _look_at(wait: Wait, now: float) -> float:
    """Return when to look at something that waits; for a missed heartbeat not before a while."""
    if isinstance(wait, LaterCall) and wait.due > now:
        return min(wait.finish_by, max(wait.due, now + CHECK_SECONDS))
    return wait.due


def _end(draft: Draft, ends: Sequence[Wait]) -> None:
    """End calls and reminders that are due."""
    for wait in ends:
        if isinstance(wait, Timer):
            remind(draft, wait)
    expire_calls(draft, [wait for wait in ends if isinstance(wait, LaterCall)])
