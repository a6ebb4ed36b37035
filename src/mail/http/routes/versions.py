"""`GET /swarms/versions`: the versions of the swarm with which open tasks began, and what these tasks need."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Query, Request
from pydantic import Field

from mail.core.decisions.versions import Need, needs_of
from mail.core.engine.runtime import Runtime
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest
from mail.http.access import Admin
from mail.http.bodies import JSON, Answered
from mail.http.openapi import answers, make_router
from mail.http.service import service_of

MAX_TASKS = 1000
"""Tasks that one request reads."""

BATCH = 100
"""Tasks that are read before other requests may run."""

EXAMPLES = 10
"""Tasks that are named for each need."""

OPEN = (TaskStatus.RUNNING, TaskStatus.PAUSED)


class NeedingTask(Answered):
    """A task that needs something of the swarm."""

    task_id: str
    caller: str


class NeededOf(Answered):
    """Something that open tasks need of the swarm."""

    agent: str
    action: str = Field(description="The action of this agent; empty for the agent alone.")
    tasks: int
    examples: list[NeedingTask] = Field(description=f"The first {EXAMPLES} of these tasks.")


class OpenTasks(Answered):
    """How many tasks are open."""

    running: int
    waiting: int = Field(description="In which nothing happens before a call ends, or a timer is due.")
    paused: int


class SwarmVersion(Answered):
    """A version of the swarm, with the open tasks whose runs began with it."""

    digest: str = Field(description="Its name; empty for tasks that began before versions were recorded.")
    version: str = Field(description="The swarm's own name for it; empty if it is no longer kept.")
    code: str = Field(description="The swarm's name for the version of its code.")
    can_finish: bool = Field(
        description="Whether another process can build it again, so that its tasks can finish on it: it was read from "
        "swarms.json, and is kept."
    )
    tasks: OpenTasks
    needs: list[NeededOf]


class SwarmVersions(Answered):
    """The present version of the swarm, and those with which open tasks began."""

    swarm: str
    present: str = Field(description="The digest of the version that runs now.")
    versions: list[SwarmVersion]
    cursor: str | None = Field(
        description="The `cursor` for further tasks, if there may be any: add up the answers."
    )


router = make_router("swarms")


@router.get("/swarms/versions", summary="List the versions of the swarm", **answers(SwarmVersions, 400))
async def get_versions(
    request: Request,
    caller: Admin,
    limit: Annotated[int, Query(ge=1, le=MAX_TASKS, description="Open tasks to read.")] = MAX_TASKS,
    cursor: Annotated[str | None, Query(description="The previous response's cursor.")] = None,
) -> JSON:
    """Return the present version and those with which open tasks began, and what these need. Only for admins."""
    service = service_of(request)
    await service.refresh()
    runtime = service.runtime
    found = defaultdict(_Found, {runtime.swarm.digest: _Found()})
    following = await _read(runtime, found, limit, cursor)
    versions = [await _describe(runtime, digest, tasks) for digest, tasks in found.items()]
    return JSON(
        SwarmVersions(
            swarm=runtime.swarm.name, present=runtime.swarm.digest, versions=versions, cursor=following
        )
    )


async def _describe(runtime: Runtime, digest: str, found: "_Found") -> SwarmVersion:
    if digest == runtime.swarm.digest:
        version: SwarmCore | None = runtime.swarm
    else:
        version = await runtime.versions.read(digest) if digest and runtime.versions is not None else None
    return SwarmVersion(
        digest=digest,
        version="" if version is None else version.version,
        code="" if version is None else version.code,
        can_finish=version is not None and version.entry is not None,
        tasks=found.tasks(),
        needs=found.needs(),
    )


@dataclass(slots=True)
class _Found:
    """The open tasks of a version."""

    counts: Counter[str] = field(default_factory=Counter)
    by_need: defaultdict[Need, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, task: Task) -> None:
        self.counts["waiting" if task.is_asleep else task.status.value] += 1
        for need in needs_of(task):
            self.by_need[need].append((task.task_id, task.instance))

    def tasks(self) -> OpenTasks:
        return OpenTasks(
            running=self.counts["running"], waiting=self.counts["waiting"], paused=self.counts["paused"]
        )

    def needs(self) -> list[NeededOf]:
        return [
            NeededOf(
                agent=need.agent,
                action=need.action,
                tasks=len(tasks),
                examples=[NeedingTask(task_id=task, caller=caller) for task, caller in tasks[:EXAMPLES]],
            )
            for need, tasks in sorted(self.by_need.items(), key=lambda each: (each[0].agent, each[0].action))
        ]


async def _read(
    runtime: Runtime, found: defaultdict[str, _Found], limit: int, cursor: str | None
) -> str | None:
    """Read open tasks of all callers; return the cursor for more: a status, and that of the store."""
    status, _, within = (cursor or OPEN[0]).partition(" ")
    if status not in OPEN:
        raise BadRequest("the cursor is not one that this endpoint has returned")
    for each in OPEN[OPEN.index(TaskStatus(status)) :]:
        while True:
            if limit <= 0:
                return f"{each} {within}".rstrip()
            page = await runtime.store.list_tasks(
                None, status=each, limit=min(limit, BATCH), cursor=within or None
            )
            limit -= len(page.tasks)
            for task in page.tasks:
                if task.instance.endswith(f"@{runtime.swarm.name}") and task.schedule is None:
                    found[next(iter(task.generation.versions), "")].add(task)
            await asyncio.sleep(0)
            within = page.cursor or ""
            if not within:
                break
    return None
