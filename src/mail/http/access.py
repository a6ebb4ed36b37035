"""Access to routes by role: `caller: AdminOrUser` in a route's signature checks and documents it."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from mail.auth.fastapi import check_role, identify
from mail.auth.keys import Caller
from mail.core.protocol.address import Principal
from mail.core.protocol.message import TaskId
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest, Forbidden, RateLimited
from mail.http.account import CALLER
from mail.http.service import service_of

OTHER_OWNER = "The owner of the task, `role:id` or `role:id@swarm`, if it is another one; for admins."
"""Documentation of a parameter with which admins name the task of another caller."""

OtherOwner = Annotated[str | None, Query(alias="caller", description=OTHER_OWNER)]
GivenTask = Annotated[TaskId, Query(description="The task.")]
Since = Annotated[
    str | None,
    Query(description="Only what began at this time or later: ISO 8601, without an offset in UTC."),
]
Until = Annotated[str | None, Query(description="Only what began before this time.")]
NextCursor = Annotated[str | None, Query(description="The previous page's next cursor.")]

RESERVED = "mail.reserved"
"""A function in the scope of requests on connections that are kept for callers with few: it returns how many of a
caller's are busy.
"""

FEW = 10
"""Busy connections with which a caller may use one of those."""


_BEARER = HTTPBearer(
    description="An API key, as `Authorization: Bearer <key>`. If that header holds something else, such as a "
    "signature, send the key as `X-MAIL-Authorization: Bearer <key>`."
)


class RoleGate(SecurityBase):
    """FastAPI dependency that authenticates the caller, and checks its request rate and its role."""

    def __init__(self, *roles: CallerRole) -> None:
        self.roles = roles
        self.scheme_name = "bearer"
        self.model = _BEARER

    async def __call__(self, request: Request) -> Caller:
        caller = await identify(request)
        scope = request.scope
        scope[CALLER] = caller
        if RESERVED in scope and (busy := scope[RESERVED](caller)) > FEW:
            raise RateLimited(
                f"{busy} of your requests are under way, and the last connections of this server are kept for "
                f"callers with {FEW} or fewer; end some of them, or try again later"
            )
        service_of(request).rates.admit(caller)
        check_role(caller, self.roles)
        return caller


AdminOrUser = Annotated[Caller, Depends(RoleGate("admin", "user"))]
Admin = Annotated[Caller, Depends(RoleGate("admin"))]
Agent = Annotated[Caller, Depends(RoleGate("agent"))]


def read_time(text: str | None, name: str) -> datetime | None:
    """Return a time in ISO 8601; without an offset it is in UTC. Raises BadRequest."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{name} must be a date or time in ISO 8601, such as 2026-01-31 or 2026-01-31T08:00:00Z; "
            "in a URL, write + as %2B"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def chosen_instance(caller: Caller, whose: str | None, swarm: str) -> str | None:
    """Return the principal whose tasks a request is about; None for those of all callers.

    `whose` is `role:id` or `role:id@swarm`. If it is None, users get their own tasks, and admins those of all callers.
    Raises Forbidden for users who name another caller, and BadRequest for callers of other swarms, whose tasks may be
    in the same store.
    """
    own = str(caller.principal(swarm))
    if whose is None:
        return None if caller.role == "admin" else own
    principal = Principal.parse(whose if "@" in whose else f"{whose}@{swarm}")
    if caller.role != "admin" and str(principal) != own:
        raise Forbidden("only admins can see other callers' tasks; leave out `caller` to get your own")
    if principal.swarm != swarm:
        raise BadRequest(f"{whose!r} is a caller of another swarm; name one of {swarm!r}")
    return str(principal)


def named_instance(caller: Caller, whose: str | None, swarm: str) -> str:
    """Return the principal whose task or webhook a request names: the caller itself, or for admins `whose`.

    Raises Forbidden and BadRequest as `chosen_instance`.
    """
    own = str(caller.principal(swarm))
    return own if whose is None else chosen_instance(caller, whose, swarm) or own
