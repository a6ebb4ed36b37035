"""Actions: a documented import path for `mail.core.task.swarm` and `mail.api.overrides`."""

from mail.api.overrides import ActionOverrideFunction
from mail.core.task.swarm import ActionCore, ActionFunction

__all__ = ["ActionCore", "ActionFunction", "ActionOverrideFunction"]
