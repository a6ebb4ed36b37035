"""Server-Sent Events: streams of a task's events (SPEC, section 9)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from pydantic import Field
from pydantic_core import to_json

from mail.auth.keys import find_bearer
from mail.core.engine.commit import load_task
from mail.core.task.events import Event, EventKind
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.size import event_size
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable
from mail.http.account import SMALL_BYTES, Holding
from mail.http.bodies import SCHEMAS, Answered, chunks
from mail.http.conversations import read_items
from mail.http.service import service_of

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # imported when the first stream begins, as it imports uvicorn
    from sse_starlette import EventSourceResponse

    from mail.core.decisions.conversation import Conversation
    from mail.core.decisions.items import Item

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
    seconds: float | None = None,
) -> "EventSourceResponse":
    """Stream the events after `after`, up to the answer to message `until_answer_to` or else the end of the task.

    With `live`, live events are among them, and with `deltas` the pieces of models' replies, too. With `items`,
    each event comes after the items that it adds or changes.

    Without `pings`, nothing is sent between events. A client that disconnects ends the stream, never the task. After
    `seconds`, or if the request's time runs out, the stream ends early, between two events: the client resumes with
    `Last-Event-ID`. It also ends if the request's key is refused meanwhile.
    """
    service = service_of(request)
    runtime, pacer = service.runtime, service.runtime.pacer

    async def frames() -> AsyncGenerator[bytes]:
        reader: Conversation | None = None
        batches = read_batches(
            request,
            key,
            after,
            answer_to=until_answer_to,
            live=live or deltas,
            deltas=deltas,
            seconds=seconds,
        )
        async with aclosing(batches):
            async for events in batches:
                if items and reader is None and events:
                    task = await load_task(runtime.store, key)
                    reader = await service.conversations.reader(runtime.store, task, after, pacer)
                if reader is not None:
                    # before the events, so that a client that resumes after one of them has got its items
                    stored = (event for event in events if isinstance(event, Event))
                    for item in await read_items(reader, stored, pacer):
                        yield encode(ITEM, item)
                encoded, size = list[bytes](), 0  # sent together, as sending one takes longer than making it
                for event in events:
                    if isinstance(event, LiveEvent):
                        encoded.append(encode(event.kind.value, event.data(key.task_id)))
                    else:
                        await pacer.pause(event_size(event))
                        encoded.append(encode(event.kind.value, event.data(key.task_id), str(event.seq)))
                    size += len(encoded[-1])
                    if event is events[-1] or size > SMALL_BYTES:
                        for chunk in chunks(b"".join(encoded)):
                            yield chunk
                        encoded, size = [], 0
                if pings and not events:
                    now = runtime.clock.now().isoformat()
                    yield encode("ping", {"timestamp": now, "task_id": key.task_id})
                del events  # nothing that was sent is kept while nothing happens

    return respond(request, frames(), headers)


def respond(
    request: Request, frames: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None
) -> "EventSourceResponse":
    """Return the stream of these frames, which ends early, for its client to resume, if the store can't be reached."""
    from sse_starlette import EventSourceResponse

    return EventSourceResponse(
        _while_stored(service_of(request).holding(request), frames),
        headers={**HEADERS, **(headers or {})},
        ping=NEVER_PING,
        shutdown_grace_period=SHUTDOWN_GRACE,
    )


async def _while_stored(holding: Holding, frames: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(frames):
            async for each in frames:
                yield each
    except StoreUnavailable as error:
        logger.warning("a stream has ended, as the store can't be reached: %s", error.detail)
    finally:
        await holding.close_stream()


async def read_batches(
    request: Request,
    key: TaskKey,
    after: int,
    *,
    answer_to: int | None = None,
    live: bool = False,
    deltas: bool = False,
    seconds: float | None = None,
) -> AsyncGenerator[list[Event] | list[LiveEvent]]:
    """Yield the batches of a task's watch until the stream has to end, each when there is room for it.

    It ends early after `seconds`, if the request's time is up, its key is refused or the server stops. A batch that has
    to wait for room is not kept meanwhile, but read again by another watch. An empty batch stands for each heartbeat
    without events.
    """
    service = service_of(request)
    runtime, holding = service.runtime, service.holding(request)
    limits = [limit for limit in (seconds, service.wait_limit(request)) if limit is not None]
    end = asyncio.get_running_loop().time() + min(limits) if limits else None

    def watch() -> AsyncGenerator[list[Event] | list[LiveEvent]]:
        events = runtime.watch(key, after=after, answer_to=answer_to, heartbeat=service.heartbeat, calls=live)
        return runtime.with_live(key, events, deltas=deltas) if live else events

    bearer = find_bearer(request.headers)
    async with service.open_streams.watched(service.authenticator, bearer) as refused:
        with suppress(TimeoutError):
            while True:
                async with aclosing(watch()) as batches:
                    while True:
                        async with (
                            service.stopping.cuts_short(),
                            refused.cuts_short(),
                            asyncio.timeout_at(end),
                        ):
                            events = await anext(batches, None)
                        if events is None:
                            return
                        size = sum(event_size(event) for event in events if isinstance(event, Event))
                        if size > SMALL_BYTES and not holding.take(size):
                            break
                        last = events[-1] if events else None
                        yield events
                        after = last.seq if isinstance(last, Event) else after
                        events = last = None
                        if size > SMALL_BYTES:
                            holding.take(0)
                events = None
                has_room = False
                while not has_room:
                    async with service.stopping.cuts_short(), refused.cuts_short(), asyncio.timeout_at(end):
                        has_room = await holding.wait(size, service.heartbeat)
                    if not has_room:
                        yield []


def encode(event: str, data: "dict[str, Any] | Item", seq: str | None = None) -> bytes:
    """Return a frame of a stream."""
    head = f"event: {event}\r\n" if seq is None else f"id: {seq}\r\nevent: {event}\r\n"
    # ASCII, because clients that split lines by Python's rules treat U+2028 and the like as line ends.
    return b"%bdata: %b\r\n\r\n" % (head.encode(), to_json(data, ensure_ascii=True))
