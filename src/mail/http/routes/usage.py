"""`GET /usage`: tokens and cost of tasks, by agent, model, caller, day and version of the swarm (SPEC, section 8).

The cost of a request is bounded by the number of tasks that it reads.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query, Request
from pydantic import Field

from mail.auth.keys import Caller
from mail.core.protocol.message import TaskId
from mail.core.protocol.values import fill, value
from mail.core.task.audit import Act
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.task import Task, TaskKey
from mail.core.turns.context import CURRENT_TASK
from mail.errors import TaskNotFound
from mail.http.access import AdminOrUser, Since, Until, chosen_instance, read_time
from mail.http.account import LIST_BYTES
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of

MAX_TASKS = 1000
"""Tasks that one request reads."""

BATCH = 100
"""Tasks that are read before other requests may run."""

CLOCK_SKEW = timedelta(minutes=5)
"""Assumed difference between the clocks of servers that share a store, whose tasks are in the order of their
commits.
"""


class TaskCost(Answered):
    """Tokens and cost of one task."""

    task_id: str
    caller: str
    started: str
    title: str | None
    usage: Usage


class UsageReport(Answered):
    """Tokens and cost of the model calls of some tasks, in all their generations."""

    tasks: int = Field(description="How many tasks the report covers, including those that called no model.")
    total: Usage
    agents: dict[str, Usage] = Field(description="Per agent that has called a model.")
    models: dict[str, Usage] = Field(
        description="Per model; `other` for those without a name, and of each task for those past the first 32."
    )
    callers: dict[str, Usage] = Field(description="Per owner of tasks: `role:id@swarm`.")
    days: dict[str, Usage] = Field(description="Per day on which tasks began, in UTC: `2026-01-31`.")
    versions: dict[str, Usage] = Field(
        description="Per version of the swarm with which the last run of a task began, by its digest; `` for tasks "
        "that began before versions were recorded."
    )
    since: str | None = Field(description="The start of the requested period.")
    until: str | None
    cursor: str | None = Field(
        description="The `cursor` for further tasks, if there may be any: add up the reports."
    )
    per_task: list[TaskCost] | None = Field(
        default=None, description="Each task that has called a model, if `per_task` was set."
    )


router = make_router("tasks")


@router.get("/usage", summary="Tokens and cost of tasks", **answers(UsageReport, 400, 404))
async def get_usage(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[TaskId | None, Query(description="Only this task.")] = None,
    whose: Annotated[
        str | None,
        Query(
            alias="caller",
            description="Only the tasks of this caller: `role:id`, or `role:id@swarm`. For admins; users always get "
            "their own.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    version: Annotated[
        str | None,
        Query(
            description="Only tasks whose last run began with the version of the swarm that has this digest."
        ),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=MAX_TASKS, description="Tasks to read, the newest first.")
    ] = MAX_TASKS,
    cursor: Annotated[str | None, Query(description="The previous response's cursor.")] = None,
    per_task: Annotated[bool, Query(description="Whether to list each task, too.")] = False,
) -> JSON:
    """Return tokens and cost by agent, model, caller, day and version: of the caller's tasks, for admins of all tasks.

    A task counts in the period in which it began, with all its usage since.
    """
    service = service_of(request)
    period = Period(read_time(since, "since"), read_time(until, "until"))
    bill = Bill(period, version, itemized=per_task)
    instance = chosen_instance(caller, whose, service.runtime.swarm.name)
    if per_task:
        async with audited(request, caller, Act.LIST_TASKS, task_id or "", owner=instance):
            pass
    if task_id is not None:
        await _add_one(service, caller, TaskKey(instance or _own(service, caller), task_id), bill)
        following = None
    else:
        await service.holding(request).wait(LIST_BYTES)
        following = await _add_page(service, instance, bill, limit, cursor)
    return JSON(bill.report(following))


@value
class Period:
    """A period: from `since` on, and before `until`."""

    since: datetime | None = None
    until: datetime | None = None

    def __contains__(self, time: datetime) -> bool:
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


def _began(task: Task) -> datetime:
    return datetime.fromisoformat(task.started)


def _own(service: Service, caller: Caller) -> str:
    return str(caller.principal(service.runtime.swarm.name))


async def _add_one(service: Service, caller: Caller, key: TaskKey, bill: "Bill") -> None:
    """Add one task to the bill. Raises TaskNotFound."""
    CURRENT_TASK.set(key.task_id)
    task = await service.runtime.store.load(key)
    if task is None:
        mine = key.instance == _own(service, caller)
        raise TaskNotFound(f"{'you have' if mine else f'{key.instance} has'} no task {key.task_id!r}")
    bill.add(task)


async def _add_page(
    service: Service, instance: str | None, bill: "Bill", limit: int, cursor: str | None
) -> str | None:
    """Add up to `limit` tasks of a caller, or of all, to the bill; return the cursor for more tasks that may count."""
    runtime = service.runtime
    swarm = f"@{runtime.swarm.name}"
    left, since = limit, bill.period.since
    while left > 0:
        page = await runtime.store.list_tasks(instance, limit=min(left, BATCH), cursor=cursor)
        for task in page.tasks:
            if task.instance.endswith(swarm) and task.schedule is None:
                bill.add(task)
        left -= len(page.tasks)
        cursor = page.cursor
        if cursor is None:
            return None
        if since is not None and page.is_ordered and _began(page.tasks[-1]) + CLOCK_SKEW < since:
            return None
        await asyncio.sleep(0)
    return cursor


@dataclass(slots=True)
class Bill:
    """Adds up the usage of tasks of a period and of a version, or all; `itemized` lists each of them as well."""

    period: Period
    version: str | None = None
    itemized: bool = False
    _tasks: int = 0
    _total: Usage = NO_USAGE
    _agents: dict[str, Usage] = field(default_factory=dict)
    _models: dict[str, Usage] = field(default_factory=dict)
    _callers: dict[str, Usage] = field(default_factory=dict)
    _days: dict[str, Usage] = field(default_factory=dict)
    _versions: dict[str, Usage] = field(default_factory=dict)
    _items: list[TaskCost] = field(default_factory=list)

    def add(self, task: Task) -> None:
        version = next(iter(task.generation.versions), "")
        if _began(task) not in self.period or self.version not in (None, version):
            return
        self._tasks += 1
        cost = sum(task.usage.values(), NO_USAGE)
        if not cost:
            return
        self._total += cost
        _add(self._agents, task.usage)
        _add(self._models, task.models)
        _add(self._callers, {task.instance: cost})
        _add(self._days, {_began(task).astimezone(UTC).date().isoformat(): cost})
        _add(self._versions, {version: cost})
        if self.itemized:
            self._items.append(TaskCost(**fill(TaskCost, task, caller=task.instance, usage=cost)))

    def report(self, cursor: str | None) -> UsageReport:
        since, until = self.period.since, self.period.until
        return UsageReport(
            tasks=self._tasks,
            total=self._total,
            agents=self._agents,
            models=self._models,
            callers=self._callers,
            days=self._days,
            versions=self._versions,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
            cursor=cursor,
            per_task=self._items if self.itemized else None,
        )


def _add(sums: dict[str, Usage], more: Mapping[str, Usage]) -> None:
    for name, usage in more.items():
        sums[name] = sums.get(name, NO_USAGE) + usage
