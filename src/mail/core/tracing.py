"""Following a task over queues, processes and swarms: W3C Trace Context, as plain text, and what a tracer is told.

The `traceparent` of a task is kept in its record and goes with its mail to other swarms, in `routing_info` and as the
HTTP header of that name, whether anybody traces here or not. Spans are made by `mail.telemetry`, where that is wanted.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from mail.core.calls import AgentToolCall
from mail.core.change import Claim, Turn
from mail.core.context import CURRENT_TRACE
from mail.core.usage import UsageMeter

TRACEPARENT = "traceparent"
"""The name of the header, and of the key in `routing_info`."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(given: object) -> str:
    """A `traceparent` as others give it; empty where it is none (https://www.w3.org/TR/trace-context/)."""
    return given if isinstance(given, str) and _FORM.fullmatch(given) else ""


def traceparent_in(routing_info: Mapping[str, object] | None) -> str:
    """That of a message; empty where it has none."""
    return read_traceparent((routing_info or {}).get(TRACEPARENT))


def same_trace(one: str, other: str) -> bool:
    """Whether two `traceparent` are of one trace."""
    return one.split("-")[1:2] == other.split("-")[1:2]


class Span(Protocol):
    """Something that is being done."""

    def note(self, name: str, value: str | int | float) -> None:
        """Say something of it."""
        ...


class _NoSpan:
    def note(self, name: str, value: str | int | float) -> None:
        """Nobody listens."""


_NO_SPAN: AbstractContextManager[Span] = nullcontext(_NoSpan())

Doing = AbstractContextManager[Span]
"""What is done inside belongs to the span; what it raises has made it fail."""


class Tracer:
    """Is told what is done. This one doesn't listen: it costs next to nothing, and passes on what others gave."""

    def request(self, method: str, traceparent: str) -> Doing:
        """An HTTP request, whose caller may trace it."""
        return _NO_SPAN

    def turn(self, turn: Claim) -> Doing:
        """A turn of a mailbox, from when it is leased to its commit."""
        return _NO_SPAN

    def agent_call(self, turn: Turn, meter: UsageMeter) -> Doing:
        """The agent of a turn deciding, with its models, which report to the meter."""
        return _NO_SPAN

    def action(self, call: AgentToolCall) -> Doing:
        """An action being run."""
        return _NO_SPAN

    def delivery(self, turn: Turn, swarm: str) -> Doing:
        """Mail being handed over to another swarm."""
        return _NO_SPAN

    def position(self) -> str:
        """The `traceparent` of what is being done; empty where that belongs to no trace."""
        return CURRENT_TRACE.get()

    def beginning(self) -> str:
        """Likewise, for a task that begins: it gets a trace of its own where it would have none."""
        return self.position()

    def joins(self, traceparent: str) -> None:
        """What is being done concerns a task that is traced there."""


NO_TRACER = Tracer()
