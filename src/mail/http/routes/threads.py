"""A caller's threads: the mail of tasks, by what it is about, as `mail.agentmail` reads it.

What a request costs is bounded by the number of tasks that it looks at: their events are read, and nothing else.
"""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import TypeAdapter, ValidationError

from mail.agentmail import ACK_WITHIN
from mail.auth.keys import Caller
from mail.core.protocol.message import TaskId
from mail.core.task.task import Task, TaskKey
from mail.errors import ThreadNotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON
from mail.http.openapi import PAGE_HEADERS, PROTECTED, problems
from mail.http.service import service_of
from mail.http.task_json import load_task, page_headers
from mail.http.threads import Reader, ThreadRecord, Threads, read_mail

MAX_TASKS = 100
"""Tasks that one request looks at."""

TASKS = 20
"""Tasks on a page, unless the caller says otherwise."""

LONGEST_WAIT = 366 * 24 * 3600

router = APIRouter(tags=["threads"])

AckWithin = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT, description="Seconds after which a message that waits is overdue."),
]
OnlyTask = Annotated[TaskId | None, Query(description="Only what is in this task.")]
_TASK_ID = TypeAdapter[str](TaskId)

DEFAULT_WAIT = ACK_WITHIN.total_seconds()


@router.get(
    "/threads",
    summary="List the caller's threads",
    response_model=Threads,
    responses={
        200: {"description": "Threads, those of the newest task first.", "headers": PAGE_HEADERS},
        **problems(400, 404, *PROTECTED),
    },
)
async def get_threads(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_TASKS, description="Tasks on a page.")] = TASKS,
    cursor: Annotated[str | None, Query(description="Where the page before this one has ended.")] = None,
    task_id: OnlyTask = None,
    bead: Annotated[str | None, Query(description="Only threads with mail about this bead.")] = None,
    pending: Annotated[
        bool, Query(description="Only threads in which something has to be acknowledged.")
    ] = False,
    overdue: Annotated[bool, Query(description="Only threads in which that has waited too long.")] = False,
    ack_within: AckWithin = DEFAULT_WAIT,
) -> JSON:
    """The threads of a page of the caller's tasks. A thread of several tasks is shown as far as they are on the page."""
    if task_id is not None:
        tasks, following = [await load_task(service_of(request), caller, task_id)], None
    else:
        runtime = service_of(request).runtime
        instance = str(caller.principal(runtime.swarm.name))
        page = await runtime.store.list_tasks(instance, limit=limit, cursor=cursor)
        tasks, following = page.tasks, page.cursor
    reader = await _read(request, tasks, ack_within)
    query = {**request.query_params, "limit": str(limit)}
    found = reader.threads(bead=bead, pending=pending, overdue=overdue, next_cursor=following)
    return JSON(found, headers=page_headers(request, "/threads", query, following))


@router.get(
    "/threads/{thread_id:path}",
    summary="Look at a thread",
    response_model=ThreadRecord,
    responses=problems(400, 404, *PROTECTED),
)
async def get_thread(
    request: Request,
    caller: AdminOrUser,
    thread_id: Annotated[str, Path(description="The thread: the id of a bead or of a task, as a rule.")],
    task_id: OnlyTask = None,
    ack_within: AckWithin = DEFAULT_WAIT,
) -> JSON:
    """A thread, as far as it is in the caller's newest hundred tasks, or in the task that is named."""
    if task_id is not None:
        tasks = [await load_task(service_of(request), caller, task_id)]
    else:
        tasks = await _tasks_with(request, caller, thread_id)
    thread = (await _read(request, tasks, ack_within)).thread(thread_id)
    if thread is None:
        where = (
            "that task"
            if task_id
            else f"your newest {MAX_TASKS} tasks; name the task, if it is in an older one"
        )
        raise ThreadNotFound(f"there is no thread {thread_id!r} in {where}")
    return JSON(thread)


async def _read(request: Request, tasks: list[Task], ack_within: float) -> Reader:
    runtime = service_of(request).runtime
    mail = await read_mail(runtime.store, tasks)
    return Reader(tasks, mail, now=runtime.clock.now(), ack_within=timedelta(seconds=ack_within))


async def _tasks_with(request: Request, caller: Caller, thread_id: str) -> list[Task]:
    """The newest tasks, and the one that the thread is named after where it is older."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    tasks = (await runtime.store.list_tasks(instance, limit=MAX_TASKS)).tasks
    if len(tasks) == MAX_TASKS and _is_task_id(thread_id):
        named = await runtime.store.load(TaskKey(instance, thread_id))
        tasks += [named] if named is not None and all(task.key != named.key for task in tasks) else []
    return tasks


def _is_task_id(text: str) -> bool:
    try:
        _TASK_ID.validate_python(text)
    except ValidationError:
        return False
    return True
