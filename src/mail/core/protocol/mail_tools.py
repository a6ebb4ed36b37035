"""The thirteen MAIL tools.

Each is a pydantic model: its docstring is the description that the language model reads, its fields are the
arguments. The same model declares the tool and validates its calls.
"""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from mail.core.protocol.address import EVERYONE, create_agent_address
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.clock import Clock
from mail.core.protocol.error_text import explain
from mail.core.protocol.message import (
    MAILBroadcast,
    MAILInterrupt,
    MAILMessage,
    MAILPayload,
    MAILRequest,
    MAILResponse,
    MessageType,
)
from mail.errors import Subject, ToolCallFault, UnknownTool


class MAILTool(BaseModel):
    """Base class of the MAIL tools: the arguments of a call."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)
    tool_name: ClassVar[str]

    @classmethod
    def arguments(cls) -> dict[str, FieldInfo]:
        """Return the arguments by the names that calls give them: `in`, too, which no field of a class can have."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}


class DirectMessage(MAILTool):
    target: str = Field(min_length=1, description="The name of the agent to write to.")
    subject: str = Field(description="The subject of the message.")
    body: str = Field(description="The text of the message.")


class SendRequest(DirectMessage):
    """Ask another agent to do something. Its answer comes later, as a response; await it with await_message."""

    tool_name = "send_request"


class SendResponse(DirectMessage):
    """Answer a request that another agent has sent you."""

    tool_name = "send_response"


class SendInterrupt(DirectMessage):
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


MAX_NOTE = 10_000
"""Characters of a note that comes back later."""


class RemindMe(MAILTool):
    """Have a note come back to you later, as a message; you can do other work meanwhile, or end your turn.

    Give `note`, and `in` or `at`. Or give `cancel` alone; or nothing, to list your reminders.
    """

    tool_name = "remind_me"
    note: str = Field(default="", max_length=MAX_NOTE, description="What you want to read then.")
    delay: float | str | None = Field(
        default=None,
        alias="in",
        description="In how long: seconds, or text such as `90s`, `15m`, `2h` or `3d`.",
    )
    at: str | None = Field(
        default=None, description="Or when: ISO 8601 with its zone, such as `2026-12-01T08:00:00Z`."
    )
    cancel: str | None = Field(default=None, description="The id of a reminder to cancel.")


class Help(MAILTool):
    """Read how to work with MAIL: it is sent to you as a message."""

    tool_name = "help"
    get_summary: bool = Field(default=True, description="Include a summary of MAIL.")
    get_identity: bool = Field(default=False, description="Include who you are and whom you can reach.")
    get_tool_help: list[str] | None = Field(default=None, description="Names of the tools to explain.")
    get_full_protocol: bool = Field(default=False, description="Include the whole protocol specification.")


class ReadMore(MAILTool):
    """Read on in a long text of which you see only the beginning."""

    tool_name = "read_more"
    ref: str = Field(description="The reference of the text, as it stands at the end of what you see.")
    offset: int = Field(default=0, ge=0, description="The number of the first character to read.")


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
        RemindMe,
        Help,
        ReadMore,
        TaskComplete,
    )
}
"""The MAIL tools by name; no action may have one of these names."""


UNREADABLE_CALL = "unreadable_call"
"""The tool name with which an agent function reports a call that it can't parse; its arguments are the `tool` and the
`problem`, which the agent is notified of."""


def read_call(call: AgentToolCall) -> MAILTool:
    """Return the validated arguments of a call of a MAIL tool.

    Raises ToolCallFault for invalid arguments, with the name of each, and UnknownTool.
    """
    name, args = call.tool_name, call.tool_args
    tool = MAIL_TOOLS.get(name)
    if tool is None:
        if name == UNREADABLE_CALL and "problem" in args:
            raise ToolCallFault(f"{args.get('tool')}: {args['problem']}")
        raise UnknownTool(f"there is no tool {name!r}")
    try:
        checked: MAILTool = tool.__pydantic_validator__.validate_python(args)
    except ValidationError as error:
        raise ToolCallFault(f"{name}: {explain(error)}") from error
    return checked


def write_message(
    tool: MAILTool,
    sender: str,
    task_id: str,
    clock: Clock,
    timestamp: str,
    request_id: str | None = None,
    routing_info: dict[str, Any] | None = None,
) -> MAILMessage:
    """Return the message that a tool sends; see `mail.core.protocol.tool_schemas.convert_call_to_mail_message`."""
    author = create_agent_address(sender)
    kind: MessageType
    payload: MAILPayload
    match tool:
        case SendRequest() | SendResponse():
            kind, shape = (
                ("request", MAILRequest) if isinstance(tool, SendRequest) else ("response", MAILResponse)
            )
            payload = shape.trusted(
                task_id=task_id,
                sender=author,
                subject=tool.subject,
                body=tool.body,
                request_id=request_id or clock.new_id(),
                recipient=create_agent_address(tool.target),
            )
        case SendInterrupt():
            kind = "interrupt"
            payload = MAILInterrupt(
                task_id=task_id,
                sender=author,
                subject=tool.subject,
                body=tool.body,
                interrupt_id=clock.new_id(),
                recipients=(create_agent_address(tool.target),),
            )
        case SendInterswarmBroadcast():
            kind = "broadcast"
            payload = MAILBroadcast(
                task_id=task_id,
                sender=author,
                subject=tool.subject,
                body=tool.body,
                broadcast_id=clock.new_id(),
                recipients=(create_agent_address(EVERYONE),),
                recipient_swarms=tuple(tool.target_swarms) or None,
            )
        case SendBroadcast() | TaskComplete():
            kind, subject, body = (
                ("broadcast", tool.subject, tool.body)
                if isinstance(tool, SendBroadcast)
                else ("broadcast_complete", Subject.TASK_COMPLETE.value, tool.finish_message)
            )
            payload = MAILBroadcast.trusted(
                task_id=task_id,
                sender=author,
                subject=subject,
                body=body,
                broadcast_id=clock.new_id(),
                recipients=(create_agent_address(EVERYONE),),
            )
        case _:
            raise ToolCallFault(f"{tool.tool_name} sends no message")
    if routing_info is not None:
        payload = payload.routed(routing_info)
    return MAILMessage.trusted(message_id=clock.new_id(), timestamp=timestamp, msg_type=kind, message=payload)
