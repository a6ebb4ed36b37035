"""From the items of a reply to what an agent function returns: the only place that makes tool calls of them.

A call gets the reasoning and the text that came since the call before it (seed 000, docs/CHECKLIST.md); the engine
refers calls without reasoning, parallel ones, to the last call that has some.
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from mail.core.calls import TEXT_OUTPUT, AgentToolCall, ToolFormat
from mail.factories.items import (
    REDACTED,
    BuiltinToolCall,
    Entry,
    Item,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    items_of,
)


class MalformedReply(Exception):
    """The model's reply is not what was asked for: arguments that are no JSON object."""


def assemble(said: list[Entry], tool_format: ToolFormat) -> tuple[str | None, list[AgentToolCall]]:
    """The text and the tool calls of a reply, `said` in its provider's shape. Raises MalformedReply.

    Text without any call of the caller's tools becomes a call of `text_output`, as the engine must tell the agent
    that text reaches nobody.
    """
    items = items_of(said)
    texts = [item.text for item in items if isinstance(item, Text)]
    calls = _calls(items, said, tool_format)
    return "\n\n".join(texts) or None, calls


def _calls(items: Sequence[Item], said: list[Entry], tool_format: ToolFormat) -> list[AgentToolCall]:
    origin: dict[str, Any] = {"completion": said[0]} if tool_format == "completions" else {"responses": said}
    calls: list[AgentToolCall] = []
    reasoning: list[str] = []
    preamble: list[str] = []

    def add(name: str, arguments: dict[str, Any], call_id: str, before: list[str]) -> None:
        calls.append(
            AgentToolCall(
                tool_name=name,
                tool_args=arguments,
                tool_call_id=call_id,
                reasoning=[*reasoning] or None,
                preamble="\n\n".join(before) or None,
                **origin,
            )
        )
        reasoning.clear()
        preamble.clear()

    for item in items:
        match item:
            case Reasoning(text):
                reasoning.append(text)
            case RedactedReasoning():
                reasoning.append(REDACTED)
            case Text(text):
                preamble.append(text)
            case ToolCall(call_id, name, arguments):
                add(name, parse_arguments(name, arguments), call_id, preamble)
            case BuiltinToolCall(call_id, name, known):
                add(name, dict(known), call_id, preamble)
    if preamble and not any(isinstance(item, ToolCall) for item in items):
        add(TEXT_OUTPUT, {"content": preamble[0]}, str(uuid4()), [])
    return calls


def parse_arguments(name: str, text: str) -> dict[str, Any]:
    """The arguments of a call of the tool `name`; none at all are none. Raises MalformedReply."""
    try:
        arguments = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise MalformedReply(f"the arguments of {name} are no JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise MalformedReply(f"the arguments of {name} are no JSON object")
    return arguments
