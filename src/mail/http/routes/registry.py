"""The registry of other swarms."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import Field

from mail.core.task.audit import Act
from mail.errors import SwarmNotFound
from mail.http.access import Admin, RoleGate
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import Service, base_url, service_of

if TYPE_CHECKING:
    from mail.net.peers import Registry


class PostSwarms(Given):
    """Another swarm that agents may write to."""

    name: str = Field(description="Its name, as given at its `/`.")
    base_url: str = Field(
        description="Its server: `https://host`, optionally with a port and a path; or the agent card of an agent that "
        "is called by A2A, whose URL ends with `.json`."
    )
    auth_token: str | None = Field(
        default=None,
        description="The token for calling it, or a reference to a variable such as "
        "`${SWARM_AUTH_TOKEN_BETA}`. The default is the variable of its name.",
    )
    metadata: dict[str, Any] | None = Field(
        default=None, description="Any metadata. It is public if the swarm is."
    )
    volatile: bool | None = Field(
        default=None,
        description="Whether to remove it after a day and when the server stops. A volatile swarm may have a token, a "
        "permanent one only a reference to a variable. The default is true if `auth_token` is a token.",
    )
    auth: Literal["bearer", "aws_iam"] | None = Field(
        default=None,
        description="`aws_iam` for a Lambda function URL whose callers sign with AWS Signature 4; the default is "
        "`bearer`.",
    )
    caller_id: str | None = Field(
        default=None,
        description="The id of the token with which it calls this server; the default is its name.",
    )


class SwarmEndpoint(Answered):
    """A swarm, and the result of its last health check; with `all` what else is registered about it."""

    swarm_name: str
    base_url: str
    version: str
    last_seen: str | None = Field(description="Time of its last answer.")
    is_active: bool
    latency: float | None = Field(description="Seconds that the answer took.")
    swarm_description: str
    keywords: list[str]
    metadata: dict[str, Any]
    public: bool = Field(default=True, description="With `all`: whether everybody sees it.")
    volatile: bool = Field(default=False, description="With `all`: whether it is removed after a day.")
    expires: float | None = Field(
        default=None, description="With `all`: when a volatile one is removed, in seconds since the epoch."
    )
    auth: str = Field(default="bearer", description="With `all`: how requests to it are signed.")
    auth_token_ref: str | None = Field(
        default=None, description="With `all`: the reference to the variable with its token."
    )
    caller_id: str = Field(default="", description="With `all`: the id of its token for this server.")
    kind: Literal["mail", "a2a"] = Field(
        default="mail", description="With `all`: `a2a` for an agent that is called by A2A."
    )


class Swarms(Answered):
    """The public swarms, or all."""

    swarms: list[SwarmEndpoint]


class SwarmRegistered(Answered):
    """Agents may write to the swarm from now on."""

    status: Literal["registered"]
    swarm_name: str
    notes: list[str] = Field(description="Notes for the server's operator, such as which variable to set.")


class SwarmUnregistered(Answered):
    """The swarm has been removed from the registry."""

    status: Literal["unregistered"]
    swarm_name: str


router = make_router("swarms")
_register_body = JSONBody(PostSwarms)
_all_gate = RoleGate("admin")


@router.get("/swarms", summary="List the public swarms", **answers(Swarms, 400, 401, 403, 429))
async def get_swarms(
    request: Request,
    every: Annotated[
        bool, Query(alias="all", description="All registered swarms, with their settings. Only for admins.")
    ] = False,
) -> JSON:
    """Return the public swarms of the registry, and the server's own if it is public. Needs no key without `all`."""
    service = service_of(request)
    if every:
        await _all_gate(request)
        found = [] if service.registry is None else await service.registry.all_endpoints()
        return JSON({"swarms": found})
    own = [_own(service, request)] if service.runtime.swarm.public else []
    registered = [] if service.registry is None else await service.registry.public_endpoints()
    return JSON({"swarms": [*own, *registered]})


def _own(service: Service, request: Request) -> dict[str, Any]:
    """Return this server's own swarm as `SwarmEndpoint`."""
    swarm = service.runtime.swarm
    return {
        "swarm_name": swarm.name,
        "base_url": base_url(request),
        "version": swarm.version,
        "last_seen": service.runtime.clock.now().isoformat(),
        "is_active": True,
        "latency": 0.0,
        "swarm_description": swarm.description,
        "keywords": swarm.keywords,
        "metadata": {},
    }


@router.post("/swarms", summary="Register another swarm", **answers(SwarmRegistered, 404))
async def post_swarms(
    request: Request, caller: Admin, body: Annotated[PostSwarms, Depends(_register_body)]
) -> JSON:
    """Let agents write to `agent@name`; replaces a swarm registered under that name. Only for admins.

    The swarm's description is read from its `/`, or later if the swarm is down. If a swarm of another name answers
    there, the registration is refused. A browser's session can't register one.
    """
    async with audited(request, caller, Act.REGISTER_SWARM, body.name):
        refuse_session(caller, "mail client, and in it: swarm-register NAME URL")
        done = await _registry(request).register_swarm(
            body.name,
            body.base_url,
            body.auth_token,
            body.metadata,
            body.volatile,
            auth=body.auth or "bearer",
            caller_id=body.caller_id or "",
        )
    return JSON({"status": "registered", "swarm_name": body.name, "notes": done.notes})


@router.delete("/swarms/{name:path}", summary="Remove another swarm", **answers(SwarmUnregistered, 400, 404))
async def delete_swarm(
    request: Request, caller: Admin, name: Annotated[str, Path(description="The name of the swarm.")]
) -> JSON:
    """Remove a swarm from the registry, so that agents can no longer write to it. Only for admins."""
    async with audited(request, caller, Act.REMOVE_SWARM, name):
        if not await _registry(request).unregister_swarm(name):
            raise SwarmNotFound(f"no swarm {name!r} is registered here")
    return JSON({"status": "unregistered", "swarm_name": name})


def _registry(request: Request) -> "Registry":
    registry = service_of(request).registry
    if registry is None:
        raise SwarmNotFound("this server knows no other swarms")
    return registry
