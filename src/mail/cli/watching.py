"""A stream of events as it is shown, and what to do where it ends with a question."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mail.cli.output import Output
from mail.cli.status import Status, status_after
from mail.cli.views.timeline import Stopwatch, printer, read_event, read_line
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client import EventStream, MAILClient

Data = Mapping[str, Any]

RESULT = '{"breakpoint_tool_call_result": "your answer"}'


class Shown(NamedTuple):
    """What a stream has come to: the answer, if there was one, and how that has left the task."""

    answer: str | None
    status: Status | None


async def show_stream(
    client: "MAILClient",
    stream: "EventStream",
    output: Output,
    *,
    learn: Callable[[str, Data], None] = lambda kind, data: None,
) -> Shown:
    """Print events as they arrive, to the end. `learn` is told the kind and data of each."""
    from mail.client.stream import PING, TERMINAL

    show, stopwatch = printer(output.stream), None
    answer: str | None = None
    kinds: list[str] = []
    async with stream:
        async for event in stream:
            if event.event == PING:
                continue
            kind, data = read_event(event)
            learn(kind, data)
            kinds.append(kind)
            stopwatch = stopwatch or await stopwatch_for(client, stream.task_id, event.id, output)
            line = read_line(kind, data, stopwatch.read(data))
            output.result({"event": kind, "id": event.id, "data": data}, partial(show, line))
            if kind in TERMINAL:
                answer = str(data["response"])
    return Shown(answer, status_after(kinds))


async def stopwatch_for(
    client: "MAILClient", task_id: str, first_id: str | None, output: Output
) -> Stopwatch:
    """A stopwatch that was started by the task's first event, also where a later one is shown first."""
    from mail.cli.views.tasks import read_task

    stopwatch = Stopwatch()
    if first_id != "1" and not output.as_json:
        with suppress(MAILError):  # times are then those since the first event that is shown
            for _, data in read_task(await client.get_task(task_id)).timeline():
                stopwatch.read(data)
                break
    return stopwatch


def show_answer(answer: str | None, output: Output) -> None:
    """Print the whole answer below a timeline, which has only its beginning."""
    if answer is not None and not output.as_json:
        output.text(f"\nAnswer: {answer}")


def answering_line(task_id: str) -> str:
    """The client's command that tells a paused task the result of its call."""
    return shlex.join(
        [
            *("message-stream", "", "--task-id", task_id),
            *("--resume-from", "breakpoint_tool_call", "--kwargs", RESULT),
        ]
    )


def answering_command(url: str, *lines: str) -> str:
    """A command line that runs the client's commands."""
    return shlex.join(["mail", "client", url, *(word for line in lines for word in ("-c", line))])
