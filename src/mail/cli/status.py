"""How a task stands, and the exit code that says so."""

from collections.abc import Collection, Iterable
from enum import StrEnum


class Status(StrEnum):
    """Where a task is in its life; `mail.core.task.task.TaskStatus`, without what that imports."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


EXIT_CODES = {Status.FAILED: 3, Status.CANCELLED: 3, Status.PAUSED: 4}
"""Exit codes where a task was not completed, the most important first."""


def exit_code(statuses: Collection[str]) -> int:
    """The exit code that tells of tasks that have not been completed; 0 where there is none."""
    return next((code for status, code in EXIT_CODES.items() if status in statuses), 0)


def status_after(kinds: Iterable[str]) -> Status | None:
    """How the last answer among a task's events has left it, given their kinds; None where there is no answer.

    A pause is an answer behind calls of breakpoint tools (SPEC, section 5).
    """
    status, calls = None, False
    for kind in kinds:
        match kind:
            case "breakpoint_tool_call":
                calls = True
            case "task_error":
                status, calls = Status.FAILED, False
            case "task_complete":
                status, calls = Status.PAUSED if calls else Status.COMPLETED, False
    return status
