"""What the present code is busy with, for whoever writes the log."""

from contextvars import ContextVar

CURRENT_TASK: ContextVar[str] = ContextVar("CURRENT_TASK", default="")
"""The id of the task that is being worked on; empty where there is none. Never read to decide anything."""
