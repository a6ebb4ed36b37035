"""The chat: an exchange, a swarm, and the bridge between them.

A person writes to the host in private. The host writes to everyone on a channel, and each guest answers the host on it.
The person receives mail to everyone, but no mail to somebody else. The agents follow rules.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID, uuid4

from mail.api.agents import MAILAgentTemplate
from mail.api.swarms import MAILSwarmTemplate
from mail.core.protocol.tool_schemas import ToolFormat
from mail.examples.rule_based.agents import RuleBasedAgent
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.reading import Entry
from mail.exchange import Exchange, ExchangeBridge, Mail, exchange_actions
from mail.exchange.bridge import agent_id
from mail.factories.rules import ReceivedMessage

HOST = "Hanna"
DISHES = {"Gus": "bread and butter", "Gina": "a bowl of cherries"}
"""The dish that each guest brings to a dinner."""

CHANNEL = "dinner"
QUESTION = "Who brings what?"


class Host(RuleBasedAgent):
    """An agent that asks everyone in the group on the channel `dinner`, and thanks those who answer there.

    `prefix` is the prefix of its actions' names (see `mail.exchange.exchange_actions`).
    """

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tool_format: ToolFormat = "responses",
        prefix: str = "",
        **wiring: Any,
    ) -> None:
        super().__init__(name, comm_targets, tool_format, **wiring)
        self.prefix = prefix

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Write to the group on request; the mail's subject is its channel."""
        if message.is_from_system:  # the mail to the group is sent
            return [_answer("I have asked everyone.")]
        if message.body == QUESTION:  # somebody else's question
            return [_answer("")]
        if message.subject == CHANNEL:
            return [_answer(f"Thank you, {message.sender}!")]
        ask = {"to": "all", "content": QUESTION, "channel": CHANNEL}
        return [(f"{self.prefix}send_group_mail", ask)]


class Guest(RuleBasedAgent):
    """An agent that names its dish on request, and says nothing else."""

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Answer the question; an empty answer to anything else is not sent."""
        return [_answer(f"I bring {DISHES[self.name]}." if message.body == QUESTION else "")]


def _answer(text: str) -> ToolUse:
    return "task_complete", {"finish_message": text}


SWARM = "group-chat"
PERSON = "Paula"

QUIET = 10
"""Maximum number of rounds to wait until no agent writes any more."""


@dataclass
class GroupChat:
    """A chat of one person with the agents.

    Attributes:
        ids: the id of each participant, by name.
        inbox: the mail that the person has received.
    """

    exchange: Exchange
    bridge: ExchangeBridge
    ids: dict[str, UUID]
    inbox: list[Mail] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        """Open a chat that everyone has joined."""
        exchange = Exchange()
        ids = {name: agent_id(SWARM, name) for name in (HOST, *DISHES)} | {PERSON: uuid4()}
        swarm = _template(exchange, ids).instantiate({"user_token": "dummy"})
        bridge = ExchangeBridge(exchange, swarm, people=ids)
        exchange.register(ids[PERSON])
        await bridge.register()
        try:
            yield cls(exchange, bridge, ids)
        finally:
            await swarm.shutdown()

    async def say(self, text: str, to: str | None = None, channel: str | None = None) -> list[Mail]:
        """Send the person's message to one agent or to all; return the mail that the person receives in reply."""
        me = self.ids[PERSON]
        self.exchange.send(me, None if to is None else self.ids[to], text, channel)
        for _ in range(QUIET):
            if not await self.bridge.step():
                break
        heard = self.exchange.receive(me)
        for mail in heard:
            self.exchange.remove_mail(me, mail)
        self.inbox += heard
        return heard

    def name(self, owner: UUID) -> str:
        """Return the name of a participant."""
        return next(name for name, id_ in self.ids.items() if id_ == owner)


def _template(exchange: Exchange, ids: dict[str, UUID]) -> MAILSwarmTemplate:
    prefix = f"{HOST.lower()}_"
    host = MAILAgentTemplate(
        name=HOST,
        factory=Host,
        comm_targets=[],
        actions=exchange_actions(exchange, ids[HOST], people=ids, prefix=prefix),
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
