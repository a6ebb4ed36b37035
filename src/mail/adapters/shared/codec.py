"""How records are written as JSON text, the same in every store."""

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from mail.core.task.events import Event
from mail.core.task.swarm import History

_EVENTS = TypeAdapter(tuple[Event, ...])


def encode_events(events: tuple[Event, ...]) -> bytes:
    """The batch of events of one commit."""
    return _EVENTS.dump_json(events)


def decode_events(text: bytes | str) -> tuple[Event, ...]:
    """The inverse of `encode_events`."""
    return _EVENTS.validate_json(text)


def encode_history(entries: History) -> bytes:
    """One history record. Raises ValueError for entries that JSON can't hold."""
    return to_json(entries)


def decode_history(text: bytes | str) -> History:
    """The inverse of `encode_history`."""
    entries: History = from_json(text)
    return entries
