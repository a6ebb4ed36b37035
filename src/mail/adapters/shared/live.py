"""Live events that are sent together."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mail.core.task.live import LiveEvent, LiveKind

DELTA_CHARACTERS = 1_000
"""The longest piece of text in one event; in JSON, a character may take six bytes."""


def join_deltas(events: Iterable[LiveEvent]) -> Iterator[LiveEvent]:
    """Yield the events, with the pieces of one text joined, and cut into pieces that can be sent."""
    last: LiveEvent | None = None
    for event in events:
        if last is not None and last.kind is event.kind is LiveKind.TEXT_DELTA and _same_text(last, event):
            last = replace(event, extra={**event.extra, "delta": last.extra["delta"] + event.extra["delta"]})
            continue
        if last is not None:
            yield from _cut(last)
        last = event
    if last is not None:
        yield from _cut(last)


def _same_text(one: LiveEvent, other: LiveEvent) -> bool:
    return one.turn == other.turn and {**one.extra, "delta": ""} == {**other.extra, "delta": ""}


def _cut(event: LiveEvent) -> Iterator[LiveEvent]:
    if event.kind is not LiveKind.TEXT_DELTA:
        yield event
        return
    text = event.extra["delta"]
    for begin in range(0, len(text), DELTA_CHARACTERS):
        yield replace(event, extra={**event.extra, "delta": text[begin : begin + DELTA_CHARACTERS]})
