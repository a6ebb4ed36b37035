"""The output of an agent in the formats of either API, as a language model would write it."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat

ToolUse = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


def say(
    tool_format: ToolFormat, uses: Sequence[ToolUse], *, text: str | None = None, turn_id: str | None = None
) -> tuple[str | None, list[AgentToolCall]]:
    """Return the output of an agent function that writes `text` and uses these tools, in this order.

    `turn_id` is the prefix of the calls' ids, which must be unique in the agent's history; without one they are random.
    """
    turn_id = turn_id or uuid4().hex
    calls = [(f"call_{turn_id}_{n}", tool, arguments) for n, (tool, arguments) in enumerate(uses, start=1)]
    origin = _completion(text, calls) if tool_format == "completions" else _responses(text, calls)
    return text, [
        AgentToolCall(tool_name=tool, tool_args=arguments, tool_call_id=call_id, preamble=text, **origin)
        for call_id, tool, arguments in calls
    ]


def _completion(text: str | None, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    """Return one assistant message, as the Chat Completions API does."""
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for call_id, tool, arguments in calls
    ]
    return {"completion": {"role": "assistant", "content": text, "tool_calls": tool_calls}}


def _responses(text: str | None, calls: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the output items of one response, as the Responses API does."""
    items: list[dict[str, Any]] = []
    if text is not None:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": content})
    items += [
        {
            "type": "function_call",
            "id": f"fc_{call_id.removeprefix('call_')}",
            "call_id": call_id,
            "name": tool,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for call_id, tool, arguments in calls
    ]
    return {"responses": items}
