"""What other swarms request when they register this swarm, and health checks: its identity, liveness and health."""

from typing import Annotated, Literal

from fastapi import Depends, Request
from pydantic import Field, StringConstraints

from mail.core.protocol import PROTOCOL_VERSION
from mail.core.protocol.values import fill
from mail.core.task.audit import Act
from mail.http.access import Admin
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import make_router
from mail.http.service import Service, service_of

DEFAULT_HEALTH = "healthy"

LIVE = b'{"status":"live"}'
"""The answer to `GET /live`, which a server without room for further connections sends, too."""


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


class Live(Answered):
    """The process answers requests."""

    status: Literal["live"]


class PostHealth(Given):
    """A new health status."""

    status: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Health(Answered):
    """The health of the swarm."""

    status: str
    swarm_name: str
    timestamp: str


router = make_router("server")
_health_body = JSONBody(PostHealth)


@router.get("/", summary="Identify the service", response_model=Root)
async def get_root(request: Request) -> JSON:
    """Return name, protocol version and swarm of this server. Needs no key."""
    service = service_of(request)
    swarm = service.runtime.swarm
    return JSON(
        {
            "name": "mail",
            "status": "running",
            "protocol_version": PROTOCOL_VERSION,
            "swarm": fill(SwarmInfo, swarm),
            "uptime": service.runtime.clock.now().timestamp() - service.started,
        }
    )


@router.get("/live", summary="Liveness of the process", response_model=Live)
async def get_live() -> JSON:
    """Return that the process answers requests. Needs no key and no database, and no place among the connections."""
    return JSON(LIVE)


@router.get("/health", summary="Health of the swarm", response_model=Health)
async def get_health(request: Request) -> JSON:
    """Return the status that an admin has set, `healthy` by default. Needs no key."""
    service = service_of(request)
    return _health(service, await service.documents.health() or DEFAULT_HEALTH)


@router.post("/health", summary="Set the health status", response_model=Health)
async def post_health(
    request: Request, caller: Admin, body: Annotated[PostHealth, Depends(_health_body)]
) -> JSON:
    """Set the status that other swarms see. Only for admins with an API key: a browser's session can't set it."""
    service = service_of(request)
    async with audited(request, caller, Act.SET_HEALTH, body.status):
        refuse_session(caller, "mail client, and in it: health-update STATUS")
        await service.documents.set_health(body.status)
    return _health(service, body.status)


def _health(service: Service, status: str) -> JSON:
    now = service.runtime.clock.now().isoformat()
    return JSON({"status": status, "swarm_name": service.runtime.swarm.name, "timestamp": now})
