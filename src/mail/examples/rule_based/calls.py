"""The output of an agent in the formats of either API, as a language model would write it."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.factories.rules import Call, output

ToolUse = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""


def say(
    tool_format: ToolFormat, uses: Sequence[ToolUse], *, text: str | None = None, turn_id: str | None = None
) -> tuple[str | None, list[AgentToolCall]]:
    """Return the output of an agent function that writes `text` and uses these tools, in this order.

    `turn_id` is the prefix of the calls' ids, which must be unique in the agent's history; without one they are random.
    """
    calls = [Call(tool, arguments, preamble=text) for tool, arguments in uses]
    prefix = f"call_{turn_id or uuid4().hex}"
    return text, output(calls, tool_format=tool_format, prefix=prefix, text=text)
