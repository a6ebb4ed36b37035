"""The tools of MCP servers: a documented import path for `mail.core.turns.tools`."""

from mail.core.turns.tools import provided_tools

__all__ = ["provided_tools"]
