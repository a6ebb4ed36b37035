"""A stream of events as it is shown."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mail.cli.output import Output
from mail.cli.timeline import printer, read_event, read_line

if TYPE_CHECKING:
    from mail.client import EventStream

Data = Mapping[str, Any]


async def show_stream(
    stream: "EventStream",
    output: Output,
    *,
    seconds: Callable[[Data], float],
    learn: Callable[[str, Data], None] = lambda kind, data: None,
) -> str | None:
    """Print events as they arrive, to the end; returns the answer, if there was one.

    `seconds` tells when an event was, given its data. `learn` is told the kind and data of each.
    """
    from mail.client.stream import PING, TERMINAL

    show = printer(output.stream)
    answer: str | None = None
    async with stream:
        async for event in stream:
            if event.event == PING:
                continue
            kind, data = read_event(event)
            learn(kind, data)
            line = read_line(kind, data, seconds(data))
            output.result({"event": kind, "id": event.id, "data": data}, partial(show, line))
            if kind in TERMINAL:
                answer = str(data["response"])
    return answer


def show_answer(answer: str | None, output: Output) -> None:
    """Print the whole answer below a timeline, which has only its beginning."""
    if answer is not None and not output.as_json:
        output.text(f"\nAnswer: {answer}")
