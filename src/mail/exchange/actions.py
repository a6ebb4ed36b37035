"""Actions by which an agent writes to an exchange by itself, and looks who is there."""

import json
from collections.abc import Mapping
from uuid import UUID

from pydantic import BaseModel, Field

from mail.api.actions import MAILAction
from mail.errors import BadRequest
from mail.exchange.bridge import AnyExchange, owners_of, present_chain, settled

EVERYONE = "all"


class Letter(BaseModel):
    """What an agent writes."""

    to: str = Field(
        description="The name or id of who is to read it, or 'all' for everyone else in the group"
    )
    content: str = Field(description="The text", min_length=1)
    channel: str | None = Field(default=None, description="The channel that it belongs to, if there is one")


class Nothing(BaseModel):
    """No arguments."""


def exchange_actions(
    exchange: AnyExchange,
    owner_id: UUID,
    *,
    people: Mapping[str, UUID] | None = None,
    prefix: str = "",
) -> list[MAILAction]:
    """Return the actions `send_group_mail` and `list_group` for one agent. Who it is is theirs: no agent writes as another.

    Args:
        owner_id: the entity that the agent is.
        people: names of entities, by which the agent may call them.
        prefix: begins the actions' names, which must differ where several agents of a swarm have them.

    What an agent writes while it works on mail that an `ExchangeBridge` has brought counts as an answer to it: past the
    bridge's `max_replies` nothing is sent.

    Raises BadRequest for somebody called `all`.
    """
    names = dict(people or {})
    if EVERYONE in names:
        raise BadRequest(
            f"nobody can be called {EVERYONE!r}: what agents write to {EVERYONE!r} is for everyone"
        )

    async def send(letter: Letter) -> str:
        recipient = None if letter.to == EVERYONE else _find(letter.to, names)
        chain = present_chain()
        if chain is not None and chain.is_at_its_end:
            # no error, which agents try to avoid the next time: there is nothing that they could do
            return f"not sent to {letter.to}: {chain.replies} answers in a row have led to it, and no more may follow"
        metadata = None if chain is None else chain.metadata
        await settled(exchange.send(owner_id, recipient, letter.content, letter.channel, metadata=metadata))
        return f"sent to {letter.to}"

    async def look(_: Nothing) -> str:
        known = {id_: name for name, id_ in names.items()}
        others = [id_ for id_ in await owners_of(exchange) if id_ != owner_id]
        return json.dumps([{"name": known.get(id_, str(id_)), "id": str(id_)} for id_ in others])

    return [
        MAILAction.from_pydantic_model(
            Letter,
            send,
            f"{prefix}send_group_mail",
            "Write to someone in the group, or to everyone. It is no answer to whoever has written to you.",
        ),
        MAILAction.from_pydantic_model(
            Nothing, look, f"{prefix}list_group", "List who is in the group besides you.", idempotent=True
        ),
    ]


def _find(text: str, names: Mapping[str, UUID]) -> UUID:
    if text in names:
        return names[text]
    try:
        return UUID(text)
    except ValueError as error:
        known = ", ".join(sorted(names)) or "nobody has a name here; list_group tells ids"
        raise BadRequest(f"nobody here is called {text!r}. There are: {known}") from error
