"""`GET /usage`: what tasks have cost. Its price is bounded by the number of tasks that one request looks at."""

import asyncio
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request

from mail.auth.keys import Caller
from mail.core.protocol.message import TaskId
from mail.core.task.context import CURRENT_TASK
from mail.core.task.task import TaskKey
from mail.errors import TaskNotFound
from mail.http.access import AdminOrUser, chosen_instance
from mail.http.bodies import JSON
from mail.http.openapi import PROTECTED, problems
from mail.http.service import Service, service_of
from mail.http.usage import Bill, Period, UsageReport, began, read_moment

MAX_TASKS = 1000
"""Tasks that one request looks at."""

READ_AT_ONCE = 100
"""How many of them are read before others get their turn."""

DISORDER = timedelta(minutes=5)
"""By how much the clocks of servers that share a store may differ: their tasks are in the order of their commits."""

router = APIRouter(tags=["tasks"])


@router.get(
    "/usage",
    summary="Look at what tasks have cost",
    response_model=UsageReport,
    responses=problems(400, 404, *PROTECTED),
)
async def get_usage(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[TaskId | None, Query(description="Only this task.")] = None,
    whose: Annotated[
        str | None,
        Query(
            alias="caller",
            description="Only the tasks of this caller: `role:id`, or `role:id@swarm`. For admins; others have their "
            "own anyway.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        Query(description="Only tasks that began at this time or later: ISO 8601, without an offset in UTC."),
    ] = None,
    until: Annotated[str | None, Query(description="Only tasks that began before this time.")] = None,
    limit: Annotated[
        int, Query(ge=1, le=MAX_TASKS, description="Tasks to look at, the newest first.")
    ] = MAX_TASKS,
    cursor: Annotated[str | None, Query(description="Where the request before this one has ended.")] = None,
    per_task: Annotated[bool, Query(description="Whether to tell it of each task, too.")] = False,
) -> JSON:
    """What the language models behind the caller's tasks were paid, and for admins behind everybody's.

    By agent, by model and by caller. Tasks count by when they began, with all that they have cost since.
    """
    service = service_of(request)
    period = Period(read_moment(since, "since"), read_moment(until, "until"))
    bill = Bill(itemized=per_task)
    instance = chosen_instance(caller, whose, service.runtime.swarm.name)
    if task_id is not None:
        await _add_one(service, caller, TaskKey(instance or _own(service, caller), task_id), period, bill)
        following = None
    else:
        following = await _add_page(service, instance, period, bill, limit, cursor)
    return JSON(bill.report(period, following))


def _own(service: Service, caller: Caller) -> str:
    return str(caller.principal(service.runtime.swarm.name))


async def _add_one(service: Service, caller: Caller, key: TaskKey, period: Period, bill: Bill) -> None:
    """Raises TaskNotFound."""
    CURRENT_TASK.set(key.task_id)
    task = await service.runtime.store.load(key)
    if task is None:
        mine = key.instance == _own(service, caller)
        raise TaskNotFound(f"{'you have' if mine else f'{key.instance} has'} no task {key.task_id!r}")
    if period.holds(began(task)):
        bill.add(task)


async def _add_page(
    service: Service, instance: str | None, period: Period, bill: Bill, limit: int, cursor: str | None
) -> str | None:
    """Add `limit` tasks up, of a caller or of everybody; returns where others follow that may count."""
    runtime = service.runtime
    swarm = f"@{runtime.swarm.name}"
    left = limit
    while left > 0:
        page = await runtime.store.list_tasks(instance, limit=min(left, READ_AT_ONCE), cursor=cursor)
        for task in page.tasks:
            if task.instance.endswith(swarm) and period.holds(began(task)):
                bill.add(task)
        left -= len(page.tasks)
        cursor = page.cursor
        if cursor is None:
            return None
        if period.since is not None and page.is_ordered and began(page.tasks[-1]) + DISORDER < period.since:
            return None
        await asyncio.sleep(0)
    return cursor
