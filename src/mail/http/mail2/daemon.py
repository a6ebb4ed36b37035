"""What delivery daemons do. Mail is delivered without them: they find nothing to deliver."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from mail.http.bodies import JSON
from mail.http.mail2.access import HOSTS, Host, RemoteRoute, make_routers
from mail.mail2.delivery import summary
from mail.mail2.records import Message, MessageId

MAX_MESSAGES = 1_000

_public, _own, _admin, router = make_routers()
remote = APIRouter(prefix="/v2", route_class=RemoteRoute, dependencies=router.dependencies)
routers = (router, remote)


class MessageIds(BaseModel):
    """Messages of this host."""

    message_ids: list[MessageId] = Field(max_length=MAX_MESSAGES)


class Messages(BaseModel):
    """Messages of other hosts."""

    messages: list[Message] = Field(max_length=MAX_MESSAGES)


@router.post("/daemon/message-buffer/clear", tags=["daemon"])
async def clear_buffer() -> JSON:
    """Return the messages that wait for a daemon: none ever does."""
    return JSON({"message_ids": [], "metadata": {}})


@router.post("/daemon/deliver/local", tags=["daemon"])
async def deliver_local(host: Host, body: MessageIds) -> JSON:
    """Return those of the messages that exist, and finish what is left of their delivery."""
    for message_id in body.message_ids:
        await host.begin(message_id)
    return JSON({"messages": await host.deliveries.known(body.message_ids), "metadata": {}})


@remote.post("/daemon/deliver/remote", tags=["daemon"])
async def deliver_remote(request: Request, host: Host, body: Messages) -> JSON:
    """File messages of other hosts, each once. `undelivered` has the recipients here that they don't reach.

    Another swarm brings messages with its key for this server: those of the `mail_host` in the metadata with which it
    is registered.
    """
    for message in body.messages:
        host.deliveries.check_foreign(message, request.scope.get(HOSTS))
    undelivered: list[dict[str, Any]] = []
    for message in body.messages:
        undelivered += [
            {"message_id": message.message_id, "recipient": each.recipient, "reason": each.reason}
            for each in await host.deliveries.receive(message)
        ]
        await host.begin(message.message_id)
    return JSON(
        {"messages": [summary(each) for each in body.messages], "undelivered": undelivered, "metadata": {}}
    )
