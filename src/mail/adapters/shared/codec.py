"""The JSON of stored values, the same in every store, and cursors over numbered tasks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import from_json

from mail.core.protocol.message import MAILMessage
from mail.core.task.events import Event, EventKind, read_extra
from mail.core.task.ports import TaskPage
from mail.core.task.stored import STORED_TYPES
from mail.core.task.swarm import History
from mail.core.task.task import Task
from mail.errors import BadRequest

LAST_NUMBER = 2**63 - 1


class _StoredEvent(NamedTuple):
    seq: int
    kind: EventKind
    timestamp: str
    text: str
    extra: dict[str, Any]
    message: MAILMessage | None


_EVENTS = TypeAdapter(list[_StoredEvent], config=ConfigDict(defer_build=True))


def build_validators() -> None:
    """Build the validators of stored values, which the first value that is read would else wait for."""
    for adapter in (*STORED_TYPES, _EVENTS):
        adapter.rebuild()
    MAILMessage.model_rebuild()


def decode_events(text: bytes | str) -> tuple[Event, ...]:
    """Decode what `mail.core.task.events.encode_events` has encoded."""
    return tuple(
        [
            Event(seq, kind, timestamp, text, read_extra(kind, extra), message)
            for seq, kind, timestamp, text, extra, message in _EVENTS.validate_json(text)
        ]
    )


def decode_history(text: bytes | str) -> History:
    """Decode what one turn has added to a history (`HistoryRecord.encoded`)."""
    entries: History = from_json(text)
    return entries


def upto_bytes[Item](
    items: Iterable[Item], size: Callable[[Item], int], max_bytes: int | None
) -> Iterator[Item]:
    """Yield items up to the one with which they reach `max_bytes`; all of them for None."""
    total = 0
    for item in items:
        yield item
        total += size(item)
        if max_bytes is not None and total >= max_bytes:
            return


def make_page(tasks: list[Task], cursors: list[str], limit: int) -> TaskPage:
    """Return a page of `limit` tasks; `cursors` are those behind each task, and one more if there are more tasks."""
    following = cursors[limit - 1] if len(cursors) > limit else None
    return TaskPage(tasks, following, cursors=tuple(cursors[: len(tasks)]))


def read_cursor(cursor: str | None) -> int:
    """Return the number of the task that a page ends before. Raises BadRequest for a cursor that no page gave out.

    Tasks are numbered in the order in which they began; pages list the newest first.
    """
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise foreign_cursor(cursor)
    return int(cursor or LAST_NUMBER)


def foreign_cursor(cursor: str) -> BadRequest:
    """Return the error for a cursor that no page gave out."""
    return BadRequest(f"cursor {cursor!r} is not a cursor of this server; use the one in its last answer")
