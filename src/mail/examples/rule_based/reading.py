"""Reading an agent's history: entries of either API become messages, calls and results."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mail.core.protocol.address import EVERYONE
from mail.core.protocol.xml import IncomingMail, read_mail_xml
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


def read_message(content: str) -> Message:
    """Return the message in a user turn, written by `build_mail_xml`; other text counts as a user's message."""
    try:
        return as_message(read_mail_xml(content))
    except ValueError:
        return Message("user", "user", (), "", content)


def as_message(mail: IncomingMail) -> Message:
    """Return a message to the agent, as it was read from a user turn."""
    return Message(
        sender_type=mail.sender.address_type,
        sender=mail.sender.address,
        recipients=tuple(recipient.address for recipient in mail.recipients),
        subject=mail.subject,
        body=mail.body,
    )
