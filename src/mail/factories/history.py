"""Histories as they are sent to a model: in its own shape, whatever wrote them, and nothing in them changed.

What the model's own API has said goes back word for word, with thinking blocks, their signatures and encrypted
reasoning. What another API has said, as after a change of model, is retold by its text and tool calls.
Providers refuse a tool call without its result, and a result without its call: the one gets a remark, the other
is left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mail.factories.items import (
    Entry,
    Item,
    Text,
    ToolCall,
    has_blocks,
    is_assistant,
    is_response_item,
    is_signed,
    items_of,
)

NO_RESULT = "no result was recorded"


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody else has said to the agent."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Said:
    """What the agent's model has said in one turn: as it was said, and its items."""

    entries: tuple[Entry, ...]
    items: tuple[Item, ...]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that must have a result."""
        return [item for item in self.items if isinstance(item, ToolCall)]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call."""

    call_id: str
    content: str


Part = Told | Said | Result


def read_history(entries: Sequence[Entry]) -> list[Part]:
    """The parts of a history; every call of a tool is followed by its result."""
    parts: list[Part] = []
    waiting: dict[str, None] = {}
    for part in _parts(entries):
        if isinstance(part, Result):
            if part.call_id in waiting:
                del waiting[part.call_id]
                parts.append(part)
            continue
        parts += [Result(call_id, NO_RESULT) for call_id in waiting]
        waiting = {call.call_id: None for call in part.calls} if isinstance(part, Said) else {}
        parts.append(part)
    return parts + [Result(call_id, NO_RESULT) for call_id in waiting]


def remember_nothing(entries: Sequence[Entry]) -> list[Entry]:
    """What an agent without memory is sent: its instructions, and what has come now."""
    return [entry for entry in entries[:-1] if entry.get("role") in ("system", "developer")] + [*entries[-1:]]


def _parts(entries: Iterable[Entry]) -> Iterator[Part]:
    turn: list[Entry] = []
    for entry in entries:
        if turn and not (is_response_item(entry) and is_response_item(turn[-1])):
            yield _said(turn)
            turn = []
        if is_assistant(entry):
            turn.append(entry)
        elif entry.get("type") == "function_call_output":
            yield Result(entry["call_id"], entry["output"])
        elif entry.get("role") == "tool":
            yield Result(entry["tool_call_id"], entry["content"])
        else:
            yield Told(entry)
    if turn:
        yield _said(turn)


def _said(entries: list[Entry]) -> Said:
    return Said(tuple(entries), items_of(entries))


# ------------------------------------------------------------------------------------- for Chat Completions


def to_chat(parts: Iterable[Part], *, claude: bool, thinks: bool = False) -> list[Entry]:
    """The messages of Chat Completions.

    For Claude every block becomes a message of its own, as litellm joins neighbours again and so keeps their order,
    which one message with text here and calls there would lose. While it `thinks` by command, the last turn with
    calls must begin with thinking; one that doesn't, as it was forced or another model's, is retold in words.
    """
    parts = list(parts)
    retold = _last_thoughtless(parts) if claude and thinks else None
    messages: list[Entry] = []
    for part in parts:
        match part:
            case Told(entry):
                messages.append(entry)
            case Result(call_id, content):
                if retold is not None and any(call.call_id == call_id for call in retold.calls):
                    messages.append({"role": "user", "content": f"Result of {call_id}: {content}"})
                else:
                    messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
            case Said():
                messages += (
                    [{"role": "assistant", "content": _in_words(part)}]
                    if part is retold
                    else _chat(part, claude)
                )
    return messages


def _chat(said: Said, claude: bool) -> list[Entry]:
    entry = said.entries[0]
    if claude and has_blocks(entry):
        return list(_messages_of_blocks(entry["content"]))
    if not has_blocks(entry) and not is_response_item(entry):
        return [entry]
    text = "\n\n".join(item.text for item in said.items if isinstance(item, Text))
    calls = [_tool_call(call) for call in said.calls]
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _messages_of_blocks(blocks: Iterable[Entry]) -> Iterator[Entry]:
    """A message per block; thinking goes with what it led to, and is refused where it led to nothing."""
    thinking: list[Entry] = []
    for block in blocks:
        if block["type"] in ("thinking", "redacted_thinking"):
            thinking.append(block)
            continue
        message: Entry = {"role": "assistant", "content": [block]}
        if block["type"] == "tool_use":
            (call,) = (item for item in items_of([message]) if isinstance(item, ToolCall))
            message = {"role": "assistant", "content": None, "tool_calls": [_tool_call(call)]}
        if signed := [each for each in thinking if is_signed(each)]:
            message["thinking_blocks"] = signed
        thinking = []
        yield message


def _tool_call(call: ToolCall) -> Entry:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _last_thoughtless(parts: list[Part]) -> Said | None:
    """The last turn of the model, if it called tools without having thought."""
    last = next((part for part in reversed(parts) if isinstance(part, Said)), None)
    if last is None or not last.calls:
        return None
    first = last.entries[0]
    thinks = has_blocks(first) and is_signed(first["content"][0])
    return None if thinks else last


def _in_words(said: Said) -> str:
    lines = [item.text for item in said.items if isinstance(item, Text)]
    return "\n".join(
        [*lines, *(f"I called {call.name} ({call.call_id}) with {call.arguments}" for call in said.calls)]
    )


# -------------------------------------------------------------------------------------------- for Responses


def to_responses(parts: Iterable[Part]) -> list[Entry]:
    """The input items of Responses."""
    items: list[Entry] = []
    for part in parts:
        match part:
            case Told(entry):
                items.append(entry)
            case Result(call_id, content):
                items.append({"type": "function_call_output", "call_id": call_id, "output": content})
            case Said():
                items += _items_sent_back(part) if is_response_item(part.entries[0]) else _retold(part)
    return items


def _items_sent_back(said: Said) -> list[Entry]:
    """A turn's own items.

    Reasoning without its encrypted content means nothing to a provider that stores nothing, and an item's id would
    ask for the reasoning that belongs to it: where the one is missing, the other goes too.
    """
    entries = list(said.entries)
    while entries and entries[-1]["type"] == "reasoning":  # it must be followed by what it led to
        entries.pop()
    reasoning = [entry for entry in entries if entry["type"] == "reasoning"]
    if all(entry.get("encrypted_content") for entry in reasoning):
        return entries
    return [
        {
            key: value
            for key, value in entry.items()
            if key != "id" or entry["type"] not in ("message", "function_call")
        }
        for entry in entries
        if entry["type"] in ("message", "function_call")
    ]


def _retold(said: Said) -> list[Entry]:
    retold: list[dict[str, Any]] = []
    for item in said.items:
        match item:
            case Text(text):
                retold.append({"role": "assistant", "content": text})
            case ToolCall(call_id, name, arguments):
                retold.append(
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
                )
    return retold
