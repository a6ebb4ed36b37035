"""The server itself, and logins."""

from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, StringConstraints

from mail.auth.keys import find_bearer
from mail.core.task.audit import Act
from mail.errors import Unauthenticated
from mail.http.audit import audited
from mail.http.bodies import JSON
from mail.http.mail2.access import Host, Own, make_routers
from mail.http.service import address_of, service_of
from mail.mail2.accounts import ACCESS_SECONDS, FAMILY_SECONDS, WRONG_REFRESH, Tokens
from mail.mail2.addresses import Address
from mail.mail2.host import MailHost
from mail.mail2.records import Account

COOKIE = "mail_refresh_token"

public, own, _admin, _daemon = make_routers()
routers = (public, own)

Password = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class RefreshToken(BaseModel):
    """A refresh token; the one in the cookie is used if there is one."""

    refresh_token: str | None = None


class NewPassword(BaseModel):
    """A password, and the one before it; an API key of the account will do for that."""

    current_password: Password
    new_password: Password


@public.get("", include_in_schema=False)
@public.get("/", tags=["server"])
async def get_root(request: Request) -> JSON:
    """Return the protocol, and the seconds since the server started."""
    service = service_of(request)
    uptime = service.runtime.clock.now().timestamp() - service.started
    return JSON({"protocol_name": "mail", "protocol_version": "2.0", "uptime": uptime, "metadata": {}})


@public.get("/health", tags=["server"])
async def get_health() -> JSON:
    """Return that the server works."""
    return JSON({"status": "ok"})


@public.post(
    "/auth/token",
    tags=["auth"],
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {
                        "type": "object",
                        "required": ["username", "password"],
                        "properties": {
                            "grant_type": {"type": "string", "const": "password"},
                            "username": {"type": "string", "description": "The full address."},
                            "password": {"type": "string", "description": "The password, or an API key."},
                        },
                    }
                }
            },
        }
    },
)
async def post_token(request: Request, host: Host) -> JSON:
    """Log in with the password grant of OAuth 2."""
    form = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=20))
    problems: list[dict[str, Any]] = [
        {"type": "missing", "loc": ("body", name), "msg": "Field required", "input": None}
        for name in ("username", "password")
        if not form.get(name)
    ]
    if form.get("grant_type", "password") != "password":
        pattern = {
            "loc": ("body", "grant_type"),
            "input": form["grant_type"],
            "ctx": {"pattern": "^password$"},
        }
        message = "String should match pattern '^password$'"
        problems.append({"type": "string_pattern_mismatch", "msg": message, **pattern})
    if problems:
        raise RequestValidationError(problems)
    try:
        tokens = await host.accounts.log_in(form["username"], form["password"], address_of(request))
    except Unauthenticated as error:
        await _audit_failure(request, host, form["username"], error)
        raise
    return _tokens(request, tokens)


async def _audit_failure(request: Request, host: MailHost, username: str, error: Unauthenticated) -> None:
    """Audit a failed login to an account that exists, by who its caller would have been."""
    with suppress(ValueError):
        key = Address.parse(username).key
        for account in (await host.accounts.find(key)).values():
            with suppress(Unauthenticated):
                async with audited(request, host.caller_of(account), Act.LOG_IN, key):
                    raise error


@public.post("/auth/refresh", tags=["auth"])
async def post_refresh(request: Request, host: Host, body: RefreshToken | None = None) -> JSON:
    """Exchange a refresh token for new tokens. One that was used before ends its session."""
    given = _refresh_token(request, body)
    if not given:
        raise Unauthenticated(WRONG_REFRESH)
    return _tokens(request, await host.accounts.refresh(given))


@public.post("/auth/logout", tags=["auth"])
async def post_logout(request: Request, host: Host, body: RefreshToken | None = None) -> JSON:
    """End the session of a refresh token, and that of the access token in the header, if there is one."""
    try:
        bearer = find_bearer(request.headers)
    except Unauthenticated:
        bearer = ""
    await host.accounts.log_out(_refresh_token(request, body), bearer)
    response = JSON({"status": "success"})
    response.delete_cookie(COOKIE, path=_cookie_path(request), httponly=True, samesite="strict")
    return response


@own.get("/auth/whoami", tags=["auth"])
async def get_whoami(host: Host, account: Own) -> JSON:
    """Return the account of the token."""
    return JSON({"user_agent": {"user_agent": shown(host, account)}, "metadata": {}})


@own.post("/auth/password/reset", tags=["auth"])
async def post_password(request: Request, host: Host, account: Own, body: NewPassword) -> JSON:
    """Change the password, which ends all sessions."""
    async with audited(request, host.caller_of(account), Act.CHANGE_PASSWORD, account.key):
        await host.accounts.reset(account, body.current_password, body.new_password, address_of(request))
    return JSON({"status": "success"})


def shown(host: MailHost, account: Account) -> dict[str, str]:
    """Return an account as JSON."""
    names = {
        "admin": {"admin_id": account.name},
        "agent": {"name": account.name, "swarm": account.swarm},
        "daemon": {"worker_name": account.name},
        "user": {"user_id": account.name},
    }
    return {"ua_type": account.kind, **names[account.kind], "host": host.host}


def _refresh_token(request: Request, body: RefreshToken | None) -> str:
    return request.cookies.get(COOKIE) or (body and body.refresh_token) or ""


def _cookie_path(request: Request) -> str:
    """Return the path that the refresh token is sent to, as the browser sees it."""
    return f"{request.scope.get('root_path', '')}/v2/auth"


def _tokens(request: Request, tokens: Tokens) -> JSON:
    answer: dict[str, Any] = {
        "access_token": tokens.access,
        "token_type": "bearer",
        "refresh_token": tokens.refresh,
        "expires_in": ACCESS_SECONDS,
        "metadata": {},
    }
    response = JSON(answer, headers={"Cache-Control": "no-store"})
    if tokens.refresh is not None:
        response.set_cookie(
            COOKIE,
            tokens.refresh,
            max_age=FAMILY_SECONDS,
            path=_cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
    return response
