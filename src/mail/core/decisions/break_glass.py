"""Breaking the glass: an admin reads the task of another caller, who sees it in the task. Pure."""

from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import OpenExtra
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task


def open_task(task: Task, swarm: SwarmCore, by: Principal, reason: str, clock: Clock) -> TaskChange:
    """Say in the task who reads it, and why. Nothing else of it changes, whatever its status."""
    draft = Draft(task, swarm, clock)
    text = f"{by} opened the task to read it: {reason}"
    draft.emit(EventKind.TASK_OPENED, text, OpenExtra(by=str(by), reason=reason))
    return draft.seal()
