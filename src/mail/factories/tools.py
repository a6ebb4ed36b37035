"""The tools of an agent function, in the format of each API."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.tool_schemas import declared_name, pydantic_model_to_tool, tool_declaration
from mail.core.task.swarm import ToolChoice


@runtime_checkable
class Declared(Protocol):
    """An object with a tool declaration, such as an action."""

    def to_tool_dict(self, style: ToolFormat = "responses") -> dict[str, Any]:
        """Return the declaration in the style of an API."""


ToolLike = Mapping[str, Any] | type[BaseModel] | Declared
"""A declaration in either API's style, a provider's own tool, a pydantic model of the arguments, or an action."""


def make_tools(tools: Iterable[ToolLike], style: ToolFormat) -> list[dict[str, Any]]:
    """Return the tools in the style of an API; the provider's own tools, such as web search, stay unchanged."""
    return [_make_tool(tool, style) for tool in tools]


def _make_tool(tool: ToolLike, style: ToolFormat) -> dict[str, Any]:
    if isinstance(tool, type):
        return pydantic_model_to_tool(tool, style=style)
    if not isinstance(tool, Mapping):
        return tool.to_tool_dict(style)
    if not is_function(tool):
        return dict(tool)
    function = tool.get("function", tool)
    if "name" not in function:
        raise ValueError(f"a tool needs a name: {dict(tool)}")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    made = tool_declaration(function["name"], function.get("description") or "", parameters, style)
    if "strict" in function:
        (made if style == "responses" else made["function"])["strict"] = function["strict"]
    return made


def is_function(tool: Mapping[str, Any]) -> bool:
    """Return whether MAIL runs this tool, and not the provider."""
    return bool(tool.get("type", "function") == "function")


def check_tools(where: str, tools: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for two tools with the same name."""
    names = [declared_name(dict(tool)) for tool in tools if is_function(tool)]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError(f"{where}: there are several tools with the name {', '.join(double)}")


def forced_tool(choice: ToolChoice) -> str | None:
    """Return the tool that a choice forces, in either API's format; None if it forces none in particular."""
    if isinstance(choice, str):
        return None
    name: str = choice.get("function", choice)["name"]
    return name


def tool_choice_for(choice: ToolChoice, style: ToolFormat) -> ToolChoice:
    """Return the choice in the style of an API."""
    name = forced_tool(choice)
    if name is None:
        return choice
    if style == "responses":
        return {"type": "function", "name": name}
    return {"type": "function", "function": {"name": name}}
