"""The other swarms that this one knows."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from mail.errors import SwarmNotFound
from mail.http.access import Admin
from mail.http.bodies import JSON, JSONBody
from mail.http.openapi import PROTECTED, PUBLIC, problems
from mail.http.registry_schemas import PostSwarms, SwarmRegistered, Swarms, SwarmUnregistered
from mail.http.service import Registry, Service, service_of

router = APIRouter(tags=["swarms"])
_register_body = JSONBody(PostSwarms)


@router.get("/swarms", summary="The public swarms", response_model=Swarms, responses=problems(*PUBLIC))
async def get_swarms(request: Request) -> JSON:
    """The public swarms that this server knows, its own among them if it is public. Needs no key."""
    service = service_of(request)
    own = [_own(service, request)] if service.runtime.swarm.public else []
    others = [] if service.registry is None else await service.registry.public_endpoints()
    return JSON({"swarms": [*own, *others]})


@router.post(
    "/swarms",
    summary="Register another swarm",
    response_model=SwarmRegistered,
    responses=problems(400, 404, 413, *PROTECTED),
    openapi_extra=_register_body.docs(),
)
async def post_swarms(
    request: Request, caller: Admin, body: Annotated[PostSwarms, Depends(_register_body)]
) -> JSON:
    """Let agents write to `agent@name`, in the place of what was registered by that name. Only for admins.

    What the swarm says of itself is read from its `/`; if it is down, later. If another one answers there, nothing
    is registered.
    """
    done = await _registry(request).register_swarm(
        body.name,
        body.base_url,
        body.auth_token,
        body.metadata,
        body.volatile,
        auth=body.auth or "bearer",
        caller_id=body.caller_id or "",
    )
    return JSON({"status": "registered", "swarm_name": body.name, "notes": done["notes"]})


@router.delete(
    "/swarms/{name:path}",
    summary="Forget another swarm",
    response_model=SwarmUnregistered,
    responses=problems(400, 404, *PROTECTED),
)
async def delete_swarm(
    request: Request, caller: Admin, name: Annotated[str, Path(description="The name of the swarm.")]
) -> JSON:
    """Let nobody write to the swarm any more. Only for admins."""
    if not await _registry(request).unregister_swarm(name):
        raise SwarmNotFound(f"no swarm {name!r} is registered here")
    return JSON({"status": "unregistered", "swarm_name": name})


def _registry(request: Request) -> Registry:
    registry = service_of(request).registry
    if registry is None:
        raise SwarmNotFound("this server knows no other swarms")
    return registry


def _own(service: Service, request: Request) -> dict[str, Any]:
    """This server's own swarm, which is here and well."""
    swarm, registry = service.runtime.swarm, service.registry
    base_url = registry.local_base_url if registry is not None else ""
    return {
        "swarm_name": swarm.name,
        "base_url": base_url or str(request.base_url).rstrip("/"),
        "version": swarm.version,
        "last_seen": service.runtime.clock.now().isoformat(),
        "is_active": True,
        "latency": 0.0,
        "swarm_description": swarm.description,
        "keywords": swarm.keywords,
        "metadata": {},
    }
