"""The management of accounts by admins."""

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated

from fastapi import Path, Request
from pydantic import BaseModel

from mail.core.task.audit import Act
from mail.errors import BadRequest, Conflict
from mail.http.audit import audited
from mail.http.bodies import JSON
from mail.http.mail2.access import Host, Own, make_routers
from mail.http.mail2.logins import Password, shown
from mail.mail2.addresses import AccountKind, Address, Kind, Slug
from mail.mail2.host import MailHost
from mail.mail2.records import Account

_public, _own, admin, _daemon = make_routers()
routers = (admin,)


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
            await host.check_holds(await host.accounts.get(key))
            account = await host.delete(key)
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
    return JSON({kind: shown(host, account), "metadata": {}})
