"""Actions: `ping_swarm`, `get_swarm_health` and `list_known_swarms`, also as `get_swarm_registry`."""

import asyncio
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
)

from mail.api.actions import action
from mail.stdlib.arguments import Arguments
from mail.stdlib.web import fetch
from mail.utils.outcomes import ActionFailed, Timeout, as_json, cut

__all__ = ["get_swarm_health", "get_swarm_registry", "list_known_swarms", "ping_swarm"]

MAX_SHOWN = 2000
"""Characters of a text from another server that an agent sees."""


Text = Annotated[
    str, BeforeValidator(lambda given: cut(given, MAX_SHOWN) if isinstance(given, str) else given)
]
Name = Annotated[str, StringConstraints(max_length=256)]
Keywords = Annotated[list[Name], Field(max_length=100)]


class SwarmOfServer(BaseModel):
    """The swarm that a server runs."""

    name: Name
    version: Name = ""
    description: Text = ""
    entrypoint: Name = ""
    keywords: Keywords = []
    public: bool = False


class Root(BaseModel):
    """The body of `GET /`; unknown fields are ignored."""

    name: Literal["mail"]
    status: Name = ""
    protocol_version: Name
    swarm: SwarmOfServer
    uptime: float | None = None


class Health(BaseModel):
    """The body of `GET /health`."""

    status: Text
    swarm_name: Name
    timestamp: Name = ""


class KnownSwarm(BaseModel):
    """A swarm that a server lists."""

    swarm_name: Name
    base_url: Text
    version: Name | None = None
    last_seen: Name | None = None
    is_active: bool | None = None
    latency: float | None = None
    swarm_description: Text | None = None
    keywords: Keywords | None = None


class Swarms(BaseModel):
    """The body of `GET /swarms`."""

    swarms: list[KnownSwarm]


MAX_REPLY_BYTES = 1024 * 1024
MAX_SWARMS = 200
"""Swarms that one call returns."""


class ServerArguments(Arguments):
    """The arguments of all actions in this module."""

    also_named: ClassVar = {"url": "base_url"}

    base_url: str = Field(
        max_length=2048,
        description="The MAIL server's base URL, such as https://swarm.example.com",
    )
    timeout: Timeout = 10.0


@action(read_only=True)
async def ping_swarm(request: ServerArguments) -> str:
    """Ask a MAIL server which swarm it runs. Returns JSON: base_url, latency in seconds, protocol_version, swarm."""
    begin = asyncio.get_running_loop().time()
    root = await _get(request, "/", Root)
    latency = round(asyncio.get_running_loop().time() - begin, 3)
    shown = {
        "base_url": _base(request),
        "latency": latency,
        **root.model_dump(mode="json", exclude_none=True),
    }
    return as_json(shown)


@action(read_only=True)
async def get_swarm_health(request: ServerArguments) -> str:
    """Ask a MAIL server for the health of its swarm. Returns JSON: base_url, swarm_name, status, timestamp."""
    health = await _get(request, "/health", Health)
    return as_json({"base_url": _base(request), **health.model_dump(mode="json")})


@action(read_only=True)
async def list_known_swarms(request: ServerArguments) -> str:
    """Ask a MAIL server which public swarms it knows. Returns JSON: base_url and swarms, each with its own base_url."""
    return await _list(request)


@action(read_only=True)
async def get_swarm_registry(request: ServerArguments) -> str:
    """Ask a MAIL server which public swarms it knows, as list_known_swarms does. Returns JSON: base_url and swarms."""
    return await _list(request)


async def _list(request: ServerArguments) -> str:
    known = (await _get(request, "/swarms", Swarms)).swarms
    shown: dict[str, Any] = {
        "base_url": _base(request),
        "swarms": [swarm.model_dump(mode="json", exclude_none=True) for swarm in known[:MAX_SWARMS]],
    }
    if len(known) > MAX_SWARMS:
        shown["left_out"] = len(known) - MAX_SWARMS
    return as_json(shown)


def _base(request: ServerArguments) -> str:
    return request.base_url.rstrip("/")


async def _get[Reply: BaseModel](request: ServerArguments, path: str, kind: type[Reply]) -> Reply:
    """Get a resource of the server. Raises ActionFailed if it is not a MAIL server."""
    url = f"{_base(request)}{path}"
    answer = await fetch("GET", url, timeout=request.timeout, limit=MAX_REPLY_BYTES)
    if answer.status != 200:
        raise ActionFailed(f"{_base(request)} answered {answer.status} to GET {path}")
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        raise ActionFailed(f"{url} is not the response of a MAIL server") from error
