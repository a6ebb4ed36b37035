"""Actions with which an agent sends mail to an exchange and lists its members."""

import json
from collections.abc import Mapping
from uuid import UUID

from pydantic import BaseModel, Field

from mail.api.actions import MAILAction
from mail.errors import BadRequest
from mail.exchange.bridge import AnyExchange, owners_of, present_chain, settled

EVERYONE = "all"


class GroupMail(BaseModel):
    """The arguments of `send_group_mail`."""

    to: str = Field(description="The name or id of the recipient, or 'all' for everyone else in the group")
    content: str = Field(description="The text", min_length=1)
    channel: str | None = Field(default=None, description="The channel, if there is one")


class Nothing(BaseModel):
    """No arguments."""


def exchange_actions(
    exchange: AnyExchange, owner_id: UUID, *, people: Mapping[str, UUID] | None = None, prefix: str = ""
) -> list[MAILAction]:
    """Return the actions `send_group_mail` and `list_group` of one agent, bound to its id: none can write as another.

    Args:
        owner_id: the agent's entity.
        people: names for entities, for the agent to use.
        prefix: a prefix of the actions' names, which must be unique in a swarm.

    Mail that an agent sends while it works on mail from an `ExchangeBridge` counts as a reply to it: after the bridge's
    `max_replies` nothing is sent.

    Raises BadRequest for an entity named `all`.
    """
    names = dict(people or {})
    if EVERYONE in names:
        raise BadRequest(f"no entity may be named {EVERYONE!r}: mail to {EVERYONE!r} is for everyone")

    async def send(mail: GroupMail) -> str:
        recipient = None if mail.to == EVERYONE else _find(mail.to, names)
        chain = present_chain()
        if chain is not None and chain.is_at_its_end:
            # not an error, because the agent could do nothing to avoid it
            return f"not sent to {mail.to}: {chain.replies} replies in a row have led to it, and no more are allowed"
        metadata = None if chain is None else chain.metadata
        await settled(exchange.send(owner_id, recipient, mail.content, mail.channel, metadata=metadata))
        return f"sent to {mail.to}"

    async def look(_: Nothing) -> str:
        known = {id_: name for name, id_ in names.items()}
        members = [id_ for id_ in await owners_of(exchange) if id_ != owner_id]
        return json.dumps([{"name": known.get(id_, str(id_)), "id": str(id_)} for id_ in members])

    return [
        MAILAction.from_pydantic_model(
            GroupMail,
            send,
            f"{prefix}send_group_mail",
            "Send mail to someone in the group, or to everyone. It does not answer the mail that you are working on.",
            sequential=True,
        ),
        MAILAction.from_pydantic_model(
            Nothing, look, f"{prefix}list_group", "List who is in the group besides you.", read_only=True
        ),
    ]


def _find(text: str, names: Mapping[str, UUID]) -> UUID:
    if text in names:
        return names[text]
    try:
        return UUID(text)
    except ValueError as error:
        known = ", ".join(sorted(names)) or "no names; list_group returns ids"
        raise BadRequest(f"no member is named {text!r}; members: {known}") from error
