"""The tools that the agent of the running turn gets from its `ToolSource`."""

from contextvars import ContextVar
from typing import Any

from mail.core.protocol.calls import ToolFormat
from mail.core.task.swarm import ProvidedTools

NOTHING_PROVIDED = ProvidedTools()

PROVIDED_TOOLS: ContextVar[ProvidedTools] = ContextVar("PROVIDED_TOOLS", default=NOTHING_PROVIDED)
"""The provided tools of the running turn."""


def provided_tools(style: ToolFormat = "completions") -> list[dict[str, Any]]:
    """Declare the provided tools that the agent may call in this turn; none outside of turns."""
    return [action.to_tool_dict(style) for action in PROVIDED_TOOLS.get().actions.values()]
