"""The engine's interface to telemetry: observers of what was committed, and a tracer of what runs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from mail.core.engine.leased_turn import TurnReport
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.change import TaskChange, Turn
from mail.core.task.events import EventKind
from mail.core.task.guards import Verdict
from mail.core.task.leases import Claim
from mail.core.task.task import TaskStatus
from mail.core.turns.activity import ModelCall, TurnActivity
from mail.core.turns.context import CURRENT_TRACE
from mail.core.turns.usage import UsageMeter


class Observer:
    """Base class of observers. It ignores everything; overrides must not raise."""

    def task_changed(self, change: TaskChange) -> None:
        """Observe a commit that began a task, ended a generation of it or added dead letters."""

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        """Observe the end of a leased turn, which took so many seconds."""

    def turn_failed(self, turn: Claim, report: TurnReport, error: BaseException) -> None:
        """Observe a leased turn that could not be stored; its mail still waits, but its models were paid."""

    def turn_taken_over(self, mailbox: str) -> None:
        """Observe that the worker of a mailbox's turn is gone, or hangs; other workers run the turn again."""

    def woken_for_nothing(self, mailbox: str) -> None:
        """Observe a wake-up of a mailbox that was leased or empty."""

    def spans_dropped(self, count: int) -> None:
        """Observe that so many spans of traces are lost, as they could not be sent. May be called in any thread."""


Observers = Sequence[Observer]


def is_beginning(change: TaskChange) -> bool:
    return change.expected_version == 0


def is_remarkable(change: TaskChange) -> bool:
    """Return whether observers get the change."""
    return (
        is_beginning(change)
        or change.ended is not None
        or bool(change.dead_letters)
        or ended_as(change) is not None
    )


def ended_as(change: TaskChange) -> TaskStatus | None:
    """Return how a generation ended with this change; None if none did.

    The task itself may be running again, for a message that came meanwhile. The generation of a paused task has
    already ended, and ends a second time when the task is cancelled.
    """
    if any(event.kind is EventKind.TASK_CANCELLED for event in change.events):
        return TaskStatus.CANCELLED
    if change.ended is None:
        return None
    if change.task.status is not TaskStatus.RUNNING:
        return change.task.status
    failed = any(event.kind is EventKind.TASK_ERROR for event in change.events)
    return TaskStatus.FAILED if failed else TaskStatus.COMPLETED


class Span:
    """Base class of operations in a trace. It records nothing."""

    def note(self, name: str, value: str | int | float) -> None:
        """Add an attribute to the span."""

    def note_result(self, text: str) -> None:
        """Note the result of an action, which is recorded only if contents are."""


_NO_SPAN = nullcontext(Span())

ActiveSpan = AbstractContextManager[Span]
"""Covers an operation; an exception that leaves it marks the span as failed."""


class Tracer:
    """Base class of tracers. It records nothing, and passes on the trace that a request came with."""

    def request(self, method: str, traceparent: str) -> ActiveSpan:
        """Trace an HTTP request; `traceparent` is its caller's."""
        return _NO_SPAN

    def turn(self, turn: Claim) -> ActiveSpan:
        """Trace a turn of a mailbox, from its lease to its commit."""
        return _NO_SPAN

    def agent_call(self, turn: Turn, meter: UsageMeter, activity: TurnActivity) -> ActiveSpan:
        """Trace the call of a turn's agent; its models report to the meter, and their calls to the activity."""
        return _NO_SPAN

    def model_call(self, call: ModelCall) -> AbstractContextManager[object]:
        """Trace a call of a model, with all of its attempts."""
        return _NO_SPAN

    def action(self, call: AgentToolCall) -> ActiveSpan:
        return _NO_SPAN

    def verdict(self, verdict: Verdict) -> None:
        """Record what a guard has decided, in the span of its turn."""

    def delivery(self, turn: Turn, swarm: str) -> ActiveSpan:
        """Trace the delivery of a message to another swarm."""
        return _NO_SPAN

    def position(self) -> str:
        """Return the current `traceparent`; empty outside of a trace."""
        return CURRENT_TRACE.get()

    def beginning(self) -> str:
        """Return the `traceparent` of a new task; it starts a trace if there is none."""
        return self.position()

    def joins(self, traceparent: str) -> None:
        """Link the current operation to the trace of its task."""


NO_TRACER = Tracer()
