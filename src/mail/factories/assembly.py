"""From the items of a reply to what an agent function returns: the only place that makes tool calls of them.

A call gets the reasoning and the text that came since the call before it (seed 000, docs/CHECKLIST.md); the engine
refers calls without reasoning, parallel ones, to the last call that has some.

What no store could hold is kept from the engine here: half characters in text are replaced, and a call with such
arguments becomes one that the agent is told of as its error (`UNREADABLE_CALL`).
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall, ToolFormat
from mail.core.protocol.mail_tools import UNREADABLE_CALL
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
    without_arguments,
)

MAX_DEPTH = 100
"""How deep the arguments of a call may be nested; about twice as deep is more than the stores' JSON can be."""


class MalformedReply(Exception):
    """The model's reply is not what was asked for: arguments that are no JSON object."""


class UnstorableArguments(Exception):
    """Arguments that are JSON, but that no store can hold. The text is for the model."""


def assemble(said: list[Entry], tool_format: ToolFormat) -> tuple[str | None, list[AgentToolCall]]:
    """The text and the tool calls of a reply, `said` in its provider's shape. Raises MalformedReply.

    Text without any call of the caller's tools becomes a call of `text_output`, as the engine must tell the agent
    that text reaches nobody.
    """
    said = [_whole(entry) for entry in said]
    items = items_of(said)
    texts = [item.text for item in items if isinstance(item, Text)]
    calls = _calls(items, said, tool_format)
    return "\n\n".join(texts) or None, calls


def _calls(items: Sequence[Item], said: list[Entry], tool_format: ToolFormat) -> list[AgentToolCall]:
    if not said:
        return []
    origin = _origin(said, tool_format)
    calls: list[AgentToolCall] = []
    unreadable: set[str] = set()
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
                try:
                    add(name, parse_arguments(name, arguments), call_id, preamble)
                except UnstorableArguments as error:
                    add(UNREADABLE_CALL, {"tool": name, "problem": str(error)}, call_id, preamble)
                    unreadable.add(call_id)
            case BuiltinToolCall(call_id, name, known):
                add(name, dict(known), call_id, preamble)
    if preamble and not any(isinstance(item, ToolCall) for item in items):
        add(TEXT_OUTPUT, {"content": preamble[0]}, str(uuid4()), [])
    if unreadable:  # nor could they be sent back
        origin = _origin([without_arguments(entry, unreadable) for entry in said], tool_format)
        return [call.model_copy(update=origin) for call in calls]
    return calls


def _origin(said: list[Entry], tool_format: ToolFormat) -> dict[str, Any]:
    return {"completion": said[0]} if tool_format == "completions" else {"responses": said}


def parse_arguments(name: str, text: str) -> dict[str, Any]:
    """The arguments of a call of the tool `name`; none at all are none.

    Raises MalformedReply or UnstorableArguments.
    """
    try:
        arguments = json.loads(text) if text.strip() else {}
    except RecursionError as error:
        raise UnstorableArguments(_TOO_DEEP) from error
    except ValueError as error:
        raise MalformedReply(f"the arguments of {name} are no JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise MalformedReply(f"the arguments of {name} are no JSON object")
    _check_storable(arguments, MAX_DEPTH)
    return arguments


_TOO_DEEP = f"its arguments are nested more than {MAX_DEPTH} levels deep"


def _check_storable(value: Any, levels: int) -> None:
    """Raise UnstorableArguments for text that is no Unicode, and for what is nested deeper than so many levels."""
    if isinstance(value, str):
        if value != _whole(value):
            raise UnstorableArguments(
                "its arguments hold half of a character, a lone surrogate; write characters whole"
            )
    elif isinstance(value, dict | list):
        if not levels:
            raise UnstorableArguments(_TOO_DEEP)
        for item in value if isinstance(value, list) else (*value, *value.values()):
            _check_storable(item, levels - 1)


def _whole[Value](value: Value) -> Value:
    """A value of JSON whose texts are all Unicode: halves of a character are joined, or replaced where one is alone."""
    whole: Any = value
    match value:
        case str():
            whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            whole = {_whole(key): _whole(item) for key, item in value.items()}
        case list():
            whole = [_whole(item) for item in value]
    return whole  # type: ignore[no-any-return]
