"""Who may use a route of MAIL 2.0. The token is checked before the body is read, unlike in the reference."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar, cast

from fastapi import APIRouter, Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase

from mail.auth.fastapi import identify
from mail.auth.keys import Caller, find_bearer
from mail.errors import Forbidden, Unauthenticated
from mail.http.account import CALLER
from mail.http.audit import refuse_session
from mail.http.bodies import read_body, replayed
from mail.http.service import service_of
from mail.mail2.accounts import ACCESS, NOT_VALID
from mail.mail2.addresses import AccountKind
from mail.mail2.host import MailHost
from mail.mail2.records import Account

ACCOUNT = "mail2.account"

KEY = "mail2.key"
"""The caller whose API key a request has, in its scope; None for the token of a login."""

HOSTS = "mail2.hosts"
"""The hosts whose mail a request may bring, in its scope; a daemon brings that of any other host."""

ANY: tuple[AccountKind, ...] = ("admin", "agent", "daemon", "user")

PUBLIC_BODY_BYTES = 16 * 1024
"""The size limit of bodies that anyone may send."""


async def host_of(request: Request) -> MailHost:
    """Return the host that a request is for, with the agents of the swarm that is served now."""
    service = service_of(request)
    assert service.mail_host is not None
    await service.refresh()
    return await service.mail_host(request)


class _OwnAccount(SecurityBase):
    """FastAPI dependency that returns the account that a request comes from, which its route has checked."""

    scheme_name = "bearer"
    model = HTTPBearer(description="An access token of `POST /v2/auth/token`, or an API key of this server.")

    async def __call__(self, request: Request) -> Account:
        return cast(Account, request.scope.get(ACCOUNT))  # a peer has none, and its only route needs none


_own_account = _OwnAccount()

Host = Annotated[MailHost, Depends(host_of)]
Own = Annotated[Account, Depends(_own_account)]


class _Route(APIRoute):
    """A route that checks the caller, and then reads the body, within the limits of this server."""

    kinds: ClassVar[tuple[AccountKind, ...]] = ()
    takes_peers: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if self.kinds and not (self.takes_peers and await _admit_peer(request)):
                await _admit(request, self.kinds)
            if request.method != "GET":
                limit = service_of(request).max_body_bytes if self.kinds else PUBLIC_BODY_BYTES
                body = await read_body(request, limit)
                request = Request(request.scope, replayed(request, body))
            return await handle(request)

        return answer


class _AnyRoute(_Route):
    kinds = ANY


class _AdminRoute(_Route):
    kinds = ("admin",)


class _DaemonRoute(_Route):
    kinds = ("daemon",)


class RemoteRoute(_DaemonRoute):
    """A route for daemons, and for peers of this server that have a host."""

    takes_peers = True


def make_routers() -> tuple[APIRouter, APIRouter, APIRouter, APIRouter]:
    """Return routers for routes that everyone may use, every account, admins, and daemons."""
    account, admin, daemon = (
        APIRouter(prefix="/v2", route_class=kind, dependencies=[Depends(_own_account)])
        for kind in (_AnyRoute, _AdminRoute, _DaemonRoute)
    )
    return APIRouter(prefix="/v2", route_class=_Route), account, admin, daemon


async def find_account(request: Request) -> Account:
    """Return the account of a request, by the token of a login or an API key. Raises Unauthenticated."""
    return (await _find(request))[0]


async def _find(request: Request) -> tuple[Account, Caller | None]:
    """Return the account of a request, and the caller of its API key, if it has one. Raises Unauthenticated."""
    accounts, caller = (await host_of(request)).accounts, None
    account = await accounts.authenticate(find_bearer(request.headers))
    if account is None:
        caller = await identify(request)
        (account,) = await accounts.ensure(caller)
    return account, caller


async def _admit_peer(request: Request) -> bool:
    """Let a peer in; return False for another caller. Raises Forbidden for one without a host, and RateLimited."""
    remotes, bearer = (await host_of(request)).remotes, find_bearer(request.headers)
    if remotes is None or bearer.startswith(ACCESS):
        return False
    caller = await identify(request)
    if caller.role != "agent":
        return False
    request.scope[CALLER], request.scope[HOSTS] = caller, await remotes.hosts_of(caller)
    service_of(request).rates.admit(caller)
    if not request.scope[HOSTS]:
        raise Forbidden("this swarm is registered here without a mail_host in its metadata")
    return True


async def _admit(request: Request, kinds: tuple[AccountKind, ...]) -> None:
    """Let a request in that an account of these kinds makes. Raises Unauthenticated, Forbidden and RateLimited."""
    account, by = await _find(request)
    caller = (await host_of(request)).caller_of(account)
    request.scope[CALLER], request.scope[ACCOUNT], request.scope[KEY] = caller, account, by
    service_of(request).rates.admit(caller)
    if account.kind not in kinds:
        raise Unauthenticated(NOT_VALID)
    if kinds == _AdminRoute.kinds and request.method != "GET":
        refuse_browser(request)


def refuse_browser(request: Request) -> None:
    """Raise Forbidden if an admitted request comes by a browser's session."""
    if (by := request.scope[KEY]) is not None:
        refuse_session(by, "mail-admin")
