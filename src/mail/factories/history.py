"""Histories in the format of a model's API, for sending them back.

Replies of the same API go back unchanged, with thinking blocks, their signatures and encrypted reasoning. Replies of
another API, after a change of model, are rewritten from their text and tool calls. Providers reject a tool call without
its result, and a result without its call: the call gets a note as its result, and the result is omitted.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mail.factories.files import to_chat_entry, to_responses_entry
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

WRITTEN_BY = "written_by"
"""Key in the entries of a reply that is not of the agent's first model: the name of its model."""


@dataclass(frozen=True, slots=True)
class Received:
    """An entry that the agent's model has not written."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's reply in one turn: its entries, and its items."""

    entries: tuple[Entry, ...]
    items: tuple[Item, ...]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that need a result."""
        return [item for item in self.items if isinstance(item, ToolCall)]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call."""

    call_id: str
    content: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that only this call tells the model, behind the history."""

    text: str


Section = Received | Reply | Result | Note


def read_history(entries: Sequence[Entry], notes: Iterable[str] = ()) -> list[Section]:
    """Split a history into sections, in which every tool call is followed by its result, and add the notes."""
    sections: list[Section] = []
    waiting: dict[str, None] = {}
    for section in _sections(entries):
        if isinstance(section, Result):
            if section.call_id in waiting:
                del waiting[section.call_id]
                sections.append(section)
            continue
        sections += [Result(call_id, NO_RESULT) for call_id in waiting]
        waiting = {call.call_id: None for call in section.calls} if isinstance(section, Reply) else {}
        sections.append(section)
    return [*sections, *(Result(call_id, NO_RESULT) for call_id in waiting), *map(Note, notes)]


def without_memory(entries: Sequence[Entry]) -> list[Entry]:
    """Return the history for an agent without memory: its instructions and the newest entry."""
    return [entry for entry in entries[:-1] if entry.get("role") in ("system", "developer")] + [*entries[-1:]]


def as_read_by(entries: Sequence[Entry], first: str, is_own: Callable[[str], bool]) -> list[Entry]:
    """Return the history for a model of an agent that has several.

    Replies that are not its own have neither thinking nor anything else that only their provider can read.

    Args:
        first: the model that has written the replies without a name (`WRITTEN_BY`).
        is_own: returns whether a model's replies go back unchanged.
    """
    read: list[Entry] = []
    for section in _sections(entries):
        match section:
            case Reply(written, _) if is_own(written[0].get(WRITTEN_BY, first)):
                read += [{key: each[key] for key in each if key != WRITTEN_BY} for each in written]
            case Reply():
                read += _plain(section)
            case Result(call_id, content):
                read.append({"role": "tool", "tool_call_id": call_id, "content": content})
            case Received(entry):
                read.append(entry)
    return read


def _sections(entries: Iterable[Entry]) -> Iterator[Section]:
    turn: list[Entry] = []
    for entry in entries:
        if turn and not (is_response_item(entry) and is_response_item(turn[-1])):
            yield _reply(turn)
            turn = []
        if is_assistant(entry):
            turn.append(entry)
        elif entry.get("type") == "function_call_output":
            yield Result(entry["call_id"], entry["output"])
        elif entry.get("role") == "tool":
            yield Result(entry["tool_call_id"], entry["content"])
        else:
            yield Received(entry)
    if turn:
        yield _reply(turn)


def _reply(entries: list[Entry]) -> Reply:
    return Reply(tuple(entries), items_of(entries))


# ----------------------------------------------------------------------------------------- calls in words


def in_words(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with all calls and results as text, for a call of the model without tools."""
    return _rewrite(
        sections, [section for section in sections if isinstance(section, Reply) and section.calls]
    )


def without_unthought(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with the last turn as text if it called tools without thinking, which Claude then refuses."""
    last = _last_without_thinking(sections)
    return list(sections) if last is None else _rewrite(sections, [last])


def _rewrite(sections: Sequence[Section], replies: Sequence[Reply]) -> list[Section]:
    call_ids = {call.call_id for reply in replies for call in reply.calls}
    return [_reword(section, call_ids) for section in sections]


def _reword(section: Section, call_ids: Container[str]) -> Section:
    match section:
        case Result(call_id, content) if call_id in call_ids:
            return Received({"role": "user", "content": f"Result of {call_id}: {content}"})
        case Reply() if any(call.call_id in call_ids for call in section.calls):
            lines = [item.text for item in section.items if isinstance(item, Text)]
            lines += [
                f"I called {call.name} ({call.call_id}) with {call.arguments}" for call in section.calls
            ]
            text = "\n".join(lines)
            return Reply(({"role": "assistant", "content": text},), (Text(text),))
    return section


# ------------------------------------------------------------------------------------- for Chat Completions


MARK = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix for the provider's cache, in litellm's Chat Completions."""


def to_chat(
    sections: Iterable[Section], *, claude: bool, thinks: bool = False, marked: Container[int] = ()
) -> list[Entry]:
    """Return the messages of Chat Completions; the last one of each `marked` section ends a prefix for the cache.

    For Claude every block becomes a message of its own: litellm joins adjacent ones and so preserves their order, which
    a single message with text and calls would lose. If thinking is requested (`thinks`), the last turn with calls must
    begin with thinking; one that doesn't, as it was forced or is another model's, is rewritten as text.
    """
    sections = list(sections)
    if claude and thinks:
        sections = without_unthought(sections)
    messages: list[Entry] = []
    for index, section in enumerate(sections):
        match section:
            case Received(entry):
                messages.append(to_chat_entry(entry))
            case Note(text):
                messages.append({"role": "user", "content": text})
            case Result(call_id, content):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
            case Reply():
                messages += _chat(section, claude)
        if messages and index in marked:
            messages[-1] = _marked(messages[-1])
    return messages


def _marked(message: Entry) -> Entry:
    """Return the message with a mark; as it is if it has no text, whose mark Claude refuses."""
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content[:-1], {**content[-1], **MARK}]} if content else message
    return {**message, **MARK} if content else message


def _chat(reply: Reply, claude: bool) -> list[Entry]:
    entry = reply.entries[0]
    if claude and has_blocks(entry):
        return list(_messages_of_blocks(entry["content"]))
    if not has_blocks(entry) and not is_response_item(entry):
        return [entry]
    return _plain(reply)


def _plain(reply: Reply) -> list[Entry]:
    """Return the text and the calls of a reply as one message, which every API takes."""
    text = "\n\n".join(item.text for item in reply.items if isinstance(item, Text))
    calls = [_tool_call(call) for call in reply.calls]
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _messages_of_blocks(blocks: Iterable[Entry]) -> Iterator[Entry]:
    """Return a message per block; thinking is joined to the block that follows it, without which it is rejected."""
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


def _last_without_thinking(sections: Sequence[Section]) -> Reply | None:
    """Return the last turn of the model if it called tools without thinking."""
    last = next((section for section in reversed(sections) if isinstance(section, Reply)), None)
    if last is None or not last.calls:
        return None
    first = last.entries[0]
    thinks = has_blocks(first) and is_signed(first["content"][0])
    return None if thinks else last


# -------------------------------------------------------------------------------------------- for Responses


def to_responses(sections: Iterable[Section]) -> list[Entry]:
    """Return the input items of Responses."""
    items: list[Entry] = []
    for section in sections:
        match section:
            case Received(entry):
                items.append(to_responses_entry(entry))
            case Note(text):
                items.append({"role": "user", "content": text})
            case Result(call_id, content):
                items.append({"type": "function_call_output", "call_id": call_id, "output": content})
            case Reply():
                items += (
                    _items_sent_back(section) if is_response_item(section.entries[0]) else _rewritten(section)
                )
    return items


def _items_sent_back(reply: Reply) -> list[Entry]:
    """Return the items of a turn.

    Reasoning without its encrypted content is useless to a provider that stores nothing, and an item's id refers to its
    reasoning: if the reasoning is removed, so is the id.
    """
    entries = list(reply.entries)
    while entries and entries[-1]["type"] == "reasoning":  # must be followed by another item
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


def _rewritten(reply: Reply) -> list[Entry]:
    rewritten: list[dict[str, Any]] = []
    for item in reply.items:
        match item:
            case Text(text):
                rewritten.append({"role": "assistant", "content": text})
            case ToolCall(call_id, name, arguments):
                rewritten.append(
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
                )
    return rewritten
