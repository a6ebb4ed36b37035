"""Declarations of tools for language models, in the style of either API, and models that validate tool arguments.

Programs written for MAIL also import from here what `calls` and `mail_tools` define.
"""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.json_schema import inlined
from mail.core.protocol.mail_tools import (
    AcknowledgeBroadcast,
    AwaitMessage,
    DirectMessage,
    DiscoverSwarms,
    Help,
    IgnoreBroadcast,
    MAILTool,
    ReadMore,
    RemindMe,
    SendBroadcast,
    SendInterrupt,
    SendInterswarmBroadcast,
    SendRequest,
    SendResponse,
    TaskComplete,
    read_call,
    write_message,
)
from mail.core.protocol.message import MAILMessage

__all__ = [
    "AgentToolCall",
    "ToolFormat",
    "convert_call_to_mail_message",
    "create_acknowledge_broadcast_tool",
    "create_await_message_tool",
    "create_broadcast_tool",
    "create_help_tool",
    "create_ignore_broadcast_tool",
    "create_interrupt_tool",
    "create_interswarm_broadcast_tool",
    "create_mail_tools",
    "create_read_more_tool",
    "create_remind_me_tool",
    "create_request_tool",
    "create_response_tool",
    "create_supervisor_tools",
    "create_swarm_discovery_tool",
    "create_task_complete_tool",
    "declared_name",
    "pydantic_model_to_tool",
    "tool_declaration",
]


def pydantic_model_to_tool(
    model_cls: type[BaseModel],
    name: str | None = None,
    description: str | None = None,
    style: ToolFormat = "completions",
) -> dict[str, Any]:
    """Declare a tool whose arguments are the fields of a pydantic model.

    The name defaults to the class's name and the description to its docstring.
    """
    schema = inlined(model_cls.model_json_schema())
    schema.pop("title", None)
    described = schema.pop("description", "")
    for prop in schema.get("properties", {}).values():
        prop.pop("title", None)
    return tool_declaration(name or model_cls.__name__, description or described, schema, style)


def tool_declaration(
    name: str, description: str, parameters: dict[str, Any], style: ToolFormat
) -> dict[str, Any]:
    """Declare a tool in the style of an API."""
    function = {"name": name, "description": description, "parameters": inlined(parameters)}
    if style == "responses":
        return {"type": "function", **function, "strict": False}
    if style == "completions":
        return {"type": "function", "function": function}
    raise ValueError(f"style must be 'completions' or 'responses', not {style!r}")


def _declare(tool: type[MAILTool], style: ToolFormat) -> dict[str, Any]:
    return pydantic_model_to_tool(tool, name=tool.tool_name, style=style)


def _declare_message(
    tool: type[DirectMessage], targets: list[str], enable_interswarm: bool, style: ToolFormat
) -> dict[str, Any]:
    declaration = _declare(tool, style)
    parameters = declaration["parameters"] if style == "responses" else declaration["function"]["parameters"]
    target = parameters["properties"]["target"]
    if enable_interswarm:
        target["description"] += (
            f" Here: {', '.join(targets) or 'nobody'}. An agent of another swarm is written as agent@swarm."
        )
    elif targets:
        target["enum"] = list(targets)
    return declaration


def create_request_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_request` to `targets`, and to `agent@swarm` if interswarm is enabled."""
    return _declare_message(SendRequest, targets, enable_interswarm, style)


def create_response_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_response`; see `create_request_tool`."""
    return _declare_message(SendResponse, targets, enable_interswarm, style)


def create_interrupt_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_interrupt`; see `create_request_tool`."""
    return _declare_message(SendInterrupt, targets, enable_interswarm, style)


def create_interswarm_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `send_interswarm_broadcast`."""
    return _declare(SendInterswarmBroadcast, style)


def create_swarm_discovery_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `discover_swarms`."""
    return _declare(DiscoverSwarms, style)


def create_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `send_broadcast`."""
    return _declare(SendBroadcast, style)


def create_acknowledge_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `acknowledge_broadcast`."""
    return _declare(AcknowledgeBroadcast, style)


def create_ignore_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `ignore_broadcast`."""
    return _declare(IgnoreBroadcast, style)


def create_await_message_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `await_message`."""
    return _declare(AwaitMessage, style)


def create_help_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `help`."""
    return _declare(Help, style)


def create_read_more_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `read_more`, for agents whose context is kept within a window."""
    return _declare(ReadMore, style)


def create_remind_me_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `remind_me`, for agents that may be reminded later."""
    return _declare(RemindMe, style)


def create_task_complete_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `task_complete`."""
    return _declare(TaskComplete, style)


def declared_name(declaration: dict[str, Any]) -> str:
    """Return the name of a declared tool, in either style."""
    name: str = declaration.get("function", declaration)["name"]
    return name


def _without(declarations: list[dict[str, Any]], exclude_tools: Collection[str]) -> list[dict[str, Any]]:
    return [declaration for declaration in declarations if declared_name(declaration) not in exclude_tools]


def create_mail_tools(
    targets: list[str],
    enable_interswarm: bool = False,
    style: ToolFormat = "completions",
    exclude_tools: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Declare the tools of every agent: send requests and responses, handle broadcasts, wait, get help."""
    return _without(
        [
            create_request_tool(targets, enable_interswarm, style),
            create_response_tool(targets, enable_interswarm, style),
            create_acknowledge_broadcast_tool(style),
            create_ignore_broadcast_tool(style),
            create_await_message_tool(style),
            create_help_tool(style),
        ],
        exclude_tools,
    )


def create_supervisor_tools(
    targets: list[str],
    can_complete_tasks: bool = True,
    enable_interswarm: bool = False,
    style: ToolFormat = "completions",
    _debug_include_intraswarm: bool = True,
    exclude_tools: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Declare the additional tools of supervisors: interrupt, broadcast, reach other swarms, complete the task."""
    declarations = []
    if _debug_include_intraswarm:
        declarations += [
            create_interrupt_tool(targets, enable_interswarm, style),
            create_broadcast_tool(style),
        ]
    if enable_interswarm:
        declarations += [create_interswarm_broadcast_tool(style), create_swarm_discovery_tool(style)]
    if can_complete_tasks:
        declarations.append(create_task_complete_tool(style))
    return _without(declarations, exclude_tools)


def convert_call_to_mail_message(
    call: AgentToolCall,
    sender: str,
    task_id: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    request_id: str | None = None,
) -> MAILMessage:
    """Return the message that a tool call of the agent `sender` sends.

    `request_id` is the id of the request that a response answers; without one the message gets a new id.
    Raises ToolCallFault for a tool that sends no message, or for invalid arguments.
    """
    return write_message(read_call(call), sender, task_id, clock, clock.now().isoformat(), request_id)
