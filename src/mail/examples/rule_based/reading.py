"""Reading an agent's history: entries of either API become messages, calls and results."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mail.core.protocol.xml import read_mail_xml
from mail.core.task.swarm import History
from mail.factories.rules import ReceivedMessage, received


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the agent."""

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call."""

    call_id: str
    content: str


Entry = ReceivedMessage | Call | Result


def newest_first(history: History) -> Iterator[Entry]:
    """Iterate over the entries of a history, newest first; reads no further back than needed."""
    for message in reversed(history):
        yield from reversed(list(_read(message)))


def back_to(entries: Iterable[Entry], stop: Callable[[Entry], bool]) -> tuple[Entry | None, list[Entry]]:
    """Return the first entry for which `stop` is true, and all newer ones, oldest first; `entries` are newest first."""
    later: list[Entry] = []
    for entry in entries:
        if stop(entry):
            return entry, later[::-1]
        later.append(entry)
    return None, later[::-1]


def _read(message: dict[str, Any]) -> Iterator[Entry]:
    match message:
        case {"role": "user", "content": str(content)}:
            yield read_message(content)
        case {"role": "assistant", "tool_calls": [*calls]}:
            for call in calls:
                function = call["function"]
                yield Call(call["id"], function["name"], json.loads(function["arguments"]))
        case {"role": "tool", "tool_call_id": call_id, "content": content}:
            yield Result(call_id, content)
        case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}:
            yield Call(call_id, name, json.loads(arguments))
        case {"type": "function_call_output", "call_id": call_id, "output": output}:
            yield Result(call_id, output)


def read_message(content: str) -> ReceivedMessage:
    """Return the message in a user turn, written by `build_mail_xml`; other text counts as a user's message."""
    try:
        return received(read_mail_xml(content))
    except ValueError:
        return ReceivedMessage("user", "user", "", content)
