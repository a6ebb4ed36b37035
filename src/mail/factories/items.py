"""The items of a model's output, independent of its provider, and the tool calls made from them.

Histories keep a reply in its provider's own format, as it must be sent back unchanged. The functions here read these
formats, for new replies and for those in a history.

    chat        {"role": "assistant", "content": text, "tool_calls": […], "reasoning_content": text}
    blocks      {"role": "assistant", "content": [{"type": "thinking" | "text" | "tool_use" | …}, …]}   (Claude)
    responses   {"type": "reasoning" | "message" | "function_call" | …}, one entry per item

A tool call gets the reasoning and the text since the previous call; parallel calls
without reasoning refer to the last call that has some. Values that no store accepts are filtered out: lone surrogates
in text are replaced, and a call with such arguments becomes an `UNREADABLE_CALL`, whose error the agent sees.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall, ToolFormat
from mail.core.protocol.mail_tools import UNREADABLE_CALL

REDACTED = "[redacted thinking]"
"""Placeholder for reasoning that only the provider can read."""

CODE = "code_interpreter_call"
SEARCH = "web_search_call"

SERVER_TOOLS = {
    "web_search": SEARCH,
    "web_fetch": SEARCH,
    "code_execution": CODE,
    "bash_code_execution": CODE,
    "text_editor_code_execution": CODE,
}
"""The engine's names of the provider's own tools, by Claude's names."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Readable reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class RedactedReasoning:
    """Reasoning that only the provider can read."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that MAIL runs; `arguments` is JSON as the model wrote it."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class BuiltinToolCall:
    """A call of one of the provider's own tools, which it has already run."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


Item = Reasoning | RedactedReasoning | Text | ToolCall | BuiltinToolCall
Entry = dict[str, Any]


def is_assistant(entry: Entry) -> bool:
    """Return whether a history entry was written by the agent's model, in any format."""
    if entry.get("role") == "assistant":
        return True
    return "role" not in entry and entry.get("type") != "function_call_output"


def has_blocks(entry: Entry) -> bool:
    """Return whether an assistant message consists of blocks."""
    return entry.get("role") == "assistant" and "type" not in entry and isinstance(entry.get("content"), list)


def is_signed(block: Entry) -> bool:
    """Return whether a block is thinking that Claude accepts back, as it verifies the signature."""
    return block["type"] == "redacted_thinking" or bool(
        block["type"] == "thinking" and block.get("signature")
    )


def is_response_item(entry: Entry) -> bool:
    """Return whether an entry is an output item of the Responses API."""
    return "type" in entry and is_assistant(entry)


def items_of(entries: Iterable[Entry]) -> tuple[Item, ...]:
    """Return the items of a reply, in order."""
    return tuple(item for entry in entries for item in _items_of_entry(entry))


def without_arguments(entry: Entry, call_ids: Container[str]) -> Entry:
    """Return the entry with the arguments of these calls removed."""
    if is_response_item(entry):
        is_meant = entry["type"] == "function_call" and entry["call_id"] in call_ids
        return {**entry, "arguments": "{}"} if is_meant else entry
    if has_blocks(entry):
        blocks = [
            {**block, "input": {}} if block["type"] == "tool_use" and block["id"] in call_ids else block
            for block in entry["content"]
        ]
        return {**entry, "content": blocks}
    calls = [
        {**call, "function": {**call["function"], "arguments": "{}"}} if call["id"] in call_ids else call
        for call in entry.get("tool_calls") or ()
    ]
    return {**entry, "tool_calls": calls} if calls else entry


def _items_of_entry(entry: Entry) -> Iterator[Item]:
    if is_response_item(entry):
        return _items_of_response_item(entry)
    return _items_of_blocks(entry["content"]) if has_blocks(entry) else _items_of_message(entry)


def _items_of_message(message: Entry) -> Iterator[Item]:
    if reasoning := message.get("reasoning_content"):
        yield Reasoning(reasoning)
    if text := message.get("content"):
        yield Text(text)
    for call in message.get("tool_calls") or ():
        yield ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def _items_of_blocks(blocks: list[Entry]) -> Iterator[Item]:
    results = {block["tool_use_id"]: block for block in blocks if "tool_use_id" in block}
    for block in blocks:
        match block["type"]:
            case "thinking":
                yield Reasoning(block["thinking"])
            case "redacted_thinking":
                yield RedactedReasoning()
            case "text":
                yield Text(block["text"])
            case "tool_use":
                arguments = block["input"]
                text = arguments if isinstance(arguments, str) else json.dumps(arguments)
                yield ToolCall(block["id"], block["name"], text)
            case "server_tool_use" if block["name"] in SERVER_TOOLS:
                outcome = _outcome(results.get(block["id"], {}).get("content"))
                name = SERVER_TOOLS[block["name"]]
                yield BuiltinToolCall(block["id"], name, {**block["input"], **outcome})


def _outcome(result: Any) -> dict[str, Any]:
    """Return the result of one of Claude's own tools for a trace, with OpenAI's field names."""
    if isinstance(result, dict) and "error_code" in result:
        return {"status": "failed", "error_code": result["error_code"]}
    if isinstance(result, dict) and "stdout" in result:
        return {"status": "completed", "outputs": [{"type": "logs", "logs": result["stdout"]}]}
    return {"status": "completed"}


def _items_of_response_item(item: Entry) -> Iterator[Item]:
    match item["type"]:
        case "reasoning":
            for block in (*(item.get("summary") or ()), *(item.get("content") or ())):
                if text := block.get("text"):
                    yield Reasoning(text)
        case "message":
            content = item.get("content") or ""
            if isinstance(content, list):
                content = "".join(block.get("text") or block.get("refusal") or "" for block in content)
            if content:
                yield Text(content)
        case "function_call":
            yield ToolCall(item["call_id"], item["name"], item["arguments"])
        case "web_search_call":
            action = dict(item.get("action") or {})
            kind = action.pop("type", "search")
            yield BuiltinToolCall(
                item["id"], SEARCH, {**action, "search_type": kind, "status": item.get("status")}
            )
        case "code_interpreter_call":
            fields = {name: item.get(name) for name in ("code", "container_id", "outputs", "status")}
            yield BuiltinToolCall(item["id"], CODE, fields)


# ------------------------------------------------------------------------------- tool calls from items

MAX_DEPTH = 100
"""Maximum nesting depth of a call's arguments, about half of what the stores' JSON allows."""


class MalformedReply(Exception):
    """The model's reply has a call whose arguments are not a JSON object."""


class UnstorableArguments(Exception):
    """The arguments of a call are JSON, but no store accepts them. The text is for the model."""


def assemble(entries: list[Entry], tool_format: ToolFormat) -> tuple[str | None, list[AgentToolCall]]:
    """Return the text and the tool calls of a reply, `entries` in its provider's format. Raises MalformedReply.

    Text without any tool call becomes a call of `text_output`, which tells the agent that text reaches nobody.
    """
    entries = [_whole(entry) for entry in entries]
    items = items_of(entries)
    texts = [item.text for item in items if isinstance(item, Text)]
    calls = _calls(items, entries, tool_format)
    return "\n\n".join(texts) or None, calls


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: dict[str, Any]
    call_id: str
    reasoning: list[str]
    preamble: str


def _calls(items: Sequence[Item], entries: list[Entry], tool_format: ToolFormat) -> list[AgentToolCall]:
    if not entries:
        return []
    found: list[_Call] = []
    unreadable: set[str] = set()
    reasoning: list[str] = []
    preamble: list[str] = []

    def add(name: str, arguments: dict[str, Any], call_id: str, before: list[str]) -> None:
        found.append(_Call(name, arguments, call_id, [*reasoning], "\n\n".join(before)))
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
    if unreadable:  # such arguments can't be sent back either
        entries = [without_arguments(entry, unreadable) for entry in entries]
    is_chat = tool_format == "completions"
    return [
        AgentToolCall(
            tool_name=call.name,
            tool_args=call.arguments,
            tool_call_id=call.call_id,
            reasoning=call.reasoning or None,
            preamble=call.preamble or None,
            completion=entries[0] if is_chat else {},
            responses=[] if is_chat else entries,
        )
        for call in found
    ]


def parse_arguments(name: str, text: str) -> dict[str, Any]:
    """Parse the arguments of a call of the tool `name`; empty text means no arguments.

    Raises MalformedReply or UnstorableArguments.
    """
    try:
        arguments = json.loads(text) if text.strip() else {}
    except RecursionError as error:
        raise UnstorableArguments(_TOO_DEEP) from error
    except ValueError as error:
        raise MalformedReply(f"the arguments of {name} are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise MalformedReply(f"the arguments of {name} are not a JSON object")
    _check_storable(arguments, MAX_DEPTH)
    return arguments


def arguments_or_text(name: str, text: str) -> dict[str, Any] | str:
    """Return the arguments of a call of a new reply; the text if it can't be parsed, which the assembly reports."""
    try:
        return parse_arguments(name, text)
    except (MalformedReply, UnstorableArguments):
        return text


_TOO_DEEP = f"its arguments are nested more than {MAX_DEPTH} levels deep"


def _check_storable(value: Any, levels: int) -> None:
    """Raise UnstorableArguments for text with lone surrogates, and for values nested deeper than `levels`."""
    if isinstance(value, str):
        if value != _whole(value):
            raise UnstorableArguments(
                "its arguments contain half of a character, a lone surrogate; write whole characters"
            )
    elif isinstance(value, dict | list):
        if not levels:
            raise UnstorableArguments(_TOO_DEEP)
        for item in value if isinstance(value, list) else (*value, *value.values()):
            _check_storable(item, levels - 1)


def _whole[Value](value: Value) -> Value:
    """Join surrogate pairs in all texts of a JSON value, and replace lone surrogates."""
    whole: Any = value
    match value:
        case str():
            whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            whole = {_whole(key): _whole(item) for key, item in value.items()}
        case list():
            whole = [_whole(item) for item in value]
    return whole  # type: ignore[no-any-return]
