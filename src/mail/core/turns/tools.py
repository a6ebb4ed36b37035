"""The tools of the running turn, besides those of its agent: the caller's, and those of a `ToolSource`."""

from collections.abc import Sequence
from typing import Any

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.mail_tools import TaskComplete
from mail.core.protocol.output_schema import answer_tool
from mail.core.protocol.tool_schemas import declared_name, tool_declaration
from mail.core.turns.context import TURN


def provided_tools(style: ToolFormat = "completions") -> list[dict[str, Any]]:
    """Declare the provided tools that the agent may call in this turn, by name; none outside of turns.

    Their order is the same in every turn, for the caches of providers.
    """
    return [action.to_tool_dict(style) for _, action in sorted(TURN.get().provided.actions.items())]


def caller_tools(style: ToolFormat = "completions") -> list[dict[str, Any]]:
    """Declare the caller's tools that the agent may call in this turn; none outside of turns.

    A call of one pauses the task until the caller returns the result, which then stands in the agent's history.
    """
    declarations = []
    for tool in TURN.get().tools.tools:
        declaration = tool_declaration(tool.name, tool.description, tool.parameters, style)
        if tool.strict is not None:
            (declaration if style == "responses" else declaration["function"])["strict"] = tool.strict
        declarations.append(declaration)
    return declarations


def offered_tools(own: Sequence[dict[str, Any]], style: ToolFormat) -> list[dict[str, Any]]:
    """Return the tools of this turn: an agent's `own`, those of MCP servers, and the client tools of the task.

    If the client requires a call of one of its tools, return only these.
    """
    from_client = caller_tools(style)
    if TURN.get().tools.is_required:
        return from_client
    return [*task_tools(own, style), *provided_tools(style), *from_client]


def task_tools(tools: Sequence[dict[str, Any]], style: ToolFormat = "completions") -> list[dict[str, Any]]:
    """Return an agent's tools as the task needs them: with an output schema, it is an argument of `task_complete`."""
    schema = TURN.get().tools.output_schema
    if schema is None:
        return [*tools]
    name = TaskComplete.tool_name
    complete = tool_declaration(name, _WITH_OUTPUT, answer_tool(schema), style)
    return [complete if _names(tool, name) else tool for tool in tools]


def _names(tool: dict[str, Any], name: str) -> bool:
    return tool.get("type", "function") == "function" and declared_name(tool) == name


_WITH_OUTPUT = "Finish the task: the output goes to the user as the final answer, and all agents stop."
