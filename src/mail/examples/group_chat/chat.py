"""The chat: an exchange, a swarm, and the bridge between them.

A person writes to the host in private. The host writes to everyone on a channel, and each guest answers the host on it;
the person hears what is said to everyone, and nothing of what is not.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self
from uuid import UUID, uuid4

from mail.api.agents import MAILAgentTemplate
from mail.api.swarms import MAILSwarmTemplate
from mail.examples.group_chat.agents import DISHES, HOST, Guest, Host
from mail.exchange import Exchange, ExchangeBridge, Mail, exchange_actions
from mail.exchange.bridge import agent_id

SWARM = "group-chat"
PERSON = "Paula"

QUIET = 10
"""Rounds after which nobody waits for silence any longer."""


@dataclass
class GroupChat:
    """A chat of one person with the agents.

    Attributes:
        people: everyone's ids, by their names.
        inbox: what has reached the person.
    """

    exchange: Exchange
    bridge: ExchangeBridge
    people: dict[str, UUID]
    inbox: list[Mail] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        """A chat that everyone has joined."""
        exchange = Exchange()
        people = {name: agent_id(SWARM, name) for name in (HOST, *DISHES)} | {PERSON: uuid4()}
        swarm = _template(exchange, people).instantiate({"user_token": "dummy"})
        bridge = ExchangeBridge(exchange, swarm, people=people)
        exchange.register(people[PERSON])
        await bridge.register()
        try:
            yield cls(exchange, bridge, people)
        finally:
            await swarm.shutdown()

    async def say(self, text: str, to: str | None = None, channel: str | None = None) -> list[Mail]:
        """Let the person write to one agent or to all; returns what has reached the person when all is quiet."""
        me = self.people[PERSON]
        self.exchange.send(me, None if to is None else self.people[to], text, channel)
        for _ in range(QUIET):
            if not await self.bridge.step():
                break
        heard = self.exchange.receive(me)
        for mail in heard:
            self.exchange.remove_mail(me, mail)
        self.inbox += heard
        return heard

    def name(self, owner: UUID) -> str:
        """The name of somebody in the chat."""
        return next(name for name, id_ in self.people.items() if id_ == owner)


def _template(exchange: Exchange, people: dict[str, UUID]) -> MAILSwarmTemplate:
    prefix = f"{HOST.lower()}_"
    host = MAILAgentTemplate(
        name=HOST,
        factory=Host,
        comm_targets=[],
        actions=exchange_actions(exchange, people[HOST], people=people, prefix=prefix),
        agent_params={"prefix": prefix},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    guests = [
        MAILAgentTemplate(
            name=name,
            factory=Guest,
            comm_targets=[],
            actions=[],
            agent_params={},
            enable_entrypoint=True,
            can_complete_tasks=True,
        )
        for name in DISHES
    ]
    return MAILSwarmTemplate(name=SWARM, version="1.0.0", agents=[host, *guests], entrypoint=HOST)
