"""The size of what a task stores: its texts in bytes of UTF-8, and a little for the rest.

It is measured without writing anything as JSON, so that a commit knows what it adds before it is written.
"""

from mail.core.protocol.message import MAILMessage
from mail.core.task.events import Event
from mail.core.task.extras import NO_EXTRA
from mail.core.task.turn_state import Breakpoint, Decision

OVERHEAD = 200
"""Bytes of a message or an event besides its texts: ids, addresses, times and names of fields."""

SCALAR = 8
"""Bytes of a number, of a truth value, and of the signs around a text."""

MAX_HELD = 256 * 1024
"""The bytes of the arguments of all calls of a turn that wait for a person, and of a decision: more than one reads."""

_LISTS = (list, tuple)


def text_size(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def json_size(value: object) -> int:
    """Return the approximate size of a JSON value. Raises RecursionError for one that is nested too deeply."""
    if isinstance(value, str):
        return text_size(value) + SCALAR
    size = SCALAR
    if isinstance(value, dict):
        for key, item in value.items():
            size += len(key) + SCALAR if isinstance(key, str) and key.isascii() else json_size(key)
            size += len(item) + SCALAR if isinstance(item, str) and item.isascii() else json_size(item)
    elif isinstance(value, _LISTS):
        for item in value:
            size += len(item) + SCALAR if isinstance(item, str) and item.isascii() else json_size(item)
    return size


def message_size(message: MAILMessage) -> int:
    """Return the size of a message."""
    payload = message.message
    routing = payload.routing_info
    subject, body = payload.subject, payload.body
    size = OVERHEAD + (len(body) if body.isascii() else text_size(body))  # spares the usual body a call
    size += len(subject) if subject.isascii() else text_size(subject)
    return size + json_size(routing) if routing else size


def paused_size(reached: Breakpoint | None) -> int:
    """Return the size of the calls at which a task is paused, with decisions: they may be most of it in memory."""
    if reached is None:
        return 0
    return sum(json_size(call.arguments) for call in reached.calls) + decisions_size(reached)


def decisions_size(reached: Breakpoint) -> int:
    """Return the size of the decisions on the calls at which a task is paused."""
    return sum(decision_size(call.approval) for call in reached.calls if call.approval is not None)


def decision_size(decision: Decision) -> int:
    """Return the size of the answer and of the edited arguments of a decision."""
    return text_size(decision.answer) + json_size(decision.arguments)


def event_size(event: Event) -> int:
    """Return the size of an event with its message."""
    size = OVERHEAD + text_size(event.text)
    if event.extra is not NO_EXTRA:
        size += json_size(event.extra.as_json())
    return size if event.message is None else size + message_size(event.message)
