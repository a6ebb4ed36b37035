"""What an engine tells those who measure it, or write its log."""

from collections.abc import Sequence

from mail.core.change import Claim, TaskChange
from mail.core.events import EventKind
from mail.core.tasks import TaskStatus
from mail.core.turn_work import TurnReport


class Observer:
    """Is told what has happened. This one doesn't listen; each method is there to be overridden, and must not raise."""

    def task_changed(self, change: TaskChange) -> None:
        """A change that began a task, ended a generation of it or made dead letters (`buried`) was committed."""

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        """A turn that was leased is over, `seconds` later."""

    def turn_failed(self, turn: Claim, error: BaseException) -> None:
        """A turn that was leased could not be stored; its mail waits."""

    def woken_for_nothing(self, mailbox: str) -> None:
        """A token was for a mailbox that somebody else is at, or that is empty."""


Observers = Sequence[Observer]


def is_beginning(change: TaskChange) -> bool:
    """Whether the task is new."""
    return change.expected_version == 0


def is_remarkable(change: TaskChange) -> bool:
    """Whether observers are told of it."""
    return ended_as(change) is not None or is_beginning(change) or bool(change.buried)


def ended_as(change: TaskChange) -> TaskStatus | None:
    """How a generation has ended with this change; None where none has.

    The task itself may be running again: for somebody who has written meanwhile. One that was paused, and so has ended
    its generation, ends once more when it is cancelled.
    """
    if any(event.kind is EventKind.TASK_CANCELLED for event in change.events):
        return TaskStatus.CANCELLED
    if change.ended is None:
        return None
    if change.task.status is not TaskStatus.RUNNING:
        return change.task.status
    failed = any(event.kind is EventKind.TASK_ERROR for event in change.events)
    return TaskStatus.FAILED if failed else TaskStatus.COMPLETED
