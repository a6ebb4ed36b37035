"""Agents: a documented import path for `mail.core.task.swarm`."""

from mail.core.task.swarm import *  # noqa: F403
