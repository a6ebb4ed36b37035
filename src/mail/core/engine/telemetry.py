"""What an engine tells those who measure it, or write its log."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from mail.core.engine.turn_work import TurnReport
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.change import Claim, TaskChange, Turn
from mail.core.task.context import CURRENT_TRACE
from mail.core.task.events import EventKind
from mail.core.task.task import TaskStatus
from mail.core.task.usage import UsageMeter


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
    return ended_as(change) is not None or is_beginning(change) or bool(change.dead_letters)


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


class Span(Protocol):
    """Something that is being done."""

    def note(self, name: str, value: str | int | float) -> None:
        """Say something of it."""
        ...


class _NoSpan:
    def note(self, name: str, value: str | int | float) -> None:
        """Nobody listens."""


_NO_SPAN: AbstractContextManager[Span] = nullcontext(_NoSpan())

Doing = AbstractContextManager[Span]
"""What is done inside belongs to the span; what it raises has made it fail."""


class Tracer:
    """Is told what is done. This one doesn't listen: it costs next to nothing, and passes on what others gave."""

    def request(self, method: str, traceparent: str) -> Doing:
        """An HTTP request, whose caller may trace it."""
        return _NO_SPAN

    def turn(self, turn: Claim) -> Doing:
        """A turn of a mailbox, from when it is leased to its commit."""
        return _NO_SPAN

    def agent_call(self, turn: Turn, meter: UsageMeter) -> Doing:
        """The agent of a turn deciding, with its models, which report to the meter."""
        return _NO_SPAN

    def action(self, call: AgentToolCall) -> Doing:
        """An action being run."""
        return _NO_SPAN

    def delivery(self, turn: Turn, swarm: str) -> Doing:
        """Mail being handed over to another swarm."""
        return _NO_SPAN

    def position(self) -> str:
        """The `traceparent` of what is being done; empty where that belongs to no trace."""
        return CURRENT_TRACE.get()

    def beginning(self) -> str:
        """Likewise, for a task that begins: it gets a trace of its own where it would have none."""
        return self.position()

    def joins(self, traceparent: str) -> None:
        """What is being done concerns a task that is traced there."""


NO_TRACER = Tracer()
