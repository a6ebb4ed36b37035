"""Tool calls of agents and their results, in the format of either API."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mail.core.protocol.values import Value

ToolFormat = Literal["completions", "responses"]
"""The API format that an agent uses: OpenAI Chat Completions or OpenAI Responses."""

TEXT_OUTPUT = "text_output"
"""The tool name with which an agent function reports text without a tool call."""

BUILTIN_TOOLS = frozenset({"web_search_call", "code_interpreter_call"})
"""Tools run by the provider; the engine only reports them."""


class AgentToolCall(Value):
    """One tool call of one turn.

    `completion` is the assistant message with the call (Chat Completions), `responses` the output items with it
    (Responses). One of them is required, for the agent's history; the calls of one turn usually share it.
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
        """The model's reply as history entries."""
        completion = self.completion
        return [completion] if completion else self.responses

    @property
    def tool_format(self) -> ToolFormat:
        """The API format of the call."""
        return "completions" if self.completion else "responses"

    def create_response_msg(self, content: str) -> dict[str, str]:
        """Return the history entry with the result of this call, in the call's format."""
        return tool_result("completions" if self.completion else "responses", self.tool_call_id, content)


def tool_result(tool_format: ToolFormat, call_id: str, content: str) -> dict[str, str]:
    """Return the history entry with the result of a tool call."""
    if tool_format == "completions":
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def is_tool_result(entry: Mapping[str, Any]) -> bool:
    """Return whether a history entry is the result of a tool call."""
    return entry.get("role") == "tool" or entry.get("type") == "function_call_output"


Called = tuple[str, str, Mapping[str, Any]]
"""The id, the tool and the arguments of a call."""


def compose_reply(tool_format: ToolFormat, text: str | None, calls: Iterable[Called]) -> dict[str, Any]:
    """Return the fields of `AgentToolCall` for the model's reply: one with this text and these calls."""
    if tool_format == "completions":
        functions = [
            {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
            for call_id, tool, args in calls
        ]
        return {"completion": {"role": "assistant", "content": text, "tool_calls": functions}}
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
    said = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    items = [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": tool,
            "arguments": json.dumps(args),
            "status": "completed",
        }
        for call_id, tool, args in calls
    ]
    return {"responses": items if text is None else [said, *items]}
