"""The work of the endpoints of `mail.http.routes.openai`; imported by the first request."""

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.engine.pacing import Paced
from mail.core.engine.watch import LONG_POLL, Submitted, read_timeline
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import value
from mail.core.task.audit import Act
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.http.audit import audited
from mail.http.bodies import JSON, Given, JSONBody
from mail.http.inputs import Entry, files_of
from mail.http.openai import chat, stream
from mail.http.openai.chat import PostChat
from mail.http.openai.errors import ModelNotFound, RefusedRequest, ResponseNotFound
from mail.http.openai.output import UNANSWERED, Echo, JSONObject, Work, describe
from mail.http.openai.request import CONVERSATION, PostResponses
from mail.http.openai.stream import Sought, follow
from mail.http.openai.submission import (
    Prepared,
    Previous,
    ResponseId,
    find_continued,
    make_submission,
)
from mail.http.routes.message import task_headers
from mail.http.runs import Runs
from mail.http.service import Service, header, service_of
from mail.http.sse import respond
from mail.http.submission import submit
from mail.http.task_json import reading

MAIL_CLIENT = "MAIL-Client"
"""Begins the `User-Agent` of the client of MAIL 1.3.6."""

_responses = JSONBody(PostResponses, has_files=True)
_chat = JSONBody(PostChat, has_files=True)


@value
class Begun:
    """A request that was accepted, and its response, which is to be sought."""

    submitted: Submitted
    sought: Sought


async def create_response(request: Request, caller: Caller, *, names_model: bool) -> Response:
    """Send the swarm a request, and answer with the response, whole or as a stream.

    In the background, or if the time is up, the response is still in progress: GET it later. The client of MAIL 1.3.6
    gets JSON text that holds the response. With `names_model`, `model` must be the swarm or one of its entrypoints.
    """
    body = await _responses(request)
    begun = await _begin(request, caller, body, names_model=names_model)
    if body.stream:
        live = not begun.submitted.expects_output
        frames = stream.frames(follow(request, begun.sought, live=live))
        return respond(request, frames, task_headers(begun.submitted))
    response = await _result(request, begun, waits=not body.background)
    is_mail_client = (header(request, b"user-agent") or "").startswith(MAIL_CLIENT)
    wants_text = is_mail_client or body.kwargs is not None  # that client sends `kwargs` only if it has any
    return JSON(to_json(response).decode() if wants_text else response, headers=task_headers(begun.submitted))


async def create_completion(request: Request, caller: Caller) -> Response:
    """Send the swarm a request in the shape of Chat Completions, and answer in that shape."""
    body = await _chat(request)
    begun = await _begin(request, caller, body.as_responses(), names_model=True)
    name, headers = begun.sought.id, task_headers(begun.submitted)
    unfinished = f"there is no answer yet, and the task continues: GET /v1/responses/{name} has it later"
    if body.stream:
        events = follow(request, begun.sought, live=not begun.submitted.expects_output)
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        frames = chat.frames(events, include_usage=usage, unfinished=unfinished)
        return respond(request, frames, headers)
    response = await _result(request, begun)
    if response["status"] in ("in_progress", *UNANSWERED):
        is_late = response["status"] == "in_progress"
        message = unfinished if is_late else response["error"]["message"]
        problem = {"message": message, "type": "server_error", "param": None, "code": "server_error"}
        headers["X-Should-Retry"] = "false"  # OpenAI's SDK would send it again, as a new task
        return JSON(
            {"error": problem, "detail": message}, status_code=504 if is_late else 500, headers=headers
        )
    return JSON(chat.describe_completion(response), headers=headers)


async def get_response(
    request: Request, caller: Caller, response_id: str, *, streams: bool, starting_after: int
) -> Response:
    """Return a response in its current state, or as a stream of its events.

    The fields that it repeats from its request are stored until the task's next response begins.
    """
    service = service_of(request)
    task, sought = await _seek(service, caller, response_id)
    if streams:
        service.holding(request).open_stream()
        return respond(request, stream.frames(follow(request, sought, starting_after=starting_after)))
    return JSON(await _read(service, sought, reading(service, request, task)))


async def cancel_response(request: Request, caller: Caller, response_id: str) -> JSONObject:
    """Cancel the task that works on a response, and return the response; one that was cancelled is returned again.

    Raises RefusedRequest for one that is complete.
    """
    service = service_of(request)
    await service.refresh()
    task, sought = await _seek(service, caller, response_id)
    if task.is_running and sought.id.generation == task.generation.number:
        task = await Runs(request).cancel(task.task_id)
    response = await _read(service, sought, reading(service, request, task))
    if response["status"] != "cancelled":
        raise RefusedRequest(
            "Cannot cancel a completed response: only the work on one can be cancelled.", param="response_id"
        )
    return response


async def delete_response(request: Request, caller: Caller, response_id: str) -> JSONObject:
    """Delete a response: the task whose last one it is, with everything that it stores.

    Raises RefusedRequest for an earlier one, and Conflict for a task that is running.
    """
    service = service_of(request)
    task, sought = await _seek(service, caller, response_id)
    if sought.id.generation != task.generation.number:
        raise RefusedRequest(
            "this response was continued: delete the last response of its conversation, and so all of them, which is "
            f"'{ResponseId(task.task_id, task.generation.number)}'",
            param="response_id",
        )
    async with audited(request, caller, Act.DELETE_TASK, task.task_id, owner=task.instance):
        await service.runtime.delete(task.instance, task.task_id)
    return {"id": response_id, "object": "response", "deleted": True}


def list_models(request: Request) -> JSONObject:
    """Return the swarm and its entrypoints as models."""
    service = service_of(request)
    return {"object": "list", "data": [_model(service, name) for name in _models(service.runtime.swarm)]}


def get_model(request: Request, name: str) -> JSONObject:
    """Return a model. Raises ModelNotFound."""
    service = service_of(request)
    _check_model(service.runtime.swarm, name)
    return _model(service, name)


class PostConversation(Given):
    """A request for a conversation."""

    items: list[Any] | None = None
    metadata: dict[str, str] | None = None


_conversation = JSONBody(PostConversation, optional=True)


async def create_conversation(request: Request) -> JSONObject:
    """Return a new conversation. It has no task, and nothing is stored, before the first response in it."""
    body = await _conversation(request)
    if body.items:
        raise RefusedRequest(
            "a conversation begins empty: send the items as input of its first response", param="items"
        )
    clock = service_of(request).runtime.clock
    return {
        "id": f"{CONVERSATION}{clock.new_id()}",
        "object": "conversation",
        "created_at": int(clock.now().timestamp()),
        "metadata": body.metadata or {},
    }


async def _begin(request: Request, caller: Caller, body: PostResponses, *, names_model: bool) -> Begun:
    """Submit a request."""
    service = service_of(request)
    holding = service.holding(request)
    if body.stream:
        holding.open_stream()
    await service.refresh()
    swarm = service.runtime.swarm
    entrypoint = None
    if names_model and body.model is not None:
        _check_model(swarm, body.model)
        entrypoint = None if body.model == swarm.name else body.model
    previous, items = await _previous(service, caller, body)
    principal = caller.principal(swarm.name)
    files = await Runs(request).store(files_of(items))
    submission = make_submission(body, items, files, previous, swarm, entrypoint)
    if body.stream:
        await holding.share_stream()
    try:
        submitted = await submit(request, principal, Prepared(body, submission))
    except BaseException:
        await holding.close_stream()
        raise
    name = ResponseId(submitted.key.task_id, submitted.generation)
    echo = Echo(submission.client_tools, submission.notes, swarm.name)
    return Begun(submitted, Sought(submitted.key, name, echo, after=submitted.after))


async def _result(request: Request, begun: Begun, *, waits: bool = True) -> JSONObject:
    """Return the response, after waiting for its end as long as the request may."""
    service = service_of(request)
    if waits:
        of_run = service.runtime.store.wait_for_response
        key, generation = begun.sought.key, begun.sought.id.generation

        async def wait(seconds: float | None) -> MAILMessage | None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while True:
                        response = await of_run(key, generation, seconds=LONG_POLL)
                        if response is not None:
                            return response
            return None

        await service.wait(request, wait, service.wait_limit(request))
    return await _read(service, begun.sought, service.holding(request))


async def _read(service: Service, sought: Sought, pacer: Paced) -> JSONObject:
    timeline = read_timeline(service.runtime.store, sought.key, pacer, after=sought.after)
    return describe(sought.id, sought.echo, await Work.of(timeline, sought.generation))


def _models(swarm: SwarmCore) -> list[str]:
    return list(dict.fromkeys((swarm.name, *swarm.entrypoints)))


def _model(service: Service, name: str) -> JSONObject:
    return {"id": name, "object": "model", "created": int(service.started), "owned_by": "mail"}


def _check_model(swarm: SwarmCore, name: str) -> None:
    models = _models(swarm)
    if name not in models:
        raise ModelNotFound(
            f"The model '{name[:100]}' does not exist; there are: {', '.join(models)}",
            param="model",
            code="model_not_found",
        )


async def _previous(
    service: Service, caller: Caller, body: PostResponses
) -> tuple[Previous | None, list[Entry]]:
    """Return the response that a request continues, and what its agents don't know of the input.

    Raises RefusedRequest if the caller has none with the given id.
    """
    entries = body.entries()
    if body.previous_response_id is not None:
        found = await _find(service, caller, body.previous_response_id)
        if found is None:
            raise RefusedRequest(
                f"Previous response with id '{body.previous_response_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        name, task = found
        return Previous(task, name.generation), entries
    if body.conversation is not None:
        held = await service.runtime.store.load(_key(service, caller, body.conversation.task_id))
        return (None if held is None else Previous(held, held.generation.number)), entries
    if (continued := find_continued(entries)) is not None:
        name, items = continued
        found = await _find(service, caller, str(name))
        previous = None if found is None else Previous(found[1], name.generation)
        if previous is not None and previous.is_last and previous.waiting:
            return previous, items
    return None, entries


async def _seek(service: Service, caller: Caller, response_id: str) -> tuple[Task, Sought]:
    """Return the task of a response, and where to find that. Raises ResponseNotFound."""
    found = await _find(service, caller, response_id)
    if found is None:
        raise ResponseNotFound(f"Response with id '{response_id}' not found.")
    name, task = found
    is_newest = name.generation == task.generation.number
    echo = Echo(
        task.generation.client_tools if is_newest else None,
        task.generation.notes if is_newest else {},
        service.runtime.swarm.name,
    )
    return task, Sought(task.key, name, echo, generation=name.generation)


async def _find(service: Service, caller: Caller, response_id: str) -> tuple[ResponseId, Task] | None:
    """Return one of the caller's responses, with its task; None for unknown ids and other callers' responses."""
    name = ResponseId.parse(response_id)
    if name is None:
        return None
    task = await service.runtime.store.load(_key(service, caller, name.task_id))
    return None if task is None or name.generation > task.generation.number else (name, task)


def _key(service: Service, caller: Caller, task_id: str) -> TaskKey:
    return TaskKey(str(caller.principal(service.runtime.swarm.name)), task_id)
