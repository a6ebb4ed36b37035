"""The server itself: its status and metrics, and who the caller is."""

import asyncio
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import Field

from mail.auth.keys import Caller
from mail.core.task.documents import CallerRole
from mail.core.task.task import TaskStatus
from mail.errors import MetricsOff
from mail.http.access import AdminOrUser, RoleGate
from mail.http.bodies import JSON, Answered
from mail.http.openapi import make_router, problems
from mail.http.service import service_of
from mail.http.task_records import WaitingFor, WorkingAgent, queued, waiting_for

SHOWN_TASKS = 10
"""How many running tasks `GET /status` describes."""


class Whoami(Answered):
    """The caller's identity."""

    id: str
    role: CallerRole


class SwarmState(Answered):
    """Whether the swarm takes messages."""

    name: str
    status: Literal["ready"]


class RunningTask(Answered):
    """What happens in a running task."""

    task_id: str
    working: list[WorkingAgent]
    queued: dict[str, int] = Field(description="As in `GET /task`.")
    waiting_for: list[WaitingFor]


class Status(Answered):
    """Activity on the server and of the caller."""

    swarm: SwarmState
    active_users: int = Field(description="How many callers have a running task.")
    user_mail_ready: bool = Field(description="Whether the caller has any task.")
    user_task_running: bool = Field(description="Whether the caller has a running task.")
    tasks: list[RunningTask] = Field(
        description=f"The caller's {SHOWN_TASKS} newest running tasks: who works in them, and what they wait for."
    )


router = make_router("server")


class MetricsGate(RoleGate):
    """Lets only admins read the metrics, unless the server makes them public."""

    async def __call__(self, request: Request) -> Caller | None:  # type: ignore[override]
        service = service_of(request)
        is_public = service.metrics is not None and service.metrics_are_public
        return None if is_public else await super().__call__(request)


@router.get("/whoami", summary="Identify the caller", response_model=Whoami)
async def get_whoami(caller: AdminOrUser) -> JSON:
    """Return the id and role of the caller's key."""
    return JSON({"id": caller.id, "role": caller.role})


@router.get("/status", summary="Activity on the server and of the caller", response_model=Status)
async def get_status(request: Request, caller: AdminOrUser) -> JSON:
    """Return whether the swarm is ready, how many callers have running tasks, and whether this one has."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    any_task = await runtime.store.list_tasks(instance, limit=1)
    running = await runtime.store.list_tasks(instance, status=TaskStatus.RUNNING, limit=SHOWN_TASKS)
    working = await asyncio.gather(*map(runtime.working, running.tasks))
    return JSON(
        {
            "swarm": {"name": runtime.swarm.name, "status": "ready"},
            "active_users": await runtime.store.count_active_instances(),
            "user_mail_ready": bool(any_task.tasks),
            "user_task_running": bool(running.tasks),
            "tasks": [
                {
                    "task_id": task.task_id,
                    "working": agents,
                    "queued": queued(task),
                    "waiting_for": waiting_for(task),
                }
                for task, agents in zip(running.tasks, working, strict=True)
            ],
        }
    )


@router.get(
    "/metrics",
    summary="Metrics of the server",
    response_class=Response,
    responses={
        200: {
            "description": "Counters, gauges and histograms in Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems(404),
    },
)
async def get_metrics(
    request: Request, caller: Annotated[Caller | None, Depends(MetricsGate("admin"))]
) -> Response:
    """Return the metrics of this process since it started. Only for admins, unless the server makes them public."""
    metrics = service_of(request).metrics
    if metrics is None:
        raise MetricsOff
    return Response(metrics.render(), media_type=metrics.content_type)
