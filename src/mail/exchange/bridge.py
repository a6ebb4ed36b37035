"""`ExchangeBridge`: agents of a swarm take part in an exchange.

A mail that reaches an agent becomes a message in a task of the swarm: the one of this agent, this sender and this
channel. The task's answer goes back as a mail, or one that says why there is none. Only then is the mail taken from the
inbox; so nothing is lost where the process dies. What was submitted before is found again in its task, by its id, and not
submitted twice. Between sending an answer and taking the mail there is a moment at which a death makes the answer come a
second time.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

from mail.api.runtime import ANSWER_SECONDS
from mail.api.swarms import MAILSwarm
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import create_agent_address, create_user_address
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import write_letter
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.context import CURRENT_TASK
from mail.errors import BadRequest, PayloadTooLarge
from mail.exchange.durable import DurableExchange
from mail.exchange.exchange import Exchange
from mail.exchange.mailboxes import AlreadyRegistered, Mail
from mail.exchange.repeating import Repeater

AnyExchange = Exchange | DurableExchange


async def settled[T](result: T | Awaitable[T]) -> T:
    """Return the result of a method that is a coroutine on one of them only."""
    return await result if inspect.isawaitable(result) else result


async def owners_of(exchange: AnyExchange) -> list[UUID]:
    """Who is registered."""
    return exchange.owner_ids if isinstance(exchange, Exchange) else await exchange.owner_ids()


REPLIES = "replies"
"""In the metadata of a mail that an agent has written: how many such mails have led to it, itself included."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Chain:
    """What an agent works on.

    Attributes:
        replies: how many answers have led to the mail that it reads.
        most: how many may follow one upon another.
    """

    replies: int
    most: int

    @property
    def is_at_its_end(self) -> bool:
        """Whether nothing is sent any more."""
        return self.replies >= self.most

    @property
    def metadata(self) -> dict[str, int]:
        """What goes with a mail that the agent writes."""
        return {REPLIES: self.replies + 1}


_BY_TASK: WeakValueDictionary[str, Chain] = WeakValueDictionary()
"""The chains of the tasks that a bridge of this process has mail worked on in. The bridges hold them."""


def remember(task_id: str, chain: Chain) -> None:
    """Tell the actions of a task what it works on, as long as the caller holds the chain."""
    _BY_TASK[task_id] = chain


def present_chain() -> Chain | None:
    """Inside of an action: what its agent works on, None where no bridge of this process has brought it."""
    return _BY_TASK.get(CURRENT_TASK.get())


def replies_to(mail: Mail) -> int:
    """How many answers have led to a mail; what is no number, as others may have written it, counts as none."""
    found = mail.metadata.get(REPLIES, 0)
    return max(0, found) if isinstance(found, int) else 0


AGENTS = UUID("5d6f0c1e-7d1c-5a54-9a2e-3a5b7a1f6c11")
"""The namespace of the ids that agents have by default."""

MAX_REPLIES = 8

IN_REPLY_TO = "in_reply_to"
FAILED = "failed"

REASON = 500
"""How many characters a mail may have that says why there is no answer."""

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
        max_replies: how many answers may follow one upon another, so that two agents don't thank each other forever;
            what they send by `exchange_actions` counts.

    Answers have `in_reply_to`, the id of the mail, in their metadata, `replies`, how many answers led to it, and
    `failed` where they only say why there is none. An empty answer is not sent.

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
        self._beginning = asyncio.Lock()
        self._settled: set[Conversation] = set()
        self._chains: dict[Conversation, Chain] = {}
        self._repeater = Repeater()

    async def register(self) -> None:
        """Register the agents that aren't yet."""
        for owner_id in self.agent_ids.values():
            try:
                await settled(self.exchange.register(owner_id))
            except AlreadyRegistered:
                continue

    async def step(self) -> int:
        """Sync, let the agents answer all that has reached them, and sync; returns how many mails were worked on.

        Raises TimeoutError for an agent that was too slow, or what else has kept it from answering; its mail stays in
        the inbox, and others' answers are delivered.
        """
        await self.exchange.sync()
        ended = await asyncio.gather(*await self._begin(), return_exceptions=True)
        await self.exchange.sync()
        answered = 0
        for result in ended:
            if isinstance(result, BaseException):
                raise result
            answered += result
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
        """Return the task in which an agent and a sender write to each other on a channel."""
        return str(uuid5(self.agent_ids[agent], f"{sender} {json.dumps(channel)}"))

    # --------------------------------------------------------------------------------------- conversations

    async def _begin(self, *, logged: bool = False) -> list[asyncio.Task[int]]:
        """Begin to work on the mail that nobody works on."""
        begun: list[asyncio.Task[int]] = []
        async with self._beginning:
            # what was at work before the inboxes are read may have ended when they are, and its mail was read too early
            busy = set(self._at_work)
            for conversation, mails in (await self._waiting()).items():
                if conversation not in busy:
                    work = asyncio.create_task(self._work(conversation, mails, logged))
                    self._at_work[conversation] = work
                    # not by `_work` itself, which never runs where it is cancelled at once
                    work.add_done_callback(partial(self._end, conversation))
                    begun.append(work)
        return begun

    def _end(self, conversation: Conversation, _: asyncio.Task[int]) -> None:
        del self._at_work[conversation]

    async def _waiting(self) -> dict[Conversation, list[Mail]]:
        found: dict[Conversation, list[Mail]] = {}
        for agent, owner_id in self.agent_ids.items():
            for mail in await settled(self.exchange.receive(owner_id)):
                found.setdefault(Conversation(agent, mail.sender, mail.channel), []).append(mail)
        return found

    async def _work(self, conversation: Conversation, mails: list[Mail], logged: bool) -> int:
        """Answer the mails of a conversation, one after the other; what is not done at an error stays in the inbox."""
        try:
            for mail in mails:
                try:
                    await self._answer(conversation, mail)
                except (BadRequest, PayloadTooLarge) as error:  # it would be the same the next time
                    logger.warning("%s can't answer %r: %s", conversation.agent, mail, error)
                    await self._give_up(conversation, mail, error)
        except Exception:
            if not logged:
                raise
            logger.exception("%s could not answer %r; it is tried again", conversation.agent, mail)
            return mails.index(mail)
        return len(mails)

    async def _answer(self, conversation: Conversation, mail: Mail) -> None:
        chain = self._chains[conversation] = Chain(replies_to(mail), self._max_replies)
        remember(self.task_id(*conversation), chain)
        submitted = await self._submit(conversation, mail)
        answer = await self.swarm.runtime.wait(submitted, self._timeout)
        await self._reply(conversation, mail, answer.message.body, answer.sender.address_type == "system")
        self._settled.add(conversation)

    async def _give_up(
        self, conversation: Conversation, mail: Mail, error: BadRequest | PayloadTooLarge
    ) -> None:
        """Tell the sender that there will be no answer, and why."""
        reason = f"{conversation.agent} can't answer: {error}"[:REASON]
        try:
            await self._reply(conversation, mail, reason.encode(errors="replace").decode(), is_failed=True)
        except (BadRequest, PayloadTooLarge):  # not even that
            await settled(self.exchange.remove_mail(self.agent_ids[conversation.agent], mail))

    async def _reply(self, conversation: Conversation, mail: Mail, text: str, is_failed: bool) -> None:
        """Send an answer, if there is one, and take the mail."""
        owner_id, chain = self.agent_ids[conversation.agent], self._chains[conversation]
        if text.strip() and not chain.is_at_its_end:
            metadata: dict[str, Any] = {IN_REPLY_TO: str(mail.id), **chain.metadata}
            if is_failed:
                metadata[FAILED] = True
            await settled(self.exchange.send(owner_id, mail.sender, text, mail.channel, metadata=metadata))
        await settled(self.exchange.remove_mail(owner_id, mail))

    async def _submit(self, conversation: Conversation, mail: Mail) -> Submitted:
        """Put the mail into its task, unless it is there from before.

        That is looked up for the first mail of a conversation, and wherever the one before it did not come to its end.
        """
        runtime, task_id = self.swarm.runtime, self.task_id(*conversation)
        message = self._message(conversation, mail, task_id)
        if conversation not in self._settled:
            found = await runtime.find(task_id, message.id)
            if found is not None:
                return found
        self._settled.discard(conversation)
        return await runtime.submit(message)

    def _message(self, conversation: Conversation, mail: Mail, task_id: str) -> MAILMessage:
        _require_characters(mail.channel or "")
        message = write_letter(
            "request",
            task_id=task_id,
            sender=create_user_address(self._names.get(mail.sender, str(mail.sender))),
            recipients=[create_agent_address(conversation.agent)],
            subject=mail.channel or "New Message",
            body=_body(mail.content),
            clock=SYSTEM_CLOCK,
        )
        return message.model_copy(update={"id": str(mail.id)})


def agent_id(swarm: str, agent: str) -> UUID:
    """Return the id that an agent has as an entity unless it is given another: always the same."""
    return uuid5(AGENTS, json.dumps([swarm, agent]))


def _body(content: Any) -> str:
    """Return the content as an agent reads it: text as it is, all else as JSON. Raises BadRequest where it can't be."""
    if isinstance(content, str) and content.strip():
        text = content
    else:
        try:
            text = json.dumps(content, ensure_ascii=False, default=str)
        except Exception as error:
            # whatever a foreign __str__ raises
            raise BadRequest(f"an agent can't read this content: {error}") from error
    _require_characters(text)
    return text


def _require_characters(text: str) -> None:
    """Raise BadRequest for text that no database and no model takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"this text has half a character in it: {error}") from error
