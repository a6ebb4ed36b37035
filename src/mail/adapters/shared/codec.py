"""The JSON of stored values, the same in every store."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from itertools import batched
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import from_json

from mail.core.engine.pacing import PIECE_BYTES, Paced
from mail.core.protocol.message import MAILMessage
from mail.core.task.context import Portion
from mail.core.task.events import Event, EventKind, read_extra
from mail.core.task.stored import STORED_TYPES, read, read_task
from mail.core.task.task import Task

EVENTS_AT_ONCE = 128
"""The number of events of a long commit that are decoded without a pause."""


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


def decode_events(stored: bytes | str | Sequence[Any]) -> tuple[Event, ...]:
    """Decode what `mail.core.task.events.encode_events` has encoded. Raises WrittenLater."""
    return tuple(
        [
            Event(seq, kind, timestamp, text, read_extra(kind, extra), message)
            for seq, kind, timestamp, text, extra, message in read(_EVENTS, stored)
        ]
    )


def decoding(texts: Iterable[bytes | str]) -> Generator[None, None, list[Event]]:
    """Decode the events of commits, long ones in slices. Raises WrittenLater."""
    events: list[Event] = []
    for text in texts:
        if len(text) <= PIECE_BYTES:
            events += decode_events(text)
            continue
        for n, some in enumerate(batched(from_json(text), EVENTS_AT_ONCE)):
            if n:
                yield
            events += decode_events(some)
    return events


def decode_portion(n: int, text: bytes | str) -> Portion:
    """Decode what one turn has added to a history (`HistoryRecord.encoded`)."""
    return Portion(n, from_json(text), len(text))


async def read_tasks[T](
    states: Iterable[tuple[T, bytes | str]], pacer: Paced, *, max_bytes: int | None = None
) -> AsyncGenerator[tuple[T, Task]]:
    """Yield tasks, given their states and what is known of each besides, with pauses between many.

    They end after the state with which they reach `max_bytes`.
    """
    size = 0
    for known, state in upto_bytes(states, lambda each: len(each[1]), max_bytes):
        yield known, read_task(state)
        size += len(state)
        if size >= PIECE_BYTES:
            await pacer.pause(size)
            size = 0


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
