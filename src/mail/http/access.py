"""Who may use a route: `caller: AdminOrUser` in its signature checks that, and documents it."""

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from mail.core.ports import CallerRole
from mail.http.service import service_of
from mail.utils.auth import identify
from mail.utils.callers import Caller


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
