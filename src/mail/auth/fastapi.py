"""FastAPI dependencies that authenticate callers, for MAIL's own routes and for programs built on MAIL.

Inside a MAIL server they use its authenticator; elsewhere the external service that the environment names
(`AUTH_ENDPOINT`, `TOKEN_INFO_ENDPOINT`).
"""

import math
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import HTTPException, Request

from mail.auth.keys import Authenticator, Caller, find_bearer
from mail.core.task.documents import CallerRole
from mail.errors import ConfigurationError, Forbidden, MAILError

if TYPE_CHECKING:
    from mail.auth.service import AuthService

CHALLENGE = {"WWW-Authenticate": "Bearer"}
"""The header of every 401 response."""


async def identify(request: Request, *roles: CallerRole) -> Caller:
    """Return the caller of a request, who must have one of the roles if any are given.

    Raises Unauthenticated, Forbidden, AuthServiceUnavailable.
    """
    bearer = find_bearer(request.headers)
    authenticator: Authenticator | None = getattr(request.app.state, "authenticator", None)
    if authenticator is not None:
        caller = await authenticator.authenticate(bearer)
    else:
        async with _service_of_environment() as service:
            caller = await service.authenticate(bearer)
    check_role(caller, roles)
    return caller


def check_role(caller: Caller, roles: Sequence[CallerRole]) -> None:
    """Raise Forbidden if a caller has none of the roles; no roles stand for any."""
    if roles and caller.role not in roles:
        raise Forbidden(f"this endpoint is for the role {' or '.join(roles)}; this key's is {caller.role}")


async def login(api_key: str) -> str:
    """Exchange an API key for a token of the external service. Raises Unauthenticated, AuthServiceUnavailable."""
    async with _service_of_environment() as service:
        return await service.login(api_key)


async def get_token_info(token: str) -> dict[str, Any]:
    """Return the `{role, id, api_key}` of a token. Raises Unauthenticated, AuthServiceUnavailable."""
    async with _service_of_environment() as service:
        return (await service.token_info(token)).model_dump()


async def extract_token_info(request: Request) -> dict[str, Any]:
    """Return the `{role, id, api_key}` of the caller: a FastAPI dependency. Raises HTTPException."""
    caller = await _admit(request)
    return {"role": caller.role, "id": caller.id, "api_key": find_bearer(request.headers)}


async def caller_is_admin(request: Request) -> bool:
    """Return True for an admin: a FastAPI dependency. Raises HTTPException otherwise."""
    return bool(await _admit(request, "admin"))


async def caller_is_user(request: Request) -> bool:
    """Return True for a user: a FastAPI dependency. Raises HTTPException otherwise."""
    return bool(await _admit(request, "user"))


async def caller_is_agent(request: Request) -> bool:
    """Return True for another swarm: a FastAPI dependency. Raises HTTPException otherwise."""
    return bool(await _admit(request, "agent"))


async def caller_is_admin_or_user(request: Request) -> bool:
    """Return True for an admin or a user: a FastAPI dependency. Raises HTTPException otherwise."""
    return bool(await _admit(request, "admin", "user"))


def generate_user_id(token_info: Mapping[str, Any]) -> str:
    """Return the id of a user or admin, unique across roles: `<role>_<id>`."""
    return f"{token_info['role']}_{token_info['id']}"


def generate_agent_id(token_info: Mapping[str, Any]) -> str:
    """Return the id of another swarm: `swarm_<id>`."""
    return f"swarm_{token_info['id']}"


async def _admit(request: Request, *roles: CallerRole) -> Caller:
    """Return the caller of a request, with MAIL's errors translated into HTTPException; see `identify`."""
    try:
        return await identify(request, *roles)
    except MAILError as error:
        raise HTTPException(error.http_status, error.detail, headers_of(error)) from error


def headers_of(error: MAILError) -> Mapping[str, str] | None:
    """Return the headers for an error response."""
    if error.retry_after is not None:
        return {"Retry-After": str(math.ceil(error.retry_after))}
    return CHALLENGE if error.http_status == 401 else None


@asynccontextmanager
async def _service_of_environment() -> AsyncIterator["AuthService"]:
    import httpx2

    from mail.auth.service import AuthService

    try:
        endpoints = (os.environ["AUTH_ENDPOINT"], os.environ["TOKEN_INFO_ENDPOINT"])
    except KeyError as missing:
        raise ConfigurationError(f"set the environment variable {missing.args[0]}") from None
    async with httpx2.AsyncClient() as client:
        yield AuthService(client, *endpoints)
