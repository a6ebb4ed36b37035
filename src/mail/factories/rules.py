"""Agents without a model: a *rule* is a function from what the agent sees (`View`) to the calls that it makes now.

    @rule_based
    def shouter(view: View) -> list[Call]:
        return [respond(view.mail.sender, view.mail.body.upper())]

    Agent("shouter", factory=shouter)

A rule must depend on nothing but the view, so that an agent does the same when its turn is run again.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from mail.core.protocol.address import EVERYONE
from mail.core.protocol.calls import compose_reply, is_tool_result
from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.core.protocol.xml import IncomingMail, read_mail_xml
from mail.core.task.swarm import AgentFunction, History, ToolChoice
from mail.errors import Subject


class Call(NamedTuple):
    """A tool call that a rule makes."""

    tool: str
    args: dict[str, Any]
    reasoning: list[str] | None = None
    preamble: str | None = None


def call(tool: str, **args: Any) -> Call:
    """Call any tool: `call("get_weather", city="Tokyo")`."""
    return Call(tool, args)


def request(target: str, body: str = "please", subject: str = "Request") -> Call:
    """Send a request to an agent."""
    return call("send_request", target=target, subject=subject, body=body)


def respond(target: str, body: str = "done", subject: str = "Response") -> Call:
    """Send a response to an agent."""
    return call("send_response", target=target, subject=subject, body=body)


def interrupt(target: str, body: str = "stop", subject: str = "Interrupt") -> Call:
    """Interrupt an agent."""
    return call("send_interrupt", target=target, subject=subject, body=body)


def broadcast(body: str = "hear", subject: str = "News") -> Call:
    """Send a message to all agents."""
    return call("send_broadcast", subject=subject, body=body)


def wait(reason: str | None = None) -> Call:
    """End the turn, and wait for mail."""
    return call("await_message", reason=reason) if reason else call("await_message")


def complete(answer: str = "done") -> Call:
    """Complete the task with an answer."""
    return call("task_complete", finish_message=answer)


def acknowledge(note: str | None = None) -> Call:
    """Acknowledge a broadcast."""
    return call("acknowledge_broadcast", note=note) if note else call("acknowledge_broadcast")


def ignore(reason: str | None = None) -> Call:
    """Ignore a broadcast."""
    return call("ignore_broadcast", reason=reason) if reason else call("ignore_broadcast")


class ReceivedMessage(NamedTuple):
    """A message as an agent reads it."""

    sender_type: str
    sender: str
    subject: str
    body: str
    recipients: tuple[tuple[str, str], ...] = ()
    timestamp: str = ""

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
        return any(address == EVERYONE for _, address in self.recipients)


def read_message(entry: dict[str, Any]) -> ReceivedMessage | None:
    """Return the message in a history entry; None if the entry is something else."""
    content = entry.get("content")
    if entry.get("role") != "user" or not isinstance(content, str):
        return None
    return received(read_mail_xml(content))


def received(mail: IncomingMail) -> ReceivedMessage:
    """Return a message to the agent, as it was read from a history entry."""
    return ReceivedMessage(
        sender_type=mail.sender.address_type,
        sender=mail.sender.address,
        subject=mail.subject,
        body=mail.body,
        recipients=tuple((each.address_type, each.address) for each in mail.recipients),
        timestamp=mail.timestamp,
    )


def read_messages(history: History) -> list[ReceivedMessage]:
    """Return the messages in a history, oldest first.

    The results of a breakpoint wake an agent without a message; they count as one from the system, with a line for
    each.
    """
    messages: list[ReceivedMessage] = []
    tools: dict[str, str] = {}
    results: list[str] = []
    for entry in (*history, {}):
        if is_tool_result(entry):
            text = str(entry.get("content", entry.get("output")))
            if not text.startswith(("SUCCESS: ", "ERROR: ")):
                results.append(f"{tools.get(entry.get('tool_call_id') or entry['call_id'])}: {text}")
            continue
        if (message := read_message(entry)) is not None:
            messages.append(message)
        elif results:
            messages.append(ReceivedMessage("system", "", Subject.ACTION_COMPLETE.value, "\n".join(results)))
        results = []
        tools |= {each["id"]: each["function"]["name"] for each in entry.get("tool_calls") or ()}
        if entry.get("type") == "function_call":
            tools[entry["call_id"]] = entry["name"]
    return messages


@dataclass(frozen=True)
class View:
    """What an agent sees when it is called."""

    history: History
    tool_choice: ToolChoice

    @cached_property
    def messages(self) -> list[ReceivedMessage]:
        """All messages that it remembers, oldest first; the last one woke it."""
        return read_messages(self.history)

    @property
    def mail(self) -> ReceivedMessage:
        """The message that woke it."""
        return self.messages[-1]

    @property
    def results(self) -> list[str]:
        """The results of its tool calls, oldest first."""
        return tool_results(self.history)


def tool_results(history: History) -> list[str]:
    """Return the texts of all tool results in a history, in either format."""
    return [str(entry.get("content", entry.get("output"))) for entry in history if is_tool_result(entry)]


Rule = Callable[[View], Sequence[Call] | Awaitable[Sequence[Call]]]


def output(
    calls: Sequence[Call],
    *,
    tool_format: ToolFormat = "completions",
    prefix: str = "call",
    text: str | None = None,
) -> list[AgentToolCall]:
    """Return the tool calls of one turn as an agent function does; all share their origin, as the output of a model."""
    ids = [f"{prefix}.{index}" for index in range(len(calls))]
    called = [(call_id, each.tool, each.args) for call_id, each in zip(ids, calls, strict=True)]
    reply = compose_reply(tool_format, text, called)
    return [
        AgentToolCall(
            tool_name=each.tool,
            tool_args=each.args,
            tool_call_id=call_id,
            reasoning=each.reasoning,
            preamble=each.preamble,
            **reply,
        )
        for call_id, each in zip(ids, calls, strict=True)
    ]


def scripted(
    rule: Rule, *, tool_format: ToolFormat = "completions", text: str | None = None, name: str = "call"
) -> AgentFunction:
    """Return an agent function that follows a rule. Call ids follow from the history, so that they repeat with it."""

    async def function(history: History, tool_choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
        calls = rule(View(history, tool_choice))
        if inspect.isawaitable(calls):
            calls = await calls
        prefix = f"{name}{len(history)}"
        return text, output(calls, tool_format=tool_format, prefix=prefix, text=text)

    return function


def rule_based(rule: Rule) -> Callable[..., AgentFunction]:
    """Return the factory of agents that follow a rule; it also works as a decorator."""

    def factory(*, name: str, tool_format: ToolFormat, **_wiring: Any) -> AgentFunction:
        return scripted(rule, tool_format=tool_format, name=name)

    return factory
