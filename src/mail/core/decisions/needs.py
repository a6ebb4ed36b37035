"""Needs: what a task waits for its owner for, besides approvals. Pure functions."""

from enum import StrEnum

from mail.core.task.task import Task, TaskStatus


class Need(StrEnum):
    """Why somebody should look at a task, the most urgent first."""

    QUESTION = "question"
    DEAD_LETTERS = "dead_letters"
    FAILURE = "failure"
    OTHERS = "others"


def need_of(task: Task) -> Need | None:
    """Return why the owner of a task should look at it; None for no reason, and for calls that need approval.

    A task that waits for others (swarms, reviewers, calls that finish later) needs nothing: its owner may want to know.
    """
    calls = task.generation.waiting_calls if task.status is TaskStatus.PAUSED else ()
    if any(call.needs_result for call in calls):
        return Need.QUESTION
    if task.dead_letters:
        return Need.DEAD_LETTERS
    if task.status is TaskStatus.FAILED:
        return Need.FAILURE
    asks_reviewers = any(call.is_undecided and call.reviewers is not None for call in calls)
    waits = task.is_running and (task.is_asleep or any(each.recipient_swarm for each in task.requests))
    return Need.OTHERS if asks_reviewers or waits else None
