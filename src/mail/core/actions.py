"""Actions: a documented import path for `mail.core.task.actions`."""

from mail.core.task.actions import *  # noqa: F403
