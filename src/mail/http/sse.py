"""Server-Sent Events: a task's events as they happen (SPEC, section 9)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import Request
from pydantic_core import to_json

from mail.core.task.events import Event
from mail.core.task.task import TaskKey
from mail.http.service import Service, service_of

if TYPE_CHECKING:  # imported when the first stream begins: it brings all of uvicorn
    from sse_starlette import EventSourceResponse, ServerSentEvent

HEADERS = {"Cache-Control": "no-cache"}

NEVER_PING = 10**9
"""Seconds between the pings of sse-starlette: pings are events of ours, with data."""

SHUTDOWN_GRACE = 5.0
"""Seconds that sse-starlette leaves a stream to end by itself when the server stops, before it breaks it off."""


def stream_events(
    request: Request,
    key: TaskKey,
    *,
    after: int,
    answering: int | None = None,
    headers: Mapping[str, str] | None = None,
    pings: bool = True,
) -> "EventSourceResponse":
    """Stream the events past `after`, to the answer to the message `answering` or else to the end of the task.

    Without `pings` it is silent while nothing happens. A client that goes away ends the stream, never the task. Where the request's time runs out the stream ends
    early, between two events: the client comes back with `Last-Event-ID`.
    """
    from sse_starlette import EventSourceResponse

    service = service_of(request)
    return EventSourceResponse(
        _frames(service, key, after, answering, service.patience(request), pings),
        headers={**HEADERS, **(headers or {})},
        ping=NEVER_PING,
        shutdown_grace_period=SHUTDOWN_GRACE,
    )


async def _frames(
    service: Service, key: TaskKey, after: int, answering: int | None, seconds: float | None, pings: bool
) -> AsyncGenerator["ServerSentEvent"]:
    watch = service.runtime.watch(key, after=after, answer_to=answering, heartbeat=service.heartbeat)
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    async with aclosing(watch):
        while True:
            try:
                async with service.stopping.cuts_short(), asyncio.timeout_at(end):
                    events = await anext(watch, None)
            except TimeoutError:
                return
            if events is None:
                return
            for event in events:
                yield frame(event, key.task_id)
            if pings and not events:
                now = service.runtime.clock.now().isoformat()
                yield encode("ping", {"timestamp": now, "task_id": key.task_id})


def frame(event: Event, task_id: str) -> "ServerSentEvent":
    """An event as clients get it."""
    return encode(event.kind.value, event.data(task_id), str(event.seq))


def encode(event: str, data: dict[str, Any], seq: str | None = None) -> "ServerSentEvent":
    """A frame of a stream."""
    from sse_starlette import ServerSentEvent

    # ASCII, as clients that split lines by Python's rules take U+2028 and its like for line ends.
    return ServerSentEvent(to_json(data, ensure_ascii=True).decode(), event=event, id=seq)
