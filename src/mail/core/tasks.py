"""Tasks: a documented import path for `mail.core.task`."""

from mail.core.task.task import *  # noqa: F403
from mail.core.task.turn_state import *  # noqa: F403
