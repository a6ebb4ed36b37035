"""`POST /message`: a person talks to the swarm."""

from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.core.engine.watch import Submitted
from mail.core.protocol.message import MAILMessage
from mail.http.access import RoleGate
from mail.http.bodies import JSON, JSONBody
from mail.http.idempotency import PARAMETERS, submit
from mail.http.openapi import EVENT_STREAM, PROTECTED, problems
from mail.http.preferences import Preference, read_preference
from mail.http.schemas import Accepted, Answer, PostMessage
from mail.http.service import Service, service_of
from mail.http.sse import stream_events
from mail.http.task_json import answer_events

router = APIRouter(tags=["messages"])
_gate = RoleGate("admin", "user")
_body = JSONBody(PostMessage)

TASK_HEADERS: dict[str, Any] = {
    "X-Task-ID": {"description": "The task's id, percent-encoded.", "schema": {"type": "string"}},
    "X-Last-Event-ID": {
        "description": "The event before the message's own: after which a stream that broke off begins again.",
        "schema": {"type": "string"},
    },
}
ACCEPTED: dict[str, Any] = {
    "description": "The message is stored; the answer was not awaited.",
    "model": Accepted,
    "headers": {
        **TASK_HEADERS,
        "Location": {"description": "Where the task is.", "schema": {"type": "string"}},
        "Preference-Applied": {"description": "What was preferred.", "schema": {"type": "string"}},
    },
}
"""What OpenAPI says of `accepted`."""

PREFER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`respond-async` to be answered at once, `wait=N` to wait for N seconds at most; both then "
    "answer 202 with where to look.",
    "examples": {"at once": {"value": "respond-async"}, "in ten seconds": {"value": "wait=10"}},
}


@router.post(
    "/message",
    summary="Send the swarm a message",
    response_model=Answer,
    responses={
        200: {
            "description": "The answer or, with `stream`, a stream of events that ends with it.",
            "content": EVENT_STREAM,
            "headers": TASK_HEADERS,
        },
        202: ACCEPTED,
        **problems(400, 404, 412, 413, 422, *PROTECTED),
    },
    openapi_extra={**_body.docs(), **_gate.docs(), "parameters": [PREFER, *PARAMETERS]},
)
async def post_message(request: Request) -> Response:
    """Begin a task, write to a running one, or resume one that has stopped, and wait for the answer.

    A client that goes away never cancels the task.
    """
    # Called here, not injected: on this, the hot path, resolving two dependencies takes FastAPI as long as
    # everything else that it does for a request.
    caller = await _gate(request)
    body = await _body(request)
    service = service_of(request)
    await service.refresh()
    principal = caller.principal(service.runtime.swarm.name)
    submitted = await submit(request, principal, body, body.submission())
    headers = task_headers(submitted)
    if body.stream:
        return stream_events(
            request, submitted.key, after=submitted.after, answering=submitted.seq, headers=headers
        )
    preference = read_preference(request.headers.getlist("prefer"))
    message = await await_answer(service, submitted, preference.within(service.patience(request)))
    if message is None:
        return accepted(request, submitted, preference, headers)
    events = None
    if body.show_events:
        timeline = await service.runtime.store.read_events(submitted.key, after=submitted.after)
        events = answer_events(timeline, submitted.key.task_id)
    return JSON({"response": message.message.body, "events": events}, headers=headers)


def task_headers(submitted: Submitted) -> dict[str, str]:
    """The headers that name the task, and the event after which its stream begins."""
    return {"X-Task-ID": quote(submitted.key.task_id, safe=""), "X-Last-Event-ID": str(submitted.after)}


async def await_answer(service: Service, submitted: Submitted, seconds: float | None) -> MAILMessage | None:
    """The finishing message; None when nobody can or wants to wait for it any longer, or the server stops."""
    if seconds == 0:
        return None
    try:
        async with service.stopping.cuts_short():
            return await service.runtime.wait(submitted, seconds)
    except TimeoutError:
        return None


def accepted(request: Request, submitted: Submitted, preference: Preference, headers: dict[str, str]) -> JSON:
    """The answer where nobody waits for one: where to look."""
    root = request.scope.get("root_path", "")
    task_id = submitted.key.task_id
    task = f"{root}/task?{urlencode({'task_id': task_id})}"
    stream = f"{service_of(request).stream_url or root}/task/stream?{urlencode({'task_id': task_id, 'last_event_id': submitted.after})}"
    headers = {**headers, "Location": task}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    links = {"task": task, "stream": stream}
    return JSON({"task_id": task_id, "links": links}, status_code=202, headers=headers)
