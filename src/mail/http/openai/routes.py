"""`POST /responses` and `GET /responses/{id}`: only in debug mode, and not in the OpenAPI document."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.engine.watch import read_timeline
from mail.core.task.task import Task, TaskKey
from mail.http.access import RoleGate
from mail.http.bodies import JSON, JSONBody
from mail.http.openai.errors import OpenAIRoute, RefusedRequest, ResponseNotFound
from mail.http.openai.output import Echo, Work, describe
from mail.http.openai.request import PostResponses
from mail.http.openai.stream import await_end, stream_response
from mail.http.openai.submission import Previous, ResponseId, make_submission
from mail.http.routes.message import task_headers
from mail.http.service import Service, header, service_of
from mail.http.submission import follow_trace
from mail.http.task_json import reading

MAX_NUMBER = 2**53

MAIL_CLIENT = "MAIL-Client"
"""Begins the `User-Agent` of the client of MAIL 1.3.6."""

router = APIRouter(route_class=OpenAIRoute, include_in_schema=False)
_gate = RoleGate("admin", "user")
_body = JSONBody(PostResponses)


@router.post("/responses")
async def post_responses(request: Request) -> Response:
    """Send the swarm a request, and answer with the response, whole or as a stream.

    In the background, or if the time is up, the response is still in progress: GET it later. The client of MAIL 1.3.6
    gets JSON text that holds the response.
    """
    caller = await _gate(request)
    body = await _body(request)
    service = service_of(request)
    if body.stream:
        service.holding(request).open_stream()
    await service.refresh()
    follow_trace(request)
    swarm = service.runtime.swarm.name
    submission = make_submission(body, await _previous(service, caller, body.previous_response_id))
    submitted = await service.runtime.submit(caller.principal(swarm), submission)
    response_id = ResponseId(submitted.key.task_id, submitted.generation)
    echo = Echo(submission.client_tools, submission.notes, swarm)
    headers = task_headers(submitted)
    seconds = service.wait_limit(request)
    if body.stream:
        return stream_response(request, submitted.key, response_id, echo, seconds=seconds, headers=headers)
    if not body.background:
        await await_end(service, submitted.key, response_id.generation, seconds)
    timeline = read_timeline(service.runtime.store, submitted.key, service.holding(request))
    work = await Work.of(timeline, response_id.generation)
    response = describe(response_id, echo, work)
    return JSON(to_json(response).decode() if _wants_text(request, body) else response, headers=headers)


@router.get("/responses/{response_id:path}")
async def get_response(
    request: Request,
    response_id: str,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1, le=MAX_NUMBER)] = -1,
) -> Response:
    """Return a response in its current state, or as a stream of its events.

    The fields that it repeats from its request are stored until the task's next response begins.
    """
    caller = await _gate(request)
    service = service_of(request)
    found = await _find(service, caller, response_id)
    if found is None:
        raise ResponseNotFound(f"Response with id '{response_id}' not found.")
    name, task = found
    swarm = service.runtime.swarm.name
    is_newest = name.generation == task.generation.number
    echo = (
        Echo(task.generation.client_tools, task.generation.notes, swarm)
        if is_newest
        else Echo(None, {}, swarm)
    )
    if stream:
        service.holding(request).open_stream()
        seconds = service.wait_limit(request)
        return stream_response(request, task.key, name, echo, seconds=seconds, starting_after=starting_after)
    timeline = read_timeline(service.runtime.store, task.key, reading(service, request, task))
    work = await Work.of(timeline, name.generation)
    return JSON(describe(name, echo, work))


def _wants_text(request: Request, body: PostResponses) -> bool:
    """Return whether the request is of a client like that of MAIL 1.3.6, which sends `kwargs` only if it has any."""
    is_mail_client = (header(request, b"user-agent") or "").startswith(MAIL_CLIENT)
    return is_mail_client or body.kwargs is not None


async def _previous(service: Service, caller: Caller, response_id: str | None) -> Previous | None:
    """Return the response that a request continues. Raises RefusedRequest if the caller has none with this id."""
    if response_id is None:
        return None
    found = await _find(service, caller, response_id)
    if found is None:
        raise RefusedRequest(
            f"Previous response with id '{response_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    name, task = found
    return Previous(task, name.generation)


async def _find(service: Service, caller: Caller, response_id: str) -> tuple[ResponseId, Task] | None:
    """Return one of the caller's responses, with its task; None for unknown ids and other callers' responses."""
    name = ResponseId.parse(response_id)
    if name is None:
        return None
    runtime = service.runtime
    task = await runtime.store.load(TaskKey(str(caller.principal(runtime.swarm.name)), name.task_id))
    return None if task is None or name.generation > task.generation.number else (name, task)
