"""`ExchangeBridge`: agents of a swarm take part in an exchange.

A mail that reaches an agent becomes a message in a task of the swarm: the one of this agent, this sender and this
channel. The task's answer goes back as a mail. Only then is the mail taken from the inbox; so nothing is lost where
the process dies. What was submitted before is found again in its task, by its id, and not submitted twice. Between
sending an answer and taking the mail there is a moment at which a death makes the answer come a second time.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from mail.api.runtime import ANSWER_SECONDS
from mail.api.swarms import MAILSwarm
from mail.core.address import create_agent_address, create_user_address
from mail.core.hints import did_you_mean
from mail.core.letters import write_letter
from mail.core.message import MAILMessage
from mail.core.stamp import SYSTEM_STAMP
from mail.core.tasks import TaskKey
from mail.core.watching import Submitted
from mail.errors import BadRequest, MAILError
from mail.exchange.either import AnyExchange, settled
from mail.exchange.errors import AlreadyRegistered
from mail.exchange.mail import Mail
from mail.exchange.repeating import Repeater

AGENTS = UUID("5d6f0c1e-7d1c-5a54-9a2e-3a5b7a1f6c11")
"""The namespace of the ids that agents have by default."""

MAX_REPLIES = 8

IN_REPLY_TO = "in_reply_to"
REPLIES = "replies"
FAILED = "failed"

logger = logging.getLogger(__name__)


class Conversation(NamedTuple):
    """What an agent and somebody else write to each other about something: one task of the swarm."""

    agent: str
    sender: UUID
    channel: str | None


class ExchangeBridge:
    """Carries mail between an exchange and agents of a swarm.

    Use one bridge at a time for an agent: two don't see what the other is about to submit.

    Args:
        agents: those that take part, with the ids that they have as entities; or their names only, then the ids follow
            from those of the swarm and the agent. The default is all that users may write to.
        people: names of entities, by which agents are told who writes; others are told of by their ids.
        timeout: seconds that an agent may take for an answer, before the mail is tried again.
        max_replies: how many answers may follow one upon another, so that two agents don't thank each other forever.

    Answers have `in_reply_to`, the id of the mail, in their metadata, `replies`, how many answers led to it, and
    `failed` where the swarm only says why there is none. An empty answer is not sent.

    Raises BadRequest for agents that users can't write to.
    """

    def __init__(
        self,
        exchange: AnyExchange,
        swarm: MAILSwarm,
        agents: Mapping[str, UUID] | Iterable[str] | None = None,
        *,
        people: Mapping[str, UUID] | None = None,
        timeout: float = ANSWER_SECONDS,
        max_replies: int = MAX_REPLIES,
    ) -> None:
        entrypoints = [agent.name for agent in swarm.agents if agent.enable_entrypoint]
        chosen = entrypoints if agents is None else agents
        self.exchange = exchange
        self.swarm = swarm
        self.agent_ids = (
            dict(chosen)
            if isinstance(chosen, Mapping)
            else {name: agent_id(swarm.name, name) for name in chosen}
        )
        for name in self.agent_ids:
            if name not in entrypoints:
                hint = did_you_mean(name, entrypoints) or f"; there are: {', '.join(entrypoints)}"
                raise BadRequest(f"{name!r} is no agent that users may write to{hint}")
        self._names = {id_: name for name, id_ in {**self.agent_ids, **(people or {})}.items()}
        self._timeout = timeout
        self._max_replies = max_replies
        self._at_work: dict[Conversation, asyncio.Task[int]] = {}
        self._seen: set[Conversation] = set()
        self._repeater = Repeater()

    async def register(self) -> None:
        """Register the agents that aren't yet."""
        for owner_id in self.agent_ids.values():
            try:
                await settled(self.exchange.register(owner_id))
            except AlreadyRegistered:
                continue

    async def step(self) -> int:
        """Sync, let the agents answer all that has reached them, and sync; returns how many mails were worked on."""
        await self.exchange.sync()
        answered = sum(await asyncio.gather(*await self._begin()))
        await self.exchange.sync()
        return answered

    async def run(self, interval: float = 1.0) -> None:
        """Sync every `interval` seconds, and let agents answer what has come, until `stop`.

        Nobody waits for slow agents, but at the end. What fails is logged, and tried again.
        """

        async def sync() -> None:
            await self.exchange.sync()
            await self._begin(logged=True)

        await self.register()
        try:
            await self._repeater.run(sync, interval)
        finally:
            await asyncio.gather(*self._at_work.values(), return_exceptions=True)
            await self.exchange.sync()

    def stop(self) -> None:
        """Let `run` end, once the agents have answered what they are at."""
        self._repeater.stop()

    def task_id(self, agent: str, sender: UUID, channel: str | None = None) -> str:
        """The task in which an agent and a sender write to each other on a channel."""
        return str(uuid5(self.agent_ids[agent], f"{sender} {json.dumps(channel)}"))

    # --------------------------------------------------------------------------------------- conversations

    async def _begin(self, *, logged: bool = False) -> list[asyncio.Task[int]]:
        """Begin to work on the mail that nobody works on."""
        begun: list[asyncio.Task[int]] = []
        for conversation, mails in (await self._waiting()).items():
            if conversation not in self._at_work:
                work = asyncio.create_task(self._work(conversation, mails, logged))
                self._at_work[conversation] = work
                begun.append(work)
        return begun

    async def _waiting(self) -> dict[Conversation, list[Mail]]:
        found: dict[Conversation, list[Mail]] = {}
        for agent, owner_id in self.agent_ids.items():
            for mail in await settled(self.exchange.receive(owner_id)):
                found.setdefault(Conversation(agent, mail.sender, mail.channel), []).append(mail)
        return found

    async def _work(self, conversation: Conversation, mails: list[Mail], logged: bool) -> int:
        """Answer the mails of a conversation, one after the other; what is not done at an error stays in the inbox."""
        answered = 0
        try:
            for mail in mails:
                await self._answer(conversation, mail)
                answered += 1
        except (MAILError, TimeoutError):
            if not logged:
                raise
            logger.exception("%s could not answer %r; it is tried again", conversation.agent, mail)
        finally:
            if answered < len(mails):
                self._seen.discard(conversation)  # the mail may have been submitted all the same
            del self._at_work[conversation]
        return answered

    async def _answer(self, conversation: Conversation, mail: Mail) -> None:
        owner_id = self.agent_ids[conversation.agent]
        submitted = await self._submit(conversation, mail)
        answer = await self.swarm._runtime.wait(submitted, self._timeout)
        text, replies = answer.message.body, _replies(mail)
        if text.strip() and replies < self._max_replies:
            metadata: dict[str, Any] = {IN_REPLY_TO: str(mail.id), REPLIES: replies + 1}
            if answer.sender.address_type == "system":
                metadata[FAILED] = True
            await settled(self.exchange.send(owner_id, mail.sender, text, mail.channel, metadata=metadata))
        await settled(self.exchange.remove_mail(owner_id, mail))

    async def _submit(self, conversation: Conversation, mail: Mail) -> Submitted:
        """Put the mail into its task, unless it is there from before."""
        runtime, task_id = self.swarm._runtime, self.task_id(*conversation)
        if conversation not in self._seen:
            found = await self._find(task_id, str(mail.id))
            if found is not None:
                return found
        submitted = await runtime.submit(self._message(conversation, mail, task_id))
        self._seen.add(conversation)
        return submitted

    async def _find(self, task_id: str, message_id: str) -> Submitted | None:
        """A message that was submitted before, perhaps by a process that has died since."""
        runtime = self.swarm._runtime
        store, key = runtime._workers.engine.store, TaskKey(str(runtime.principal), task_id)
        if await store.load(key) is None:
            return None
        generation = 1
        for event in await store.read_events(key):
            if event.message is not None and event.message.id == message_id:
                return Submitted(key, generation, event.seq - 1, event.seq)
            generation += event.is_terminal
        return None

    def _message(self, conversation: Conversation, mail: Mail, task_id: str) -> MAILMessage:
        message = write_letter(
            "request",
            task_id=task_id,
            sender=create_user_address(self._names.get(mail.sender, str(mail.sender))),
            recipients=[create_agent_address(conversation.agent)],
            subject=mail.channel or "New Message",
            body=_body(mail.content),
            stamp=SYSTEM_STAMP,
        )
        return message.model_copy(update={"id": str(mail.id)})


def agent_id(swarm: str, agent: str) -> UUID:
    """The id that an agent has as an entity unless it is given another: always the same."""
    return uuid5(AGENTS, json.dumps([swarm, agent]))


def _replies(mail: Mail) -> int:
    found = mail.metadata.get(REPLIES, 0)
    return found if isinstance(found, int) else 0


def _body(content: Any) -> str:
    """The content as an agent reads it: text as it is, all else as JSON."""
    if isinstance(content, str) and content.strip():
        return content
    return json.dumps(content, ensure_ascii=False, default=str)
