"""The swarm that the server runs: look at it, or put another one in its place."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from mail.errors import SwarmFixed
from mail.http.access import Admin
from mail.http.bodies import JSON, JSONBody
from mail.http.openapi import PROTECTED, problems
from mail.http.schemas import PostSwarmsLoad, SwarmDump, SwarmLoaded
from mail.http.service import service_of
from mail.swarms_json.live import LiveSwarm

router = APIRouter(tags=["swarms"])
_load_body = JSONBody(PostSwarmsLoad)


@router.get(
    "/swarms/dump",
    summary="Write the swarm to the log",
    response_model=SwarmDump,
    responses=problems(404, *PROTECTED),
)
async def dump_swarm(request: Request, caller: Admin) -> JSON:
    """Write the swarm that runs to the server's log, less what looks like a secret, and return it. Only for admins."""
    served = _served(request)
    await served.refresh()
    swarm = served.dump()
    return JSON({"status": "dumped", "swarm_name": served.entry.name, "swarm": swarm})


@router.post(
    "/swarms/load",
    summary="Put another swarm in the place of the present one",
    response_model=SwarmLoaded,
    responses=problems(400, 404, 413, *PROTECTED),
    openapi_extra=_load_body.docs(),
)
async def load_swarm(
    request: Request, caller: Admin, body: Annotated[PostSwarmsLoad, Depends(_load_body)]
) -> JSON:
    """Replace the swarm by another version of it, for all tasks from their next turns on. Only for admins.

    It may refer to modules that the server's settings allow, and to public URLs.
    """
    entry = await _served(request).load(body.swarm)
    return JSON({"status": "success", "swarm_name": entry.name})


def _served(request: Request) -> LiveSwarm:
    served = service_of(request).served
    if served is None:
        raise SwarmFixed
    return served
