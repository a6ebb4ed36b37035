"""Declarations of tools for language models, in the style of either API, and models that validate tool arguments.

Programs written for MAIL also import from here what `calls` and `mail_tools` define.
"""

from collections.abc import Collection
from typing import Any, Protocol

from pydantic import BaseModel

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.json_schema import inlined
from mail.core.protocol.mail_tools import (
    AcknowledgeBroadcast,
    AwaitMessage,
    DiscoverSwarms,
    Help,
    IgnoreBroadcast,
    MAILTool,
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


def declare(tool: type[MAILTool], style: ToolFormat) -> dict[str, Any]:
    """Declare a MAIL tool."""
    return pydantic_model_to_tool(tool, name=tool.tool_name, style=style)


class _Declares(Protocol):
    def __call__(self, style: ToolFormat = "completions") -> dict[str, Any]:
        """Declare a tool."""


class _DeclaresMessage(Protocol):
    def __call__(
        self, targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
    ) -> dict[str, Any]:
        """Declare a tool that sends a message to `targets`, and to `agent@swarm` if interswarm is enabled."""


def _declares(tool: type[MAILTool]) -> _Declares:
    """Return the function that declares a tool."""

    def create(style: ToolFormat = "completions") -> dict[str, Any]:
        return declare(tool, style)

    create.__doc__ = f"Declare `{tool.tool_name}`."
    return create


def _declares_message(tool: type[MAILTool]) -> _DeclaresMessage:
    """Return the function that declares a tool which sends a message to one agent."""

    def create(
        targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
    ) -> dict[str, Any]:
        declaration = declare(tool, style)
        target = declaration.get("function", declaration)["parameters"]["properties"]["target"]
        if enable_interswarm:
            target["description"] += (
                f" Here: {', '.join(targets) or 'nobody'}. An agent of another swarm is written as agent@swarm."
            )
        elif targets:
            target["enum"] = list(targets)
        return declaration

    create.__doc__ = (
        f"Declare `{tool.tool_name}` to `targets`, and to `agent@swarm` if interswarm is enabled."
    )
    return create


create_request_tool = _declares_message(SendRequest)
create_response_tool = _declares_message(SendResponse)
create_interrupt_tool = _declares_message(SendInterrupt)
create_interswarm_broadcast_tool = _declares(SendInterswarmBroadcast)
create_swarm_discovery_tool = _declares(DiscoverSwarms)
create_broadcast_tool = _declares(SendBroadcast)
create_acknowledge_broadcast_tool = _declares(AcknowledgeBroadcast)
create_ignore_broadcast_tool = _declares(IgnoreBroadcast)
create_await_message_tool = _declares(AwaitMessage)
create_help_tool = _declares(Help)
create_task_complete_tool = _declares(TaskComplete)


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
            *(declare(tool, style) for tool in (AcknowledgeBroadcast, IgnoreBroadcast, AwaitMessage, Help)),
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
