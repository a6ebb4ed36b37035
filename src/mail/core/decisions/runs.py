"""The runs of a task, as its events tell them: each is a submission with everything until its answer. Pure.

A message that joins a run belongs to it, and so does the generation that answers it. A pause doesn't end a run.
"""

from dataclasses import replace

from mail.core.protocol.values import value
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import EndExtra
from mail.core.task.task import ENDED, TaskStatus


@value(kw_only=True)
class Run:
    """A run, as it is after an event.

    Attributes:
        number: counts the runs of the task, from 1.
        first: the seq of its first event.
        since: when it reached its status, in ISO 8601.
    """

    number: int
    first: int
    status: TaskStatus
    since: str


def after(run: Run | None, event: Event) -> Run:
    """Return the run that an event of a task belongs to, as it is then; `run` is that of the event before."""
    if run is None:
        run = Run(number=1, first=event.seq, status=TaskStatus.RUNNING, since=event.timestamp)
    elif run.status in ENDED and is_by_person(event):
        run = Run(number=run.number + 1, first=event.seq, status=TaskStatus.RUNNING, since=event.timestamp)
    status = status_after(run.status, event)
    return run if status is run.status else replace(run, status=status, since=event.timestamp)


def status_after(status: TaskStatus, event: Event) -> TaskStatus:
    """Return the status of a run after an event, and `status` before it."""
    match event.kind:
        case EventKind.TASK_CANCELLED:
            return TaskStatus.CANCELLED
        case EventKind.TASK_COMPLETE | EventKind.TASK_ERROR if status is TaskStatus.CANCELLED:
            return status  # the answer that tells so
        case EventKind.TASK_COMPLETE | EventKind.TASK_ERROR:
            if isinstance(event.extra, EndExtra) and event.extra.unread_from is not None:
                return TaskStatus.RUNNING
            if event.kind is EventKind.TASK_ERROR:
                return TaskStatus.FAILED
            return TaskStatus.PAUSED if event.is_pause else TaskStatus.COMPLETED
        case EventKind.DEAD_LETTER_REDRIVEN if status is TaskStatus.FAILED:
            return TaskStatus.RUNNING
        case EventKind.BREAKPOINT_ACTION_COMPLETE if status is TaskStatus.PAUSED:
            return TaskStatus.RUNNING
        case _ if status is TaskStatus.PAUSED and is_by_person(event):
            return TaskStatus.RUNNING
    return status


def is_by_person(event: Event) -> bool:
    """Return whether a person has written to the task."""
    return event.message is not None and event.message.sender.is_person and not event.is_redrive
