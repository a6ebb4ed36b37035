"""The server itself: which service it is, how it is, and who the caller is to it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from mail.core.protocol import PROTOCOL_VERSION
from mail.core.task.task import TaskStatus
from mail.http.access import Admin, AdminOrUser
from mail.http.bodies import JSON, JSONBody
from mail.http.openapi import PROTECTED, PUBLIC, problems
from mail.http.schemas import Health, PostHealth, Root, Status, Whoami
from mail.http.service import Service, service_of

DEFAULT_HEALTH = "healthy"

router = APIRouter(tags=["server"])
_health_body = JSONBody(PostHealth)


@router.get("/", summary="Which service this is", response_model=Root, responses=problems(*PUBLIC))
async def get_root(request: Request) -> JSON:
    """Name, protocol version and swarm of this server. Needs no key."""
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


@router.get("/health", summary="How the swarm is", response_model=Health, responses=problems(*PUBLIC))
async def get_health(request: Request) -> JSON:
    """The status that an admin has set, `healthy` by default. Needs no key."""
    service = service_of(request)
    return _health(service, await service.records.health() or DEFAULT_HEALTH)


@router.post(
    "/health",
    summary="Set how the swarm is",
    response_model=Health,
    responses=problems(400, 413, *PROTECTED),
    openapi_extra=_health_body.docs(),
)
async def post_health(
    request: Request, caller: Admin, body: Annotated[PostHealth, Depends(_health_body)]
) -> JSON:
    """Set the status that other swarms see. Only for admins."""
    service = service_of(request)
    await service.records.set_health(body.status)
    return _health(service, body.status)


@router.get("/whoami", summary="Who the caller is", response_model=Whoami, responses=problems(*PROTECTED))
async def get_whoami(caller: AdminOrUser) -> JSON:
    """The id and role that the caller's key stands for."""
    return JSON({"id": caller.id, "role": caller.role})


@router.get(
    "/status",
    summary="How busy the server is, and the caller",
    response_model=Status,
    responses=problems(*PROTECTED),
)
async def get_status(request: Request, caller: AdminOrUser) -> JSON:
    """Whether the swarm is ready, how many callers have running tasks, and whether this one has."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    any_task = await runtime.store.list_tasks(instance, limit=1)
    running = await runtime.store.list_tasks(instance, status=TaskStatus.RUNNING, limit=1)
    return JSON(
        {
            "swarm": {"name": runtime.swarm.name, "status": "ready"},
            "active_users": await runtime.store.count_active_instances(),
            "user_mail_ready": bool(any_task.tasks),
            "user_task_running": bool(running.tasks),
        }
    )


def _health(service: Service, status: str) -> JSON:
    now = service.runtime.clock.now().isoformat()
    return JSON({"status": status, "swarm_name": service.runtime.swarm.name, "timestamp": now})
