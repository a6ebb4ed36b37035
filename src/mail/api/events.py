"""A task's events as `ServerSentEvent`s, in a list or as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent

from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Submitted
from mail.core.task.events import Event
from mail.http.sse import HEADERS, NEVER_PING, encode, frame


def up_to_answer(events: Iterable[Event], submitted: Submitted) -> list[ServerSentEvent]:
    """The events up to the one that answers a submission."""
    entries = []
    for event in events:
        entries.append(frame(event, submitted.key.task_id))
        if event.answers(submitted.seq):
            break
    return entries


def stream(runtime: Runtime, submitted: Submitted, timeout: float | None) -> EventSourceResponse:
    """The events from a submission to its answer, as they happen; it ends early after `timeout` seconds."""
    return EventSourceResponse(_frames(runtime, submitted, timeout), headers=HEADERS, ping=NEVER_PING)


async def _frames(
    runtime: Runtime, submitted: Submitted, timeout: float | None
) -> AsyncGenerator[ServerSentEvent]:
    task_id = submitted.key.task_id
    end = None if timeout is None else asyncio.get_running_loop().time() + timeout
    async with aclosing(
        runtime.watch(submitted.key, after=submitted.after, answer_to=submitted.seq)
    ) as watch:
        while True:
            try:
                async with asyncio.timeout_at(end):
                    events = await anext(watch, None)
            except TimeoutError:
                return
            if events is None:
                return
            for event in events:
                yield frame(event, task_id)
            if not events:
                yield encode("ping", {"timestamp": runtime.clock.now().isoformat(), "task_id": task_id})
