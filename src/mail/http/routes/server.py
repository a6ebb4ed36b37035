"""The server itself: its identity, health, status and metrics, and who the caller is."""

import asyncio
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import Field, StringConstraints

from mail.core.protocol import PROTOCOL_VERSION
from mail.core.task.documents import CallerRole
from mail.core.task.task import TaskStatus
from mail.errors import MetricsOff
from mail.http.access import Admin, AdminOrUser, RoleGate
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import PROTECTED, PUBLIC, make_router, problems
from mail.http.service import Service, service_of
from mail.http.task_json import WaitingFor, WorkingAgent, queued, waiting_for

DEFAULT_HEALTH = "healthy"

SHOWN_TASKS = 10
"""How many running tasks `GET /status` describes."""


class SwarmInfo(Answered):
    """The swarm's public description."""

    name: str
    version: str
    description: str
    entrypoint: str
    keywords: list[str]
    public: bool


class Root(Answered):
    """The service at this URL."""

    name: Literal["mail"]
    status: Literal["running"]
    protocol_version: str
    swarm: SwarmInfo
    uptime: float = Field(description="Seconds since the server started.")


class PostHealth(Given):
    """A new health status."""

    status: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Health(Answered):
    """The health of the swarm."""

    status: str
    swarm_name: str
    timestamp: str


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
_health_body = JSONBody(PostHealth)
_metrics_gate = RoleGate("admin")


@router.get("/", summary="Identify the service", response_model=Root, responses=problems(*PUBLIC))
async def get_root(request: Request) -> JSON:
    """Return name, protocol version and swarm of this server. Needs no key."""
    service = service_of(request)
    swarm = service.runtime.swarm
    return JSON(
        {
            "name": "mail",
            "status": "running",
            "protocol_version": PROTOCOL_VERSION,
            "swarm": {
                "name": swarm.name,
                "version": swarm.version,
                "description": swarm.description,
                "entrypoint": swarm.entrypoint,
                "keywords": swarm.keywords,
                "public": swarm.public,
            },
            "uptime": service.runtime.clock.now().timestamp() - service.started,
        }
    )


@router.get("/health", summary="Health of the swarm", response_model=Health, responses=problems(*PUBLIC))
async def get_health(request: Request) -> JSON:
    """Return the status that an admin has set, `healthy` by default. Needs no key."""
    service = service_of(request)
    return _health(service, await service.documents.health() or DEFAULT_HEALTH)


@router.post(
    "/health",
    summary="Set the health status",
    response_model=Health,
    responses=problems(400, 413, *PROTECTED),
    openapi_extra=_health_body.docs(),
)
async def post_health(
    request: Request, caller: Admin, body: Annotated[PostHealth, Depends(_health_body)]
) -> JSON:
    """Set the status that other swarms see. Only for admins."""
    service = service_of(request)
    await service.documents.set_health(body.status)
    return _health(service, body.status)


def _health(service: Service, status: str) -> JSON:
    now = service.runtime.clock.now().isoformat()
    return JSON({"status": status, "swarm_name": service.runtime.swarm.name, "timestamp": now})


@router.get("/whoami", summary="Identify the caller", response_model=Whoami, responses=problems(*PROTECTED))
async def get_whoami(caller: AdminOrUser) -> JSON:
    """Return the id and role of the caller's key."""
    return JSON({"id": caller.id, "role": caller.role})


@router.get(
    "/status",
    summary="Activity on the server and of the caller",
    response_model=Status,
    responses=problems(*PROTECTED),
)
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
        **problems(404, *PROTECTED),
    },
    openapi_extra=_metrics_gate.docs(),
)
async def get_metrics(request: Request) -> Response:
    """Return the metrics of this process since it started. Only for admins, unless the server makes them public."""
    service = service_of(request)
    if service.metrics is None or not service.metrics_are_public:
        await _metrics_gate(request)
    if service.metrics is None:
        raise MetricsOff
    return Response(service.metrics.render(), media_type=service.metrics.content_type)


PROBED = ("/", "/health")
"""What other swarms request when they register this swarm, and for health checks."""

probed = make_router("server")
probed.routes += [route for route in router.routes if isinstance(route, APIRoute) and route.path in PROBED]
