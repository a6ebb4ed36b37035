"""Tool calls and tool declarations: a documented import path for `mail.core.protocol`."""

from mail.core.protocol.tool_schemas import *  # noqa: F403
from mail.core.task.client_tools import *  # noqa: F403
