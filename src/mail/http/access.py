"""Who may use a route: `caller: AdminOrUser` in its signature checks that, and documents it; and whose tasks it is about."""

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from mail.auth.fastapi import identify
from mail.auth.keys import Caller
from mail.core.protocol.address import Principal
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest, Forbidden
from mail.http.service import service_of


class RoleGate(SecurityBase):
    """FastAPI dependency: the caller, if it has one of the roles, and does not ask too often."""

    def __init__(self, *roles: CallerRole) -> None:
        self.roles = roles
        self.model = HTTPBearer(
            description="An API key, as `Authorization: Bearer <key>`. Where that header holds something else, such as a "
            "signature, it is read from `X-MAIL-Authorization: Bearer <key>`."
        )
        self.scheme_name = "bearer"

    def docs(self) -> dict[str, Any]:
        """What OpenAPI says of it, as `openapi_extra` of a route that calls it instead of depending on it."""
        return {"security": [{self.scheme_name: []}]}

    async def __call__(self, request: Request) -> Caller:
        caller = await identify(request, *self.roles)
        rates = service_of(request).rates
        if rates is not None:
            rates.admit(caller)
        return caller


AdminOrUser = Annotated[Caller, Depends(RoleGate("admin", "user"))]
Admin = Annotated[Caller, Depends(RoleGate("admin"))]
Agent = Annotated[Caller, Depends(RoleGate("agent"))]


def chosen_instance(caller: Caller, whose: str | None, swarm: str) -> str | None:
    """Whose tasks a request is about that may name a caller of this swarm; None for everybody's.

    `whose` is `role:id` or `role:id@swarm`, None where the request names nobody: then users mean themselves, and admins
    everybody. Raises Forbidden for users who name others, and BadRequest for what is no caller of this swarm, whose store
    may hold the tasks of other swarms as well.
    """
    own = str(caller.principal(swarm))
    if whose is None:
        return None if caller.role == "admin" else own
    principal = Principal.parse(whose if "@" in whose else f"{whose}@{swarm}")
    if caller.role != "admin" and str(principal) != own:
        raise Forbidden("others' tasks are for the role admin; leave `caller` out for your own")
    if principal.swarm != swarm:
        raise BadRequest(f"{whose!r} is a caller of another swarm; this server tells of those of {swarm!r}")
    return str(principal)
