"""A caller's tasks: to list, to look at, and to watch."""

import asyncio
from itertools import batched
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from mail.core.protocol.message import TaskId
from mail.core.task.task import TaskStatus
from mail.errors import BadRequest
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, JSONBody
from mail.http.idempotency import etag
from mail.http.openapi import EVENT_STREAM, PAGE_HEADERS, PROTECTED, problems
from mail.http.schemas import GetTask, TaskRecord
from mail.http.service import service_of
from mail.http.sse import stream_events
from mail.http.task_json import TASKS_AT_ONCE, load_task, page_headers, read_past_record, read_record

MAX_PAGE = 1000
"""Tasks that one page can hold: what a client that knows of no pages gets."""

MAX_SEQ = 2**53
"""Larger numbers are no longer exact in every client."""

router = APIRouter(tags=["tasks"])
_task_body = JSONBody(GetTask, optional=True)

EventId = Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="As `Last-Event-ID`.")]


@router.get(
    "/tasks",
    summary="List the caller's tasks",
    response_model=dict[str, TaskRecord],
    responses={
        200: {"description": "Task records by task id, newest first.", "headers": PAGE_HEADERS},
        **problems(400, *PROTECTED),
    },
)
async def get_tasks(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Tasks on a page.")] = MAX_PAGE,
    cursor: Annotated[str | None, Query(description="Where the page before this one has ended.")] = None,
    status: Annotated[TaskStatus | None, Query(description="Only tasks in this state.")] = None,
) -> JSON:
    """A page of the caller's tasks, newest first; without `limit`, the newest thousand."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    page = await runtime.store.list_tasks(instance, status=status, limit=limit, cursor=cursor)
    members = []
    for tasks in batched(page.tasks, TASKS_AT_ONCE):
        records = await asyncio.gather(*(read_record(runtime.store, task) for task in tasks))
        members += [to_json(record["task_id"]) + b":" + to_json(record) for record in records]
    query = {"limit": str(limit)} | ({"status": status.value} if status else {})
    return JSON(b"{" + b",".join(members) + b"}", headers=page_headers(request, "/tasks", query, page.cursor))


@router.get(
    "/task",
    summary="Look at a task",
    response_model=TaskRecord,
    responses=problems(400, 404, 409, 413, *PROTECTED),
    openapi_extra=_task_body.docs(),
)
async def get_task(
    request: Request,
    caller: AdminOrUser,
    body: Annotated[GetTask, Depends(_task_body)],
    task_id: Annotated[TaskId | None, Query(description="The task; proxies may drop a body.")] = None,
    at: Annotated[
        int | None, Query(description="The id (seq) of an event: the task as it was once that had happened.")
    ] = None,
) -> JSON:
    """The record of one of the caller's tasks, named in the query or in a JSON body; as it is, or `at` a moment before."""
    if task_id and body.task_id and task_id != body.task_id:
        raise BadRequest("task_id in the query and in the body differ; send one")
    wanted = task_id or body.task_id
    if wanted is None:
        raise BadRequest("task_id is missing: send it as ?task_id=… or in a JSON body")
    service = service_of(request)
    task = await load_task(service, caller, wanted)
    if at is not None:
        return JSON(await read_past_record(service.runtime.store, task, at))
    return JSON(
        await read_record(service.runtime.store, task), headers={"ETag": etag(task.generation.number)}
    )


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
    """The task's events past the last one seen, as they happen."""
    service = service_of(request)
    task = await load_task(service, caller, task_id)
    after = last_event_id_header if last_event_id_header is not None else last_event_id or 0
    if after > task.seq:
        raise BadRequest(f"the task has no event {after} yet; its last one is {task.seq}")
    if after == task.seq and not task.is_running:
        return Response(status_code=204)
    return stream_events(request, task.key, after=after)
