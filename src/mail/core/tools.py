"""The tools by which an agent acts, in both styles of tool declaration, and the calls it makes of them.

Each MAIL tool is one pydantic model: its docstring is the description that the language model reads,
its fields are the arguments. The same model declares the tool and checks the call.
"""

from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mail.core.address import EVERYONE, create_agent_address
from mail.core.message import (
    MAILBroadcast,
    MAILInterrupt,
    MAILMessage,
    MAILPayload,
    MAILRequest,
    MAILResponse,
    MessageType,
)
from mail.core.record import Record
from mail.core.stamp import SYSTEM_STAMP, Stamp
from mail.errors import Subject, ToolCallFault

ToolFormat = Literal["completions", "responses"]
"""Which API's shapes an agent speaks: OpenAI Chat Completions or OpenAI Responses."""

TEXT_OUTPUT = "text_output"
"""The name under which an agent function reports that the model wrote text and called no tool."""

BUILTIN_TOOLS = frozenset({"web_search_call", "code_interpreter_call"})
"""Tools that the provider has already run; the engine only reports them."""


class AgentToolCall(Record):
    """One tool call of one turn.

    `completion` is the assistant message that made the call (Chat Completions), `responses` the output
    items that did (Responses); one of them must be there, as it is what goes into the agent's history.
    All calls of one turn usually share it.
    """

    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str
    completion: dict[str, Any] = Field(default_factory=dict)
    responses: list[dict[str, Any]] = Field(default_factory=list)
    reasoning: list[str] | None = None
    preamble: str | None = None

    @model_validator(mode="after")
    def _has_its_origin(self) -> Self:
        if not self.completion and not self.responses:
            raise ValueError("a tool call needs the completion or the responses it came from")
        return self

    @property
    def turns(self) -> list[dict[str, Any]]:
        """What the model said, in the form in which its history is kept."""
        return [self.completion] if self.completion else self.responses

    @property
    def tool_format(self) -> ToolFormat:
        """The API in whose shapes the call was made."""
        return "completions" if self.completion else "responses"

    def create_response_msg(self, content: str) -> dict[str, str]:
        """The history entry that gives this call its result, in the call's own format."""
        return tool_result(self.tool_format, self.tool_call_id, content)


def tool_result(tool_format: ToolFormat, call_id: str, content: str) -> dict[str, str]:
    """The history entry that gives a tool call its result."""
    if tool_format == "completions":
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    return {"type": "function_call_output", "call_id": call_id, "output": content}


class MAILTool(BaseModel):
    """A MAIL tool: its arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool_name: ClassVar[str]


class _Letter(MAILTool):
    target: str = Field(min_length=1, description="The name of the agent to write to.")
    subject: str = Field(description="The subject of the message.")
    body: str = Field(description="The text of the message.")


class SendRequest(_Letter):
    """Ask another agent to do something. Its answer comes later, as a response; await it with await_message."""

    tool_name = "send_request"


class SendResponse(_Letter):
    """Answer a request that another agent has sent you."""

    tool_name = "send_response"


class SendInterrupt(_Letter):
    """Send an agent an urgent instruction; it reads it before its other mail."""

    tool_name = "send_interrupt"


class SendBroadcast(MAILTool):
    """Send a message to every other agent of this swarm."""

    tool_name = "send_broadcast"
    subject: str = Field(description="The subject of the message.")
    body: str = Field(description="The text of the message.")
    targets: list[str] = Field(
        default_factory=list, description="Reserved: a broadcast always goes to all agents of the swarm."
    )


class SendInterswarmBroadcast(MAILTool):
    """Send a message to other swarms."""

    tool_name = "send_interswarm_broadcast"
    subject: str = Field(description="The subject of the message.")
    body: str = Field(description="The text of the message.")
    target_swarms: list[str] = Field(
        default_factory=list, description="The swarms to write to; none means every known swarm."
    )


class DiscoverSwarms(MAILTool):
    """Look for more swarms at the given addresses, and remember those that answer."""

    tool_name = "discover_swarms"
    discovery_urls: list[str] = Field(min_length=1, description="URLs of MAIL servers to ask.")


class AcknowledgeBroadcast(MAILTool):
    """Take note of the broadcast you have just read, without answering it."""

    tool_name = "acknowledge_broadcast"
    note: str | None = Field(default=None, description="A note to yourself; nobody else sees it.")


class IgnoreBroadcast(MAILTool):
    """Drop the broadcast you have just read: it is neither answered nor remembered."""

    tool_name = "ignore_broadcast"
    reason: str | None = Field(default=None, description="Why; nobody else sees it.")


class AwaitMessage(MAILTool):
    """End your turn and wait for mail. Use it when an answer you asked for is still to come."""

    tool_name = "await_message"
    reason: str | None = Field(default=None, description="What you are waiting for.")


class Help(MAILTool):
    """Read how to work with MAIL: it is sent to you as a message."""

    tool_name = "help"
    get_summary: bool = Field(default=True, description="Include a summary of MAIL.")
    get_identity: bool = Field(default=False, description="Include who you are and whom you can reach.")
    get_tool_help: list[str] | None = Field(default=None, description="Names of the tools to explain.")
    get_full_protocol: bool = Field(default=False, description="Include the whole protocol specification.")


class TaskComplete(MAILTool):
    """Finish the task: the message goes to the user as the final answer, and all agents stop."""

    tool_name = "task_complete"
    finish_message: str = Field(description="The complete answer to the user's request.")


MAIL_TOOLS: dict[str, type[MAILTool]] = {
    tool.tool_name: tool
    for tool in (
        SendRequest,
        SendResponse,
        SendInterrupt,
        SendBroadcast,
        SendInterswarmBroadcast,
        DiscoverSwarms,
        AcknowledgeBroadcast,
        IgnoreBroadcast,
        AwaitMessage,
        Help,
        TaskComplete,
    )
}
"""Every MAIL tool by its name; no action may take one of these names."""


def read_call(call: AgentToolCall) -> MAILTool:
    """The checked arguments of a call of a MAIL tool.

    Raises ToolCallFault, with every wrong argument named, for bad arguments or a tool that isn't MAIL's.
    """
    tool = MAIL_TOOLS.get(call.tool_name)
    if tool is None:
        raise ToolCallFault(f"there is no tool {call.tool_name!r}")
    try:
        return tool.model_validate(call.tool_args)
    except ValidationError as error:
        raise ToolCallFault(f"{call.tool_name}: {explain(error)}") from error


def explain(error: ValidationError) -> str:
    """One line for people and agents: each wrong field with what is wrong about it."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


def pydantic_model_to_tool(
    model_cls: type[BaseModel],
    name: str | None = None,
    description: str | None = None,
    style: ToolFormat = "completions",
) -> dict[str, Any]:
    """Declare a tool whose arguments are the fields of a pydantic model.

    The name defaults to the class's name and the description to its docstring.
    """
    schema = model_cls.model_json_schema()
    schema.pop("title", None)
    described = schema.pop("description", "")
    for prop in schema.get("properties", {}).values():
        prop.pop("title", None)
    return tool_declaration(name or model_cls.__name__, description or described, schema, style)


def tool_declaration(
    name: str, description: str, parameters: dict[str, Any], style: ToolFormat
) -> dict[str, Any]:
    """Put a tool's parts into the shape that the API of that style takes."""
    function = {"name": name, "description": description, "parameters": parameters}
    if style == "responses":
        return {"type": "function", **function, "strict": False}
    if style == "completions":
        return {"type": "function", "function": function}
    raise ValueError(f"style must be 'completions' or 'responses', not {style!r}")


def _declare(tool: type[MAILTool], style: ToolFormat) -> dict[str, Any]:
    return pydantic_model_to_tool(tool, name=tool.tool_name, style=style)


def _declare_letter(
    tool: type[_Letter], targets: list[str], enable_interswarm: bool, style: ToolFormat
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
    """Declare `send_request` to `targets`, or to `agent@swarm` as well where interswarm is enabled."""
    return _declare_letter(SendRequest, targets, enable_interswarm, style)


def create_response_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_response`; see `create_request_tool`."""
    return _declare_letter(SendResponse, targets, enable_interswarm, style)


def create_interrupt_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_interrupt`; see `create_request_tool`."""
    return _declare_letter(SendInterrupt, targets, enable_interswarm, style)


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


def create_task_complete_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `task_complete`."""
    return _declare(TaskComplete, style)


def declared_name(declaration: dict[str, Any]) -> str:
    """The name of a declared tool, whichever the style."""
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
    """Declare what every agent can do: request, respond, take or drop broadcasts, wait, and ask for help."""
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
    """Declare what supervisors can do besides: interrupt, broadcast, reach other swarms, finish the task."""
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
    stamp: Stamp = SYSTEM_STAMP,
    request_id: str | None = None,
) -> MAILMessage:
    """The message that a tool call of the agent `sender` writes.

    `request_id` is that of the request which a response answers; without one the message gets its own.
    Raises ToolCallFault for a tool that writes no message, or for bad arguments.
    """
    return write_message(read_call(call), sender, task_id, stamp, stamp.now().isoformat(), request_id)


def write_message(
    tool: MAILTool,
    sender: str,
    task_id: str,
    stamp: Stamp,
    timestamp: str,
    request_id: str | None = None,
) -> MAILMessage:
    """`convert_call_to_mail_message` for arguments that have been read already."""
    common: dict[str, Any] = {"task_id": task_id, "sender": create_agent_address(sender)}
    kind: MessageType
    payload: MAILPayload
    match tool:
        case SendRequest():
            kind = "request"
            payload = MAILRequest(
                **common,
                request_id=request_id or stamp.new_id(),
                recipient=create_agent_address(tool.target),
                subject=tool.subject,
                body=tool.body,
            )
        case SendResponse():
            kind = "response"
            payload = MAILResponse(
                **common,
                request_id=request_id or stamp.new_id(),
                recipient=create_agent_address(tool.target),
                subject=tool.subject,
                body=tool.body,
            )
        case SendInterrupt():
            kind = "interrupt"
            payload = MAILInterrupt(
                **common,
                interrupt_id=stamp.new_id(),
                recipients=(create_agent_address(tool.target),),
                subject=tool.subject,
                body=tool.body,
            )
        case SendBroadcast() | SendInterswarmBroadcast():
            kind = "broadcast"
            payload = MAILBroadcast(
                **common,
                broadcast_id=stamp.new_id(),
                recipients=(create_agent_address(EVERYONE),),
                subject=tool.subject,
                body=tool.body,
                recipient_swarms=tuple(tool.target_swarms) or None
                if isinstance(tool, SendInterswarmBroadcast)
                else None,
            )
        case TaskComplete():
            kind = "broadcast_complete"
            payload = MAILBroadcast(
                **common,
                broadcast_id=stamp.new_id(),
                recipients=(create_agent_address(EVERYONE),),
                subject=Subject.TASK_COMPLETE.value,
                body=tool.finish_message,
            )
        case _:
            raise ToolCallFault(f"{tool.tool_name} writes no message")
    return MAILMessage(id=stamp.new_id(), timestamp=timestamp, msg_type=kind, message=payload)
