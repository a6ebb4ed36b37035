"""Actions: a documented import path for `mail.core.task.swarm`."""

from mail.core.task.swarm import ActionCore, ActionFunction

__all__ = ["ActionCore", "ActionFunction"]
