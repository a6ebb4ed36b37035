"""Breaking the glass: an admin reads the task of another caller, who sees it in the task. Pure."""

from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import OpenExtra


def open_task(draft: Draft, by: Principal, reason: str) -> TaskChange:
    """Say in the task who reads it, and why. Nothing else of it changes, whatever its status."""
    text = f"{by} opened the task to read it: {reason}"
    draft.emit(EventKind.TASK_OPENED, text, OpenExtra(by=str(by), reason=reason))
    return draft.seal()
