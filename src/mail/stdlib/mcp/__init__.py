"""Actions that use servers of the Model Context Protocol."""

from mail.stdlib.mcp.actions import *  # noqa: F403
