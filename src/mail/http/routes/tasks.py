"""A caller's tasks: list, inspect, watch, cancel and fork them."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import Field, StringConstraints

from mail.core.decisions.cancel import MAX_REASON, StillRunning
from mail.core.engine.admission import Forked
from mail.core.protocol.message import TaskId
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest, Forbidden
from mail.http.access import OTHER_OWNER, AdminOrUser, audit, chosen_instance, named_instance
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.large_answers import answer
from mail.http.openapi import ETAG, PAGE_HEADERS, PROTECTED, make_router, problems
from mail.http.preferences import PREFER, read_preference
from mail.http.service import Service, service_of
from mail.http.sse import EVENT_STREAM, stream_events
from mail.http.submission import IDEMPOTENCY_KEY, TRACE_CONTEXT, claimed, etag, follow_trace
from mail.http.task_json import (
    TaskRecord,
    TaskSummary,
    event_page,
    load_task,
    page_headers,
    snapshot_pieces,
    summaries_pieces,
    task_output,
    task_pieces,
    task_summary,
    task_weight,
    tasks_pieces,
)

MAX_PAGE = 1000
"""Tasks on a page at most, and the default, for clients that don't support paging."""

MAX_SEQ = 2**53
"""Larger numbers are not exact in every client."""

CANCEL_TIMEOUT = 10.0
"""Seconds for which a request waits for a cancelled task to stop, unless its caller prefers another time."""

LOOK_SECONDS = 0.25
"""Seconds between checks whether a turn has ended; an event shows that a swarm has received the cancellation."""


ASK_FOR_LESS = (
    "leave out events with fields=summary, and read those of a task in pages: GET /task?task_id=…&limit=…"
)
"""What to do about an answer that is too large."""


class GetTask(Given):
    """The task, if the query doesn't name it."""

    task_id: TaskId | None = None


class PostCancel(Given):
    """The task to cancel."""

    task_id: TaskId
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)] = Field(
        default="", description="Reason, for the task's timeline and other swarms."
    )
    caller: str | None = Field(
        default=None,
        description=OTHER_OWNER,
    )


class CancelledTask(Answered):
    """Progress of a cancellation."""

    task_id: str
    status: Literal["cancelled"]
    requested: str = Field(description="Time of the cancellation, in ISO 8601.")
    by: str
    reason: str
    stopped: bool = Field(
        description="Whether the task has stopped completely: no turn runs, and every other swarm has been informed."
    )
    running_agents: list[str] = Field(
        description="Agents whose turn is still running; its result will be discarded."
    )
    waiting_swarms: list[str] = Field(
        description="Other swarms that have not confirmed the cancellation yet."
    )


class PostFork(Given):
    """The task to fork, and the event at which to fork it."""

    task_id: TaskId
    at: int | None = Field(
        default=None,
        strict=True,
        description="The id (seq) of an event: forks the task as it was after that event; the default is its current "
        "state.",
    )
    run: bool = Field(
        default=False,
        description="Whether the fork of a task that was running continues immediately; otherwise it is paused until "
        "it gets a message.",
    )


class ForkedTask(Answered):
    """A fork of a task."""

    task_id: str
    forked_from: str = Field(description="The original task.")
    at: int = Field(description="The last event of the original that is part of the fork.")
    status: TaskStatus
    generation: int = Field(description="0 until it is resumed for the first time.")
    seq: int = Field(description="The last event of the new task so far.")
    waiting: int = Field(description="How many messages wait in its mailboxes.")


router = make_router("tasks")
_task_body = JSONBody(GetTask, optional=True)
_cancel_body = JSONBody(PostCancel)
_fork_body = JSONBody(PostFork)

Fields = Annotated[
    Literal["summary"] | None, Query(description="`summary`: without events and waiting messages.")
]
EventId = Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="As `Last-Event-ID`.")]


@router.get(
    "/tasks",
    summary="List the caller's tasks",
    response_model=dict[str, TaskRecord] | dict[str, TaskSummary],
    responses={
        200: {"description": "Tasks by task id, newest first.", "headers": PAGE_HEADERS},
        **problems(400, 413, *PROTECTED),
    },
)
async def get_tasks(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Tasks on a page.")] = MAX_PAGE,
    cursor: Annotated[str | None, Query(description="The previous page's next cursor.")] = None,
    status: Annotated[TaskStatus | None, Query(description="Only tasks in this state.")] = None,
    fields: Fields = None,
    whose: Annotated[
        str | None,
        Query(
            alias="caller",
            description="The tasks of this caller: `role:id`, or `role:id@swarm`. For admins, with `fields=summary`.",
        ),
    ] = None,
    every: Annotated[
        bool,
        Query(
            alias="all",
            description="The tasks of all callers, by `role:id@swarm#task_id`. For admins, with `fields=summary`.",
        ),
    ] = False,
) -> Response:
    """Return a page of the caller's tasks, newest first; without `limit`, the newest thousand.

    A page with events ends early if its tasks are large together; its next cursor leads to the rest. Admins can list the
    tasks of others, without what is written in them.
    """
    service = service_of(request)
    swarm = service.runtime.swarm.name
    own = str(caller.principal(swarm))
    instance = own if whose is None else chosen_instance(caller, whose, swarm)
    if every:
        if caller.role != "admin" or whose is not None:
            raise Forbidden("all lists the tasks of all callers, for admins; leave out caller")
        instance = None
    if instance != own and fields is None:
        raise BadRequest("other callers' tasks are available only as summaries: add fields=summary")
    page = await service.runtime.store.list_tasks(instance, status=status, limit=limit, cursor=cursor)
    query = {"limit": str(limit)} | ({"status": status.value} if status else {})
    query |= {"all": "true"} if every else {"caller": whose} if whose else {}
    if instance != own:
        query["fields"] = "summary"
        found = [task for task in page.tasks if task.instance.endswith(f"@{swarm}")]
        pieces = summaries_pieces(found, of_others=True, by_caller=every)
    elif fields is None:
        page = page.upto(service.page_bytes, task_weight)
        pieces = tasks_pieces(service, page.tasks)
    else:
        query["fields"] = fields
        pieces = summaries_pieces(page.tasks)
    headers = page_headers(request, "/tasks", query, page.cursor)
    return await answer(service.large_answers, caller, pieces, headers, advice=ASK_FOR_LESS)


@router.get(
    "/task",
    summary="Get a task",
    response_model=TaskRecord | TaskSummary,
    responses={
        200: {"description": "The task.", "headers": {"ETag": ETAG, **PAGE_HEADERS}},
        **problems(400, 404, 409, 413, *PROTECTED),
    },
)
async def get_task(
    request: Request,
    caller: AdminOrUser,
    body: Annotated[GetTask, Depends(_task_body)],
    task_id: Annotated[TaskId | None, Query(description="The task; proxies may drop a body.")] = None,
    at: Annotated[
        int | None, Query(description="The id (seq) of an event: the task as it was after that event.")
    ] = None,
    fields: Fields = None,
    after: Annotated[
        int | None, Query(ge=0, le=MAX_SEQ, description="Only the events after this one, and a page of them.")
    ] = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE, description="Events on a page.")] = None,
) -> Response:
    """Return one of the caller's tasks, named in the query or in a JSON body: its current state, or that `at` an event.

    With `after` or `limit`, return a page of its events, which ends early if they are large together, and the first of its
    waiting messages. The next cursor, if there is one, is the next page's `after`.
    """
    if task_id and body.task_id and task_id != body.task_id:
        raise BadRequest("task_id in the query and in the body differ; send one")
    wanted = task_id or body.task_id
    if wanted is None:
        raise BadRequest("task_id is missing: send it as ?task_id=… or in a JSON body")
    service = service_of(request)
    is_page = after is not None or limit is not None
    if at is not None and (is_page or fields):
        raise BadRequest("at returns the whole task as it was: leave out fields, after and limit")
    task = await load_task(service, caller, wanted)
    headers = {"ETag": etag(task.generation.number)} if at is None else {}
    more = await task_output(service, task) if at is None else {}
    if fields is not None:
        more["working"] = await service.runtime.working(task)
        return JSON({**task_summary(task), **more}, headers=headers)
    if at is not None:
        pieces = snapshot_pieces(service, await service.runtime.store.read_snapshot(task.key, at))
    elif is_page:
        pieces, last = await event_page(service, task, after or 0, limit, more)
        query = {"task_id": wanted} | ({"limit": str(limit)} if limit else {})
        following = None if last is None else str(last)
        headers |= page_headers(request, "/task", query, following, parameter="after")
    else:
        pieces = task_pieces(service, task, more)
    return await answer(service.large_answers, caller, pieces, headers, advice=ASK_FOR_LESS)


@router.get(
    "/task/stream",
    summary="Watch a task",
    response_class=Response,
    responses={
        200: {"description": "The events, to the end of the task.", "content": EVENT_STREAM},
        204: {"description": "The task has stopped, and the caller has seen every event: don't reconnect."},
        **problems(400, 404, *PROTECTED),
    },
)
async def stream_task(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[TaskId, Query(description="The task.")],
    last_event_id: EventId = None,
    live: Annotated[
        bool, Query(description="Whether to include live events: what agents do, when they do it.")
    ] = False,
    deltas: Annotated[
        bool,
        Query(description="Whether to include live events and the text that models write, piece by piece."),
    ] = False,
    last_event_id_header: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            le=MAX_SEQ,
            description="The last event seen; 0 or none: from the start.",
        ),
    ] = None,
) -> Response:
    """Stream the task's events after the last one seen, as they happen."""
    service = service_of(request)
    task = await load_task(service, caller, task_id)
    after = last_event_id_header if last_event_id_header is not None else last_event_id or 0
    if after > task.seq:
        raise BadRequest(f"the task has no event {after} yet; its last one is {task.seq}")
    if after == task.seq and not task.is_running:
        return Response(status_code=204)
    return stream_events(request, task.key, after=after, live=live, deltas=deltas)


@router.post(
    "/task/cancel",
    summary="Cancel a task",
    response_model=CancelledTask,
    responses={
        202: {
            "model": CancelledTask,
            "description": "It is cancelled, but has not stopped completely. Send the same request again for progress.",
        },
        **problems(400, 404, 413, *PROTECTED),
    },
    openapi_extra={"parameters": [PREFER]},
)
async def cancel_task(
    request: Request, caller: AdminOrUser, body: Annotated[PostCancel, Depends(_cancel_body)]
) -> JSON:
    """End a running or paused task. It keeps its messages, and a new message resumes it.

    No new turn begins, running turns are discarded, and the other swarms of the task are informed. Answers when all of
    that is done, or after ten seconds (`Prefer: wait=N` for another time). Admins can cancel the tasks of others; the
    task's timeline and the server's log then name them.
    """
    service = service_of(request)
    await service.refresh()
    swarm = service.runtime.swarm.name
    instance = named_instance(caller, body.caller, swarm)
    task = await service.runtime.cancel(caller.principal(swarm), body.task_id, body.reason, instance=instance)
    audit(caller, swarm, instance, "cancelled task %s", body.task_id)
    preferred = read_preference(request.headers.getlist("prefer")).wait
    limits = (CANCEL_TIMEOUT if preferred is None else preferred, service.wait_limit(request))
    seconds = min(limit for limit in limits if limit is not None)
    left = await _await_stop(service, task, seconds)
    assert task.cancellation is not None
    return JSON(
        {
            "task_id": task.task_id,
            "status": task.status.value,
            "requested": task.cancellation.requested,
            "by": task.cancellation.by,
            "reason": task.cancellation.reason,
            "stopped": left.is_stopped,
            "running_agents": left.agents,
            "waiting_swarms": left.swarms,
        },
        status_code=200 if left.is_stopped else 202,
    )


async def _await_stop(service: Service, task: Task, seconds: float) -> StillRunning:
    """Wait until nothing of a cancelled task runs, or the time is up; return what still runs."""
    runtime = service.runtime
    left = await runtime.still_running(task)
    with suppress(TimeoutError):
        async with service.stopping.cuts_short(), asyncio.timeout(seconds):
            while not left.is_stopped:
                await runtime.store.wait_for_change(task.key, after=task.seq, seconds=LOOK_SECONDS)
                task = await runtime.store.load(task.key) or task
                left = await runtime.still_running(task)
    return left


@router.post(
    "/task/fork",
    status_code=201,
    summary="Fork a task at an event",
    response_model=ForkedTask,
    responses=problems(400, 404, 409, 413, 422, *PROTECTED),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY, TRACE_CONTEXT]},
)
async def fork_task(
    request: Request, caller: AdminOrUser, body: Annotated[PostFork, Depends(_fork_body)]
) -> JSON:
    """Create a new task for the caller that continues from an event of another one, with its histories and messages.

    If the original was running, the fork is paused until a message resumes it; with `run` it continues immediately.
    """
    service = service_of(request)
    follow_trace(request)
    await service.refresh()
    principal = caller.principal(service.runtime.swarm.name)
    ceiling = service.ceiling(principal)
    async with claimed(request, principal, body) as claim:
        new_id = None if claim is None else claim.task_id
        forked = await service.runtime.fork(
            principal, body.task_id, at=body.at, run=body.run, ceiling=ceiling, new_id=new_id
        )
    return JSON(_describe_fork(forked, body.task_id), status_code=201)


def _describe_fork(forked: Forked, forked_from: str) -> dict[str, Any]:
    task = forked.task
    return {
        "task_id": task.task_id,
        "forked_from": forked_from,
        "at": forked.at,
        "status": task.status.value,
        "generation": task.generation.number,
        "seq": task.seq,
        "waiting": sum(map(sum, task.pending.values())),
    }
