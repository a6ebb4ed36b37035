"""Server-Sent Events: streams of a task's events (SPEC, section 9)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from pydantic import Field
from pydantic_core import to_json

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Item
from mail.core.engine.commit import load_task
from mail.core.task.events import Event, EventKind
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.size import event_size
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable
from mail.http.bodies import SCHEMAS, Answered
from mail.http.conversations import read_items
from mail.http.service import Service, service_of

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # imported when the first stream begins, as it imports uvicorn
    from sse_starlette import EventSourceResponse, ServerSentEvent

HEADERS = {"Cache-Control": "no-cache"}

ITEM = "item"
"""The kind of the frames with the items of a conversation."""

NEVER_PING = 10**9
"""Seconds between pings of sse-starlette: the pings here are events with data."""

SHUTDOWN_GRACE = 5.0
"""Seconds that a stream gets to end by itself when the server stops, before sse-starlette aborts it."""


class StreamEvent(Answered):
    """One Server-Sent Event. A stream ends with `task_complete` or `task_error`."""

    event: EventKind | LiveKind | Literal["item", "ping"]
    id: str | None = Field(
        default=None,
        description="For `Last-Event-ID`; pings have none, nor have live events and items, which `live` and `items` "
        "ask for.",
    )
    data: str = Field(
        description="A JSON object. Ordinary events: `{timestamp, description, task_id, extra_data}`; a ping:"
        " `{timestamp, task_id}`; the last event: `{timestamp, task_id, response}`; an `item` of the conversation:"
        " as in `GET /task`, before the event that adds or changes it."
    )


EVENT_STREAM = {"text/event-stream": {"schema": {"$ref": f"{SCHEMAS}{StreamEvent.__name__}"}}}
"""Documents each event of a stream; OpenAPI 3.1 has no keyword for that."""


def stream_events(
    request: Request,
    key: TaskKey,
    *,
    after: int,
    until_answer_to: int | None = None,
    headers: Mapping[str, str] | None = None,
    pings: bool = True,
    live: bool = False,
    deltas: bool = False,
    items: bool = False,
) -> "EventSourceResponse":
    """Stream the events after `after`, up to the answer to message `until_answer_to` or else the end of the task.

    With `live`, live events are among them, and with `deltas` the pieces of models' replies, too. With `items`,
    each event comes after the items that it adds or changes.

    Without `pings`, nothing is sent between events. A client that disconnects ends the stream, never the task. If the
    request's time runs out, the stream ends early, between two events: the client resumes with `Last-Event-ID`.
    """
    from sse_starlette import EventSourceResponse

    service = service_of(request)
    return EventSourceResponse(
        _while_stored(
            _frames(
                service,
                key,
                after,
                until_answer_to,
                service.wait_limit(request),
                pings,
                live or deltas,
                deltas,
                items,
            )
        ),
        headers={**HEADERS, **(headers or {})},
        ping=NEVER_PING,
        shutdown_grace_period=SHUTDOWN_GRACE,
    )


async def _while_stored(frames: AsyncGenerator["ServerSentEvent"]) -> AsyncGenerator["ServerSentEvent"]:
    """Yield frames until the store can't be reached: then the stream ends early, and the client resumes it."""
    try:
        async with aclosing(frames):
            async for each in frames:
                yield each
    except StoreUnavailable as error:
        logger.warning("a stream has ended, as the store can't be reached: %s", error.detail)


async def _frames(
    service: Service,
    key: TaskKey,
    after: int,
    until_answer_to: int | None,
    seconds: float | None,
    pings: bool,
    live: bool,
    deltas: bool,
    items: bool,
) -> AsyncGenerator["ServerSentEvent"]:
    watch = service.runtime.watch(
        key, after=after, answer_to=until_answer_to, heartbeat=service.heartbeat, live=live, deltas=deltas
    )
    reader: Conversation | None = None
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
            if items and reader is None and events:
                task = await load_task(service.runtime.store, key)
                reader = await service.conversations.reader(
                    service.runtime.store, task, after, service.runtime.pacer
                )
            if reader is not None:
                numbered = [event for event in events if isinstance(event, Event)]
                # before the events, so that a client that resumes after one of them has got its items
                for item in await read_items(reader, numbered, service.runtime.pacer):
                    yield encode(ITEM, item)
            for event in events:
                if isinstance(event, LiveEvent):
                    yield encode(event.kind.value, event.data(key.task_id))
                    continue
                await service.runtime.pacer.pause(event_size(event))
                yield frame(event, key.task_id)
            if pings and not events:
                now = service.runtime.clock.now().isoformat()
                yield encode("ping", {"timestamp": now, "task_id": key.task_id})


def frame(event: Event, task_id: str, *, logged: bool = False) -> "ServerSentEvent":
    """Return the frame of an event in a stream or, if it is `logged`, in a record."""
    data = event.logged(task_id) if logged else event.data(task_id)
    return encode(event.kind.value, data, str(event.seq))


def encode(event: str, data: dict[str, Any] | Item, seq: str | None = None) -> "ServerSentEvent":
    """Return a frame of a stream."""
    from sse_starlette import ServerSentEvent

    # ASCII, because clients that split lines by Python's rules treat U+2028 and the like as line ends.
    return ServerSentEvent(to_json(data, ensure_ascii=True).decode(), event=event, id=seq)
