"""Reading an agent's history: entries of either API become messages, calls and results."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from mail.core.protocol.address import EVERYONE
from mail.core.task.swarm import History


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the agent."""

    sender_type: str
    sender: str
    recipients: tuple[str, ...]
    subject: str
    body: str

    @property
    def is_from_person(self) -> bool:
        """Whether a user or an admin wrote it."""
        return self.sender_type in ("user", "admin")

    @property
    def is_from_agent(self) -> bool:
        """Whether another agent wrote it."""
        return self.sender_type == "agent"

    @property
    def is_from_system(self) -> bool:
        """Whether the runtime wrote it."""
        return self.sender_type == "system"

    @property
    def is_for_everyone(self) -> bool:
        """Whether it is a broadcast."""
        return EVERYONE in self.recipients


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


Entry = Message | Call | Result


def newest_first(history: History) -> Iterator[Entry]:
    """Iterate over the entries of a history, newest first; reads no further back than needed."""
    for message in reversed(history):
        yield from reversed(list(_read(message)))


def back_to(entries: Iterable[Entry], stop: Callable[[Entry], bool]) -> tuple[Entry | None, list[Entry]]:
    """Return the first entry for which `stop` is true, and all newer ones, oldest first; `entries` come newest first."""
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


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are invalid in XML, even escaped."""


def read_message(content: str) -> Message:
    """Parse the message in a user turn, written by `mail.core.protocol.xml`; other text counts as a user's message."""
    if not content.startswith("<incoming_message>"):
        return Message("user", "user", (), "", content)
    message = ElementTree.fromstring(_NOT_XML.sub("\ufffd", content))  # noqa: S314 - we wrote it
    sender = message.find("from")
    return Message(
        sender_type=sender.get("type", "") if sender is not None else "",
        sender=message.findtext("from", ""),
        recipients=tuple(address.text or "" for address in message.iterfind("to/address")),
        subject=message.findtext("subject", ""),
        body=message.findtext("body", ""),
    )
