"""The server itself, logins, and the management of accounts."""

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, StringConstraints

from mail.auth.keys import find_bearer
from mail.core.task.audit import Act
from mail.errors import BadRequest, Conflict, Unauthenticated
from mail.http.audit import audited
from mail.http.bodies import JSON
from mail.http.mail2.access import Host, Own, make_routers
from mail.http.service import address_of, service_of
from mail.mail2.accounts import ACCESS_SECONDS, FAMILY_SECONDS, WRONG_REFRESH, Tokens
from mail.mail2.addresses import AccountKind, Address, Kind, Slug
from mail.mail2.host import MailHost
from mail.mail2.records import Account

COOKIE = "mail_refresh_token"

public, own, admin, _daemon = make_routers()
routers = (public, own, admin)

Password = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class RefreshToken(BaseModel):
    """A refresh token; the one in the cookie is used if there is one."""

    refresh_token: str | None = None


class NewPassword(BaseModel):
    """A password, and the one before it; an API key of the account will do for that."""

    current_password: Password
    new_password: Password


class NewUser(BaseModel):
    """A user."""

    user_id: Slug
    user_password: Password


class NewDaemon(BaseModel):
    """A daemon."""

    worker_name: Slug
    daemon_password: Password


class NewAgent(BaseModel):
    """An agent that runs elsewhere."""

    agent_name: Slug
    swarm_name: Slug
    agent_password: Password


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
    return JSON({"user_agent": {"user_agent": _shown(host, account)}, "metadata": {}})


@own.post("/auth/password/reset", tags=["auth"])
async def post_password(request: Request, host: Host, account: Own, body: NewPassword) -> JSON:
    """Change the password, which ends all sessions."""
    async with audited(request, host.caller_of(account), Act.CHANGE_PASSWORD, account.key):
        await host.accounts.reset(account, body.current_password, body.new_password, address_of(request))
    return JSON({"status": "success"})


def _manage(
    kind: AccountKind,
    names: str,
    parameter: str,
    new: type[BaseModel],
    listed: Callable[[Account], str],
    word: str,
) -> None:
    """Add the routes by which admins manage accounts of a kind, which a `word` describes; `listed` names one."""
    Named = Annotated[str, Path(alias=parameter)]  # noqa: N806  # a type

    async def list_all(host: Host) -> JSON:
        return JSON({f"{kind}s": [listed(each) for each in await host.accounts.all(kind)], "metadata": {}})

    async def create(request: Request, host: Host, own: Own, body: new) -> JSON:  # type: ignore[valid-type]
        name, *swarm, password = body.model_dump().values()  # type: ignore[attr-defined]
        key = Address(kind, name, "".join(swarm)).key
        async with audited(request, host.caller_of(own), Act.CREATE_ACCOUNT, key):
            if key in host.agents.names():
                raise Conflict(f"{key} is an agent of the swarm that runs on this server")
            account = await host.accounts.create(kind, name, "".join(swarm), password)
        return _account(host, kind, account)

    async def get(host: Host, name: Named) -> JSON:
        return _account(host, kind, await host.accounts.get(_named(host, kind, name)))

    async def delete(request: Request, host: Host, own: Own, name: Named) -> JSON:
        key = _named(host, kind, name)
        async with audited(request, host.caller_of(own), Act.DELETE_ACCOUNT, key):
            account = await host.accounts.delete(key)
        await host.begin(account.purge)
        return _account(host, kind, account)

    every, one = f"/admin/{kind}s", f"/admin/{kind}s/{{{parameter}}}"
    for path, method, name, endpoint, description in (
        (every, "GET", f"get_{kind}s", list_all, f"Return the {names}."),
        (every, "POST", f"post_{kind}s", create, f"Make {word}."),
        (one, "GET", f"get_{kind}", get, f"Return {word}."),
        (one, "DELETE", f"delete_{kind}", delete, f"Delete {word}, with sessions and boxes."),
    ):
        admin.add_api_route(
            path, endpoint, methods=[method], name=name, description=description, tags=["accounts"]
        )


_manage("user", "ids of all users", "user_id", NewUser, attrgetter("name"), "a user")
_manage("daemon", "names of all daemons", "worker_name", NewDaemon, attrgetter("name"), "a daemon")
_manage(
    "agent",
    "local addresses of all agents that run elsewhere",
    "address",
    NewAgent,
    attrgetter("key"),
    "an agent by its local address, or its full one",
)


def local_key(host: MailHost, kind: Kind, text: str) -> str:
    """Return the local address of the agent or list that a path names by it, or by the full one. Raises BadRequest."""
    prefix = "list:" if kind == "list" else ""
    given = text if text.startswith(prefix) else prefix + text
    try:
        address = Address.parse(given) if given.count("@") == 2 else Address.parse_local(given, host.host)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if address.kind != kind:
        raise BadRequest(f"{text[:200]!r} is not the address of {'a list' if kind == 'list' else 'an agent'}")
    if address.host != host.host:
        raise BadRequest(f"{text[:200]!r} is an address of another host")
    return address.key


def _named(host: MailHost, kind: AccountKind, text: str) -> str:
    """Return the local address of an account that a path names. Raises BadRequest."""
    if kind == "agent":
        return local_key(host, kind, text)
    try:
        return Address.parse_local(f"{kind}:{text}").key
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _account(host: MailHost, kind: AccountKind, account: Account) -> JSON:
    return JSON({kind: _shown(host, account), "metadata": {}})


def _shown(host: MailHost, account: Account) -> dict[str, str]:
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
