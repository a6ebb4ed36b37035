"""A response as a stream of OpenAI's events.

While the swarm works, a stream has no events to send: the answer arrives as a whole. Every stream of one response has
the same events with the same numbers, so that an interrupted stream can be resumed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import nullcontext
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from fastapi import Request

from mail.auth.keys import find_bearer
from mail.core.engine.watch import LONG_POLL, read_timeline
from mail.core.task.task import TaskKey
from mail.http.openai.output import Echo, JSONObject, Work, describe
from mail.http.openai.submission import ResponseId
from mail.http.service import Service, StopSignal, service_of
from mail.http.sse import HEADERS, SHUTDOWN_GRACE, encode

if TYPE_CHECKING:  # as in `mail.http.sse`
    from sse_starlette import EventSourceResponse


async def await_end(
    service: Service,
    key: TaskKey,
    generation: int,
    seconds: float | None,
    refused: StopSignal | None = None,
) -> bool:
    """Wait until a generation ends, `seconds` have passed (None: no limit), the server stops, or a key is `refused`.

    Return whether it has ended.
    """
    wait = service.runtime.store.wait_for_response
    try:
        async with (
            service.stopping.cuts_short(),
            nullcontext() if refused is None else refused.cuts_short(),
            asyncio.timeout(seconds),
        ):
            while await wait(key, generation, seconds=LONG_POLL) is None:
                pass
    except TimeoutError:
        return await service.runtime.store.read_response(key, generation) is not None
    return True


def stream_response(
    request: Request,
    key: TaskKey,
    response_id: ResponseId,
    echo: Echo,
    *,
    seconds: float | None,
    starting_after: int = -1,
    headers: Mapping[str, str] | None = None,
) -> "EventSourceResponse":
    """Stream the events of a response whose numbers are higher than `starting_after`.

    After `seconds` (None: no limit), or when the server stops or the request's key is refused, the stream ends early.
    """
    from sse_starlette import EventSourceResponse

    service = service_of(request)
    return EventSourceResponse(
        _frames(request, key, response_id, echo, seconds, starting_after),
        headers={**HEADERS, **(headers or {})},
        ping=service.heartbeat,
        shutdown_grace_period=SHUTDOWN_GRACE,
    )


async def _frames(
    request: Request,
    key: TaskKey,
    response_id: ResponseId,
    echo: Echo,
    seconds: float | None,
    starting_after: int,
) -> AsyncGenerator[bytes]:
    numbers = count()

    def frames(events: Iterator[JSONObject]) -> Iterator[bytes]:
        for event, number in zip(events, numbers, strict=False):
            if number > starting_after:
                yield encode(event["type"], {**event, "sequence_number": number})

    service = service_of(request)
    store, holding = service.runtime.store, service.holding(request)
    begun = await Work.of(read_timeline(store, key, holding), response_id.generation, at_first=True)
    response = describe(response_id, echo, begun)
    first = [{"type": kind, "response": response} for kind in ("response.created", "response.in_progress")]
    for frame in frames(iter(first)):
        yield frame
    async with service.open_streams.watched(service.authenticator, find_bearer(request.headers)) as refused:
        if not await await_end(service, key, response_id.generation, seconds, refused):
            return
    work = await Work.of(read_timeline(store, key, holding), response_id.generation)
    response = describe(response_id, echo, work)
    items = chain.from_iterable(_item_events(item, index) for index, item in enumerate(response["output"]))
    last = {"type": f"response.{response['status']}", "response": response}
    for frame in frames(chain(items, [last])):
        yield frame


def _item_events(item: JSONObject, index: int) -> Iterator[JSONObject]:
    at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress"}
    if item["type"] == "function_call":
        yield _added({**begun, "arguments": ""}, index)
        arguments = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", "delta": arguments, **at}
        done = {"arguments": arguments, "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **done, **at}
    else:
        yield _added({**begun, "content": []}, index)
        [part] = item["content"]
        at["content_index"] = 0
        yield {"type": "response.content_part.added", "part": {**part, "text": ""}, **at}
        text = part["text"]
        yield {"type": "response.output_text.delta", "delta": text, "logprobs": [], **at}
        yield {"type": "response.output_text.done", "text": text, "logprobs": [], **at}
        yield {"type": "response.content_part.done", "part": part, **at}
    yield {"type": "response.output_item.done", "item": item, "output_index": index}


def _added(item: JSONObject, index: int) -> JSONObject:
    return {"type": "response.output_item.added", "item": item, "output_index": index}
