"""What a model puts out, item by item, in the order in which it did: no provider's words, one type per kind.

Histories keep what was said in the provider's own shape, as it must come back unchanged. The functions here read
these shapes; they serve for a reply that has just come and for one that is sent back as history.

    chat        {"role": "assistant", "content": text, "tool_calls": […], "reasoning_content": text}
    blocks      {"role": "assistant", "content": [{"type": "thinking" | "text" | "tool_use" | …}, …]}   (Claude)
    responses   {"type": "reasoning" | "message" | "function_call" | …}, one entry per item
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

REDACTED = "[redacted thinking]"
"""Stands in a reasoning trace for what only the provider can read."""

CODE = "code_interpreter_call"
SEARCH = "web_search_call"

SERVER_TOOLS = {
    "web_search": SEARCH,
    "web_fetch": SEARCH,
    "code_execution": CODE,
    "bash_code_execution": CODE,
    "text_editor_code_execution": CODE,
}
"""Claude's names of tools that the provider runs, and the engine's."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning that may be read."""

    text: str


@dataclass(frozen=True, slots=True)
class RedactedReasoning:
    """Reasoning that only the provider can read."""


@dataclass(frozen=True, slots=True)
class Text:
    """Something said."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that the caller runs; `arguments` is JSON as the model wrote it."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class BuiltinToolCall:
    """A call of a tool that the provider has run already."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


Item = Reasoning | RedactedReasoning | Text | ToolCall | BuiltinToolCall
Entry = dict[str, Any]


def is_assistant(entry: Entry) -> bool:
    """Whether a history entry is something the agent's model has said, in whatever shape."""
    if entry.get("role") == "assistant":
        return True
    return "role" not in entry and entry.get("type") != "function_call_output"


def has_blocks(entry: Entry) -> bool:
    """Whether an assistant message is in the shape of blocks."""
    return entry.get("role") == "assistant" and "type" not in entry and isinstance(entry.get("content"), list)


def is_signed(block: Entry) -> bool:
    """Whether a block is thinking that Claude takes back: it verifies who wrote it."""
    return block["type"] == "redacted_thinking" or bool(
        block["type"] == "thinking" and block.get("signature")
    )


def is_response_item(entry: Entry) -> bool:
    """Whether an entry is an output item of the Responses API."""
    return "type" in entry and is_assistant(entry)


def items_of(said: Iterable[Entry]) -> tuple[Item, ...]:
    """The items of what was said, in order."""
    return tuple(item for entry in said for item in _items_of_entry(entry))


def without_arguments(entry: Entry, call_ids: Container[str]) -> Entry:
    """The entry, the calls with these ids in it without their arguments."""
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
    """What a trace tells of the result of Claude's own tools, under the names that OpenAI's have."""
    if isinstance(result, dict) and "error_code" in result:
        return {"status": "failed", "error_code": result["error_code"]}
    if isinstance(result, dict) and "stdout" in result:
        return {"status": "completed", "outputs": [{"type": "logs", "logs": result["stdout"]}]}
    return {"status": "completed"}


def _items_of_response_item(item: Entry) -> Iterator[Item]:
    match item["type"]:
        case "reasoning":
            for part in (*(item.get("summary") or ()), *(item.get("content") or ())):
                if text := part.get("text"):
                    yield Reasoning(text)
        case "message":
            content = item.get("content") or ""
            if isinstance(content, list):
                content = "".join(part.get("text") or part.get("refusal") or "" for part in content)
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
