"""Agents that call actions. Their tools are validated early, so that no provider rejects them during a task."""

import re
from collections.abc import Sequence
from typing import Any

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.factories.base import LiteLLMAgentFunction, MAILAgentFunction, deprecated_factory
from mail.factories.tools import ToolLike, is_function, make_tools

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Tool names that every provider accepts."""


class ActionAgentFunction(MAILAgentFunction):
    """An agent function with actions. Creating it raises ValueError for an invalid one."""

    def _make_tools(self, tools: Sequence[ToolLike]) -> list[dict[str, Any]]:
        for tool in make_tools(tools, "responses"):
            if is_function(tool):
                _check_action(self.name, tool)
        return super()._make_tools(tools)


class LiteLLMActionAgentFunction(ActionAgentFunction, LiteLLMAgentFunction):
    """An agent with actions, run by a language model."""


action_agent_factory = deprecated_factory("action_agent_factory", LiteLLMActionAgentFunction)


def _check_action(agent: str, tool: dict[str, Any]) -> None:
    where = f"agent {agent!r}, action {tool['name']!r}"
    if not _NAME.fullmatch(tool["name"]):
        raise ValueError(f"{where}: a tool's name has 1 to 64 characters: ASCII letters, digits, '_' and '-'")
    if tool["name"] in MAIL_TOOLS:
        raise ValueError(f"{where}: this is the name of a MAIL tool")
    parameters = tool["parameters"]
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise ValueError(f"{where}: its parameters must be a JSON Schema of type 'object'")
    unknown = [
        name for name in parameters.get("required") or () if name not in parameters.get("properties", {})
    ]
    if unknown:
        raise ValueError(f"{where}: required parameters without a schema: {', '.join(unknown)}")
