"""`/interswarm/*`: other swarms bring mail, and people write to agents of other swarms."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from mail.auth.keys import Caller
from mail.core.engine.runtime import Received
from mail.http.access import AdminOrUser, Agent
from mail.http.bodies import JSON, JSONBody
from mail.http.idempotency import PARAMETERS, follow_trace, submit
from mail.http.interswarm_schemas import Delivered, InterswarmAnswer, PostInterswarm, PostInterswarmMessage
from mail.http.openapi import EVENT_STREAM, PROTECTED, problems
from mail.http.preferences import read_preference
from mail.http.routes.message import ACCEPTED, PREFER, TASK_HEADERS, accepted, await_answer, task_headers
from mail.http.service import service_of
from mail.http.sse import stream_events
from mail.http.task_json import answer_events

router = APIRouter(tags=["interswarm"])
_delivery = JSONBody(PostInterswarm)
_message = JSONBody(PostInterswarmMessage)
_delivery_docs: dict[str, Any] = {
    "response_model": Delivered,
    "responses": problems(400, 404, 413, *PROTECTED),
    "openapi_extra": _delivery.docs(),
}


@router.post("/interswarm/forward", summary="Bring a new task to the swarm", **_delivery_docs)
async def forward(
    request: Request, caller: Agent, body: Annotated[PostInterswarm, Depends(_delivery)]
) -> JSON:
    """Begin a task that another swarm asks for, or bring more mail for it. Only for swarms.

    The same `message_id` is taken once, however often it comes.
    """
    return await _receive(request, caller, body, back=False)


@router.post("/interswarm/back", summary="Bring mail for a known task", **_delivery_docs)
async def back(request: Request, caller: Agent, body: Annotated[PostInterswarm, Depends(_delivery)]) -> JSON:
    """Bring an answer, further mail or the completion of a task that this swarm has a part in. Only for swarms."""
    return await _receive(request, caller, body, back=True)


async def _receive(request: Request, caller: Caller, body: PostInterswarm, *, back: bool) -> JSON:
    service = service_of(request)
    await service.refresh()
    follow_trace(request)
    received: Received = await service.runtime.receive(caller.id, body.message, back=back)
    return JSON(
        {
            "swarm": service.runtime.swarm.name,
            "task_id": received.key.task_id,
            "status": "success",
            "local_runner": received.runner,
        }
    )


@router.post(
    "/interswarm/message",
    summary="Send a message to agents of other swarms",
    response_model=InterswarmAnswer,
    responses={
        200: {
            "description": "The answer or, with `stream`, a stream of events that ends with it.",
            "content": EVENT_STREAM,
            "headers": TASK_HEADERS,
        },
        202: ACCEPTED,
        **problems(400, 404, 412, 413, 422, *PROTECTED),
    },
    openapi_extra={**_message.docs(), "parameters": [PREFER, *PARAMETERS]},
)
async def send_message(
    request: Request, caller: AdminOrUser, body: Annotated[PostInterswarmMessage, Depends(_message)]
) -> Response:
    """Write to agents of other swarms, under a task of the caller's own, and wait for what they answer.

    A client that goes away never cancels the task.
    """
    service = service_of(request)
    await service.refresh()
    swarm = service.runtime.swarm.name
    submitted = await submit(request, caller.principal(swarm), body, body.submission(swarm))
    headers = task_headers(submitted)
    if body.stream:
        return stream_events(
            request,
            submitted.key,
            after=submitted.after,
            answering=submitted.seq,
            headers=headers,
            pings=not body.ignore_stream_pings,
        )
    preference = read_preference(request.headers.getlist("prefer"))
    message = await await_answer(service, submitted, preference.within(service.patience(request)))
    if message is None:
        return accepted(request, submitted, preference, headers)
    timeline = await service.runtime.store.read_events(submitted.key, after=submitted.after)
    events = answer_events(timeline, submitted.key.task_id)
    return JSON({"response": message.model_dump(mode="json"), "events": events}, headers=headers)
