"""The tools of the swarm: one for each entrypoint, and `ask`, `reply`, `task` and `cancel` for all of them."""

import inspect
from functools import cache
from typing import Annotated, Any

from mcp_types import Tool, ToolAnnotations
from pydantic import Field, StringConstraints
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from mail.core.decisions.cancel import MAX_REASON
from mail.core.protocol.message import TaskId
from mail.core.protocol.values import Value
from mail.core.task.files import MAX_FILES
from mail.core.task.swarm import SwarmCore
from mail.http.routes.message import CallApproval
from mail.mcp.tools import valid_name

WAIT_SECONDS = 50.0
"""Seconds for which a call waits for the answer, as many clients give up after 60."""

Reason = Annotated[str, StringConstraints(max_length=MAX_REASON)]


class Ask(Value):
    """Send a message to the swarm's agents, and get the `task_id` at once: `task` has the answer later."""

    message: str = Field(
        min_length=1, description="What you want of the agents, with all that they need to know."
    )
    task_id: TaskId | None = Field(
        default=None,
        description="To continue an earlier task, whose agents remember it. Default: a new task.",
    )
    files: list[dict[str, Any]] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description="Content blocks of MCP that go with the message: `image`, `audio` or `resource` with the bytes in "
        "base64, or a `resource_link` from an answer.",
    )


class AskAny(Ask):
    __doc__ = Ask.__doc__

    entrypoint: str | None = Field(default=None, description="The agent to write to.")


class Answer(Value):
    """Answer what a task asks while its status is `paused`, and wait for what becomes of it.

    Ask the user first: questions and approvals are for a person.
    """

    task_id: TaskId
    text: str = Field(default="", description="The answer to the only question, in words.")
    approvals: tuple[CallApproval, ...] = Field(
        default=(), description="The user's decisions on the calls that need approval."
    )
    results: tuple[dict[str, Any], ...] = Field(
        default=(), description='The answers to several questions: `{"call_id": …, "content": …}`.'
    )


class Look(Value):
    """Get the status of a task and its answer, once there is one."""

    task_id: TaskId
    wait_seconds: float = Field(
        default=WAIT_SECONDS, ge=0, le=WAIT_SECONDS, description="How long to wait while agents work."
    )


class Cancel(Value):
    """Cancel a task that runs or waits. It keeps its messages, and another one resumes it."""

    task_id: TaskId
    reason: Reason = ""


COMMON: dict[str, type[Value]] = {"ask": AskAny, "reply": Answer, "task": Look, "cancel": Cancel}
"""The arguments of the tools that every swarm has; a docstring is the description of a tool."""


class _Plain(GenerateJsonSchema):
    """Writes schemas without the titles that pydantic makes of names, as clients pay for each word."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        made.pop("description", None)
        for model in (made, *made.get("$defs", {}).values()):
            model.pop("title", None)
        return made


def entrypoint_tools(swarm: SwarmCore) -> dict[str, str]:
    """Return the entrypoints by the names of their tools."""
    tools: dict[str, str] = {}
    for name in swarm.entrypoints:
        tool = valid_name(name)
        tools[valid_name(name, is_marked=True) if tool in COMMON or tool in tools else tool] = name
    return tools


def list_tools(swarm: SwarmCore) -> list[Tool]:
    """Return the tools of a swarm."""
    tools = [
        _tool(
            tool, Ask, swarm.describe_entrypoint(name), title=swarm.name if name == swarm.entrypoint else name
        )
        for tool, name in entrypoint_tools(swarm).items()
    ]
    return tools + [_tool(name, arguments) for name, arguments in COMMON.items()]


@cache
def _schema(arguments: type[Value]) -> dict[str, Any]:
    return arguments.model_json_schema(schema_generator=_Plain)


def _tool(name: str, arguments: type[Value], description: str = "", title: str | None = None) -> Tool:
    is_read_only = arguments is Look
    return Tool(
        name=name,
        title=title,
        description=description or inspect.getdoc(arguments),
        input_schema=_schema(arguments),
        annotations=ToolAnnotations(
            read_only_hint=is_read_only, destructive_hint=not is_read_only, open_world_hint=True
        ),
    )
