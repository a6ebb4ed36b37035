"""A caller's tasks: list and inspect them."""

from dataclasses import replace
from datetime import UTC
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from mail.core.protocol.message import TaskId
from mail.core.task.audit import Act
from mail.core.task.search import Search, Searched, words_of
from mail.core.task.task import TaskStatus
from mail.errors import BadRequest, Forbidden
from mail.http.access import AdminOrUser, OtherOwner, chosen_instance, read_time
from mail.http.account import BODY_FACTOR, LIST_BYTES
from mail.http.answers import answer
from mail.http.audit import audited
from mail.http.bodies import JSON, Given, JSONBody
from mail.http.break_glass import Reason, load_opened
from mail.http.openapi import ETAG, PAGE_HEADERS, answers, make_router
from mail.http.routes.streams import MAX_SEQ, Items
from mail.http.service import service_of
from mail.http.submission import etag
from mail.http.task_json import page_headers, reading
from mail.http.task_records import (
    AnyTask,
    AnyTasks,
    event_page,
    snapshot_pieces,
    summaries_pieces,
    task_output,
    task_pieces,
    task_summary,
    tasks_pieces,
    waits,
)

MAX_PAGE = 1000
"""Tasks on a page at most, and the default, for clients that don't support paging."""

ASK_FOR_LESS = (
    "leave out events with fields=summary, and read those of a task in pages: GET /task?task_id=…&limit=…"
)
"""What to do about an answer that is too large."""


class GetTask(Given):
    """The task, if the query doesn't name it."""

    task_id: TaskId | None = None


SEARCHED: dict[str, Any] = {
    "X-Searched": {
        "description": "Of a search: `texts`; `some texts` while an index is made; `titles` for titles and ids only.",
        "schema": {"enum": list(Searched)},
    }
}

router = make_router("tasks")
_body = JSONBody(GetTask, optional=True)

Fields = Annotated[
    Literal["summary"] | None, Query(description="`summary`: without events and waiting messages.")
]


@router.get(
    "/tasks",
    summary="List the caller's tasks",
    **answers(AnyTasks, 400, 413, text="Tasks by task id, newest first.", headers=PAGE_HEADERS | SEARCHED),
)
async def get_tasks(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Tasks on a page.")] = MAX_PAGE,
    cursor: Annotated[str | None, Query(description="The previous page's next cursor.")] = None,
    status: Annotated[TaskStatus | None, Query(description="Only tasks in this state.")] = None,
    fields: Fields = None,
    q: Annotated[
        str | None,
        Query(
            max_length=1000,
            description="Words to search for: plain text, in titles, ids, messages, names of agents and other swarms. "
            "The tasks that have them all come in the order of their last change; an empty text finds every task.",
        ),
    ] = None,
    since: Annotated[
        str | None, Query(description="Only tasks that have changed at this time or later.")
    ] = None,
    until: Annotated[
        str | None, Query(description="Only tasks that have last changed before this time.")
    ] = None,
    min_cost: Annotated[
        float | None, Query(ge=0, description="Only tasks whose models have cost that many US dollars.")
    ] = None,
    forks: Annotated[
        bool, Query(description="Without forks, if false; pages may have fewer tasks than `limit` then.")
    ] = True,
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

    With `q`, `since`, `until` or `min_cost`, search the caller's tasks and return those found, the last changed first;
    `X-Searched` says in what, and `excerpt` what a message says around the words. Titles and ids are searched
    everywhere, texts not on DynamoDB.
    A page with events ends early if its tasks are large together; its next cursor leads to the rest. Admins can list
    the tasks of others, without what is written in them.
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
    query = {"limit": str(limit)} | ({"status": status.value} if status else {})
    asked = {"q": q, "since": since, "until": until, "min_cost": min_cost}
    searched = {name: str(value) for name, value in asked.items() if value is not None}
    if searched and instance != own:
        raise BadRequest(f"{', '.join(searched)}: only your own tasks are searched; leave out caller and all")
    await service.holding(request).wait(LIST_BYTES)
    if searched:
        search = Search(
            words_of(q or ""), status, _utc(since, "since"), _utc(until, "until"), min_cost or 0.0
        )
        page = await service.runtime.store.search(own, search, limit=limit, cursor=cursor)
        query |= searched
    else:
        async with audited(request, caller, Act.LIST_TASKS, owner=instance):
            page = await service.runtime.store.list_tasks(instance, status=status, limit=limit, cursor=cursor)
    service.holding(request).take(0)
    excerpts = {task.task_id: each for task, each in zip(page.tasks, page.excerpts, strict=False) if each}
    if fields is None:
        page = page.upto(service.page_bytes)
    if not forks:  # after that, as a cursor of the page belongs to each task
        page = replace(page, tasks=[task for task in page.tasks if not task.forked_from])
        query["forks"] = "false"
    query |= {"all": "true"} if every else {"caller": whose} if whose else {}
    if instance != own:
        query["fields"] = "summary"
        found = [task for task in page.tasks if task.instance.endswith(f"@{swarm}") and task.schedule is None]
        pacer = reading(service, request, *page.tasks, events=0)
        pieces = summaries_pieces(found, pacer, of_others=True, by_caller=every)
    elif fields is None:
        pieces = tasks_pieces(service, page.tasks, reading(service, request, *page.tasks), excerpts)
    else:
        query["fields"] = fields
        pieces = summaries_pieces(page.tasks, reading(service, request, *page.tasks, events=0), excerpts)
    headers = page_headers(request, "/tasks", query, page.cursor)
    if searched:
        headers["X-Searched"] = page.searched
    return await answer(request, pieces, headers, advice=ASK_FOR_LESS)


def _utc(time: str | None, name: str) -> str:
    """Return a time as tasks have it; "" for none. Raises BadRequest."""
    read = read_time(time, name)
    return "" if read is None else read.astimezone(UTC).isoformat()


@router.get(
    "/task",
    summary="Get a task",
    **answers(AnyTask, 404, 409, 410, text="The task.", headers={"ETag": ETAG, **PAGE_HEADERS}),
)
async def get_task(
    request: Request,
    caller: AdminOrUser,
    body: Annotated[GetTask, Depends(_body)],
    task_id: Annotated[TaskId | None, Query(description="The task; proxies may drop a body.")] = None,
    at: Annotated[
        int | None, Query(description="The id (seq) of an event: the task as it was after that event.")
    ] = None,
    fields: Fields = None,
    after: Annotated[
        int | None, Query(ge=0, le=MAX_SEQ, description="Only the events after this one, and a page of them.")
    ] = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE, description="Events on a page.")] = None,
    items: Items = False,
    owner: OtherOwner = None,
    reason: Reason = None,
) -> Response:
    """Return one of the caller's tasks, named in the query or in a JSON body: its current state, or that `at` an event.

    With `after`, `limit` or `items`, return a page of its events, which ends early if they are large together, and
    the first of its waiting messages. The next cursor, if there is one, is the next page's `after`. Where the server
    allows it, admins can read the task of another `caller`, with a `reason`.
    """
    if task_id and body.task_id and task_id != body.task_id:
        raise BadRequest("task_id in the query and in the body differ; send one")
    wanted = task_id or body.task_id
    if wanted is None:
        raise BadRequest("task_id is missing: send it as ?task_id=… or in a JSON body")
    service = service_of(request)
    is_page = after is not None or limit is not None
    if items and fields:
        raise BadRequest("items come with events: leave out fields")
    if at is not None and (is_page or fields):
        raise BadRequest("at returns the whole task as it was: leave out fields, after and limit")
    task = await load_opened(request, caller, wanted, owner, reason)
    headers = {"ETag": etag(task.generation.number)} if at is None else {}
    more = await task_output(service, task) | await waits(service, task) if at is None else {}
    if fields is not None:
        more["working"] = await service.runtime.working(task)
        reading(service, request, task, events=0)
        return JSON({**task_summary(task), **more}, headers=headers)
    holding = reading(service, request, task)
    if at is not None:
        snapshot = await service.runtime.store.read_snapshot(task.key, at)
        if items:  # all of them are in memory, as later events change earlier ones
            holding.hold((snapshot.task.stored_bytes - snapshot.task.history_bytes) * BODY_FACTOR)
        pieces = await snapshot_pieces(service, snapshot, holding, items=items)
    elif is_page or items:
        pieces, last = await event_page(service, task, after or 0, limit, more, holding, items=items)
        query = {"task_id": wanted} | ({"limit": str(limit)} if limit else {})
        query |= {"items": "true"} if items else {}
        query |= {"caller": owner, "reason": reason or ""} if owner else {}
        following = None if last is None else str(last)
        headers |= page_headers(request, "/task", query, following, parameter="after")
    else:
        pieces = task_pieces(service, task, holding, more)
    return await answer(request, pieces, headers, advice=ASK_FOR_LESS)
