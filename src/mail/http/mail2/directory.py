"""Swarms, lists and webhooks."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from pydantic_core import to_json

from mail.errors import BadRequest
from mail.http.answers import answer, array_pieces, each, object_pieces
from mail.http.bodies import JSON
from mail.http.mail2.access import KEY, Host, Own, make_routers, refuse_browser
from mail.http.mail2.accounts import local_key
from mail.http.service import service_of
from mail.mail2.addresses import Address, AddressText, Slug, is_slug
from mail.mail2.host import MailHost
from mail.mail2.lists import MAX_BYTES, MAX_MEMBERS, READ_AT_ONCE, By, Policy
from mail.mail2.swarms import Swarm
from mail.mail2.webhooks import Hook

_public, own, admin, _daemon = make_routers()
routers = (own, admin)


def _checked_url(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise ValueError("must be an http or https URL")
    return text


Url = Annotated[str, StringConstraints(max_length=2048), AfterValidator(_checked_url)]
Secret = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class NewSwarm(BaseModel):
    """A swarm."""

    name: Slug
    description: Annotated[str, StringConstraints(max_length=255)]
    keywords: Annotated[tuple[Slug, ...], Field(max_length=100)]


class NewList(BaseModel):
    """A list."""

    name: Slug
    swarm_name: Slug
    owner: AddressText
    members: Annotated[tuple[AddressText, ...], Field(max_length=MAX_MEMBERS)] | None = None
    policy: Policy | None = None


class ListChanges(BaseModel):
    """What to change of a list."""

    policy: Policy | None = None


class NewMember(BaseModel):
    """A member of a list."""

    member_address: AddressText


class NewWebhook(BaseModel):
    """A webhook."""

    url: Url
    events: list[Literal["mail.delivered"]]
    secret: Secret
    people: bool = False


class WebhookChanges(BaseModel):
    """The new URL and secret of a webhook, and whether it is called for people; null or absent leaves that as it is."""

    url: Url
    secret: Secret
    people: bool | None = None


def _answer(name: str, value: Any) -> JSON:
    return JSON({name: value, "metadata": {}})


def _swarm_name(text: str) -> str:
    if not is_slug(text):
        raise BadRequest(f"{text[:200]!r} is not the name of a swarm")
    return text


# ------------------------------------------------------------------------------------------------------------ swarms


@own.get("/swarms", tags=["swarms"])
async def get_swarms(host: Host) -> JSON:
    """Return all swarms."""
    return _answer("swarms", await host.swarms.all())


@own.get("/swarms/{name}", tags=["swarms"])
async def get_swarm(host: Host, name: str) -> JSON:
    """Return a swarm with its agents."""
    return _answer("swarm", await host.swarms.get(_swarm_name(name)))


@own.get("/swarms/{name}/health", tags=["swarms"])
async def get_swarm_health(host: Host, name: str) -> JSON:
    """Return that a swarm exists."""
    await host.swarms.get(_swarm_name(name))
    return JSON({"status": "ok"})


@admin.post("/admin/swarms", tags=["swarms"])
async def post_swarms(host: Host, body: NewSwarm) -> JSON:
    """Make a swarm."""
    return _answer("swarm", await host.swarms.create(body.name, Swarm(body.description, body.keywords)))


@admin.delete("/admin/swarms/{name}", tags=["swarms"])
async def delete_swarm(host: Host, name: str) -> JSON:
    """Delete a swarm; its agents and lists stay."""
    return _answer("swarm", await host.swarms.delete(_swarm_name(name)))


# ------------------------------------------------------------------------------------------------------------- lists


async def _with_room(request: Request, host: Host) -> MailHost:
    """Return the host of a request about a list as soon as there is room to read that."""
    await service_of(request).holding(request).pause(MAX_BYTES)
    return host


async def _who(request: Request, host: Host, account: Own) -> By:
    """Return who asks for something of a list; in a browser's session, an admin is none, except to read."""
    key = request.scope[KEY]
    may_change = key is None or not key.is_session or request.method == "GET"
    return By(f"{account.key}@{host.host}", is_admin=account.kind == "admin" and may_change)


Lists = Annotated[MailHost, Depends(_with_room)]
Who = Annotated[By, Depends(_who)]


@own.get("/lists", tags=["lists"])
@admin.get("/admin/lists", tags=["lists"])
async def get_lists(request: Request, host: Host, by: Who) -> Response:
    """Return all lists, of private ones those that the account owns or is a member of."""
    await service_of(request).holding(request).wait(READ_AT_ONCE * MAX_BYTES)
    found = array_pieces(to_json(one) async for one in host.lists.all(by))
    pieces = object_pieces(each({"lists": found, "metadata": {}}.items()))
    return await answer(request, pieces, advice="read one list by its address")


@own.get("/lists/{address}", tags=["lists"])
@admin.get("/admin/lists/{address}", tags=["lists"])
async def get_list(host: Lists, by: Who, address: str) -> JSON:
    """Return a list by its local address, or its full one; `pending` has who would become a member, for its owner."""
    return _answer("mail_list", await host.lists.get(local_key(host, "list", address), by))


@own.post("/lists/{address}/subscribe", tags=["lists"])
async def subscribe(host: Lists, by: Who, address: str) -> JSON:
    """Become a member of a list, or ask its owner for that."""
    key = local_key(host, "list", address)
    return _answer("mail_list", await host.lists.add(key, by.address, by))


@own.post("/lists/{address}/unsubscribe", tags=["lists"])
async def unsubscribe(host: Lists, by: Who, address: str) -> JSON:
    """Leave a list."""
    key = local_key(host, "list", address)
    return _answer("mail_list", await host.lists.remove(key, by.address, by))


@admin.post("/admin/lists", tags=["lists"])
async def post_lists(host: Lists, body: NewList) -> JSON:
    """Make a list."""
    key = Address("list", body.name, body.swarm_name).key
    return _answer(
        "mail_list", await host.lists.create(key, body.owner, body.members or (), body.policy or Policy())
    )


@own.patch("/lists/{address}", tags=["lists"])
@admin.patch("/admin/lists/{address}", tags=["lists"])
async def patch_list(host: Lists, by: Who, address: str, body: ListChanges) -> JSON:
    """Change the policy of a list, as its owner or an admin."""
    key = local_key(host, "list", address)
    return _answer("mail_list", await host.lists.set_policy(key, body.policy, by))


@own.delete("/lists/{address}", tags=["lists"])
@admin.delete("/admin/lists/{address}", tags=["lists"])
async def delete_list(host: Lists, by: Who, address: str) -> JSON:
    """Delete a list, as its owner or an admin."""
    return _answer("mail_list", await host.lists.delete(local_key(host, "list", address), by))


@own.post("/lists/{address}/members", tags=["lists"])
@admin.post("/admin/lists/{address}/members", tags=["lists"])
async def post_member(host: Lists, by: Who, address: str, body: NewMember) -> JSON:
    """Add a member to a list, also one that waits for it, as its owner or an admin."""
    key = local_key(host, "list", address)
    return _answer("mail_list", await host.lists.add(key, body.member_address, by))


@own.delete("/lists/{address}/members/{member}", tags=["lists"])
@admin.delete("/admin/lists/{address}/members/{member}", tags=["lists"])
async def delete_member(host: Lists, by: Who, address: str, member: str) -> JSON:
    """Remove a member, by its full address, from a list, or who would become one, as its owner or an admin."""
    try:
        Address.parse(member)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    key = local_key(host, "list", address)
    return _answer("mail_list", await host.lists.remove(key, member, by))


# ---------------------------------------------------------------------------------------------------------- webhooks


@admin.get("/admin/webhooks", tags=["webhooks"])
async def get_webhooks(host: Host) -> JSON:
    """Return the ids of all webhooks."""
    return _answer("webhook_ids", await host.webhooks.ids())


@admin.post("/admin/webhooks", tags=["webhooks"])
async def post_webhooks(host: Host, body: NewWebhook) -> JSON:
    """Add a webhook, which is called for each agent that gets a message, and with `people` for everybody who does.

    Return the one that has this URL already, if there is one.
    """
    hook = Hook(body.url, tuple(body.events), body.secret, body.people)
    return _answer("webhook", await host.webhooks.create(hook))


@admin.get("/admin/webhooks/{webhook_id}", tags=["webhooks"])
async def get_webhook(request: Request, host: Host, webhook_id: str) -> JSON:
    """Return a webhook with its secret, but not to a browser's session."""
    refuse_browser(request)
    return _answer("webhook", await host.webhooks.get(webhook_id))


@admin.patch("/admin/webhooks/{webhook_id}", tags=["webhooks"])
async def patch_webhook(host: Host, webhook_id: str, body: WebhookChanges) -> JSON:
    """Change the URL and the secret of a webhook."""
    changed = await host.webhooks.change(webhook_id, body.url, body.secret, people=body.people)
    return _answer("webhook", changed)


@admin.delete("/admin/webhooks/{webhook_id}", tags=["webhooks"])
async def delete_webhook(host: Host, webhook_id: str) -> JSON:
    """Delete a webhook."""
    return _answer("webhook", await host.webhooks.delete(webhook_id))
