"""`ExchangeBridge`: lets agents of a swarm take part in an exchange.

A mail to an agent becomes a message in a task of the swarm, one task per agent, sender and channel. The task's response, or
the reason for its failure, is sent back as a mail. Only then is the mail removed from the inbox, so that nothing is lost if
the process dies; a mail that was submitted before is found in its task by its id and not submitted twice. If the process
dies between sending a reply and removing the mail, the reply is sent a second time.
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
from mail.core.protocol.compose import compose_message
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
    """Return the result of a method that is a coroutine on a `DurableExchange` only."""
    return await result if inspect.isawaitable(result) else result


async def owners_of(exchange: AnyExchange) -> list[UUID]:
    """Return the registered entities."""
    return exchange.owner_ids if isinstance(exchange, Exchange) else await exchange.owner_ids()


REPLIES = "replies"
"""The metadata key that counts the consecutive mails of agents that led to a mail, itself included."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Chain:
    """The chain of replies that an agent's work continues; its limit keeps agents from replying to each other forever.

    Attributes:
        replies: consecutive replies that led to the present mail.
        most: the limit of consecutive replies.
    """

    replies: int
    most: int

    @property
    def is_at_its_end(self) -> bool:
        """Whether no more mail is sent."""
        return self.replies >= self.most

    @property
    def metadata(self) -> dict[str, int]:
        """The metadata of the agent's next mail."""
        return {REPLIES: self.replies + 1}


_BY_TASK: WeakValueDictionary[str, Chain] = WeakValueDictionary()
"""The chains of the tasks in which this process's bridges have mail; the bridges own them."""


def remember(task_id: str, chain: Chain) -> None:
    """Make the chain available to the actions of a task, as long as the caller keeps a reference to it."""
    _BY_TASK[task_id] = chain


def present_chain() -> Chain | None:
    """Return the chain of the running action; None if its task has no mail of a bridge in this process."""
    return _BY_TASK.get(CURRENT_TASK.get())


def replies_to(mail: Mail) -> int:
    """Return the number of replies that led to a mail; an invalid value, which any sender can write, counts as 0."""
    found = mail.metadata.get(REPLIES, 0)
    return max(0, found) if isinstance(found, int) else 0


AGENTS = UUID("5d6f0c1e-7d1c-5a54-9a2e-3a5b7a1f6c11")
"""The namespace of the default ids of agents."""

MAX_REPLIES = 8

IN_REPLY_TO = "in_reply_to"
FAILED = "failed"

REASON = 500
"""Characters of a mail that explains a failure."""

logger = logging.getLogger(__name__)


class Conversation(NamedTuple):
    """The mail between an agent and another entity on one channel: one task of the swarm."""

    agent: str
    sender: UUID
    channel: str | None


class ExchangeBridge:
    """Carries mail between an exchange and agents of a swarm.

    Use only one bridge at a time for an agent: two bridges could submit the same mail.

    Args:
        agents: the agents that take part: a mapping of names to entity ids, or names only, with ids derived from the names
            of swarm and agent. The default is all entrypoints.
        people: names for entities, shown to agents as senders; the rest appear by their ids.
        timeout: seconds to wait for an agent's response before the mail is retried.
        max_replies: the limit of consecutive replies, so that agents don't thank each other forever; mail sent with
            `exchange_actions` counts.

    The metadata of a reply holds `in_reply_to`, the id of the mail; `replies`, the number of consecutive replies; and
    `failed` if it only explains a failure. An empty reply is not sent.

    Raises BadRequest for agents that are not entrypoints.
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
                hint = did_you_mean(name, entrypoints) or f"; known are: {', '.join(entrypoints)}"
                raise BadRequest(f"{name!r} is not an agent that users may write to{hint}")
        self._names = {id_: name for name, id_ in {**self.agent_ids, **(people or {})}.items()}
        self._timeout = timeout
        self._max_replies = max_replies
        self._running: dict[Conversation, asyncio.Task[int]] = {}
        self._starting = asyncio.Lock()
        self._finished: set[Conversation] = set()
        self._chains: dict[Conversation, Chain] = {}
        self._repeater = Repeater()

    async def register(self) -> None:
        """Register the agents that are not registered yet."""
        for owner_id in self.agent_ids.values():
            try:
                await settled(self.exchange.register(owner_id))
            except AlreadyRegistered:
                continue

    async def step(self) -> int:
        """Sync, let the agents answer their mail, and sync again; return the number of mails answered.

        Raises TimeoutError for a slow agent, or the error that prevented an agent's answer. Its mail stays in the inbox;
        the replies of the other agents are delivered.
        """
        await self.exchange.sync()
        ended = await asyncio.gather(*await self._start_work(), return_exceptions=True)
        await self.exchange.sync()
        answered = 0
        for result in ended:
            if isinstance(result, BaseException):
                raise result
            answered += result
        return answered

    async def run(self, interval: float = 1.0) -> None:
        """Sync every `interval` seconds, and let agents answer their mail, until `stop`.

        Slow agents delay only the end of `run`. Failures are logged and retried.
        """

        async def sync() -> None:
            await self.exchange.sync()
            await self._start_work(logged=True)

        await self.register()
        try:
            await self._repeater.run(sync, interval)
        finally:
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            await self.exchange.sync()

    def stop(self) -> None:
        """End `run` after the agents have answered the mail that they work on."""
        self._repeater.stop()

    def task_id(self, agent: str, sender: UUID, channel: str | None = None) -> str:
        """Return the id of the task for the mail between an agent and a sender on a channel."""
        return str(uuid5(self.agent_ids[agent], f"{sender} {json.dumps(channel)}"))

    # --------------------------------------------------------------------------------------- conversations

    async def _start_work(self, *, logged: bool = False) -> list[asyncio.Task[int]]:
        """Begin to work on new mail."""
        begun: list[asyncio.Task[int]] = []
        async with self._starting:
            # read first: a conversation that ends while the inboxes are read has mail in them that is already answered
            busy = set(self._running)
            for conversation, mails in (await self._waiting()).items():
                if conversation not in busy:
                    work = asyncio.create_task(self._work(conversation, mails, logged))
                    self._running[conversation] = work
                    # not in `_work`, which never runs if it is cancelled immediately
                    work.add_done_callback(partial(self._end, conversation))
                    begun.append(work)
        return begun

    def _end(self, conversation: Conversation, _: asyncio.Task[int]) -> None:
        del self._running[conversation]

    async def _waiting(self) -> dict[Conversation, list[Mail]]:
        found: dict[Conversation, list[Mail]] = {}
        for agent, owner_id in self.agent_ids.items():
            for mail in await settled(self.exchange.receive(owner_id)):
                found.setdefault(Conversation(agent, mail.sender, mail.channel), []).append(mail)
        return found

    async def _work(self, conversation: Conversation, mails: list[Mail], logged: bool) -> int:
        """Answer the mails of a conversation in order; after an error the rest stays in the inbox."""
        try:
            for mail in mails:
                try:
                    await self._answer(conversation, mail)
                except (BadRequest, PayloadTooLarge) as error:  # a retry would fail in the same way
                    logger.warning("%s can't answer %r: %s", conversation.agent, mail, error)
                    await self._reject(conversation, mail, error)
        except Exception:
            if not logged:
                raise
            logger.exception("%s could not answer %r; it is retried", conversation.agent, mail)
            return mails.index(mail)
        return len(mails)

    async def _answer(self, conversation: Conversation, mail: Mail) -> None:
        chain = self._chains[conversation] = Chain(replies_to(mail), self._max_replies)
        remember(self.task_id(*conversation), chain)
        submitted = await self._submit(conversation, mail)
        answer = await self.swarm.runtime.wait(submitted, self._timeout)
        await self._reply(conversation, mail, answer.message.body, answer.sender.address_type == "system")
        self._finished.add(conversation)

    async def _reject(
        self, conversation: Conversation, mail: Mail, error: BadRequest | PayloadTooLarge
    ) -> None:
        """Reply to the sender with the reason why there is no answer."""
        reason = f"{conversation.agent} can't answer: {error}"[:REASON]
        try:
            await self._reply(conversation, mail, reason.encode(errors="replace").decode(), is_failed=True)
        except (BadRequest, PayloadTooLarge):  # the explanation can't be sent either
            await settled(self.exchange.remove_mail(self.agent_ids[conversation.agent], mail))

    async def _reply(self, conversation: Conversation, mail: Mail, text: str, is_failed: bool) -> None:
        """Send a reply, if there is one, and remove the mail from the inbox."""
        owner_id, chain = self.agent_ids[conversation.agent], self._chains[conversation]
        if text.strip() and not chain.is_at_its_end:
            metadata: dict[str, Any] = {IN_REPLY_TO: str(mail.id), **chain.metadata}
            if is_failed:
                metadata[FAILED] = True
            await settled(self.exchange.send(owner_id, mail.sender, text, mail.channel, metadata=metadata))
        await settled(self.exchange.remove_mail(owner_id, mail))

    async def _submit(self, conversation: Conversation, mail: Mail) -> Submitted:
        """Submit the mail to its task, unless it was submitted before.

        That is looked up for the first mail of a conversation, and after an unfinished one.
        """
        runtime, task_id = self.swarm.runtime, self.task_id(*conversation)
        message = self._message(conversation, mail, task_id)
        if conversation not in self._finished:
            found = await runtime.find(task_id, message.id)
            if found is not None:
                return found
        self._finished.discard(conversation)
        return await runtime.submit(message)

    def _message(self, conversation: Conversation, mail: Mail, task_id: str) -> MAILMessage:
        _require_characters(mail.channel or "")
        message = compose_message(
            "request",
            task_id=task_id,
            sender=create_user_address(self._names.get(mail.sender, str(mail.sender))),
            recipients=[create_agent_address(conversation.agent)],
            subject=mail.channel or "New Message",
            body=_body(mail.content),
            clock=SYSTEM_CLOCK,
        )
        return MAILMessage(
            id=str(mail.id), timestamp=message.timestamp, msg_type=message.msg_type, message=message.message
        )


def agent_id(swarm: str, agent: str) -> UUID:
    """Return the default entity id of an agent, which never changes."""
    return uuid5(AGENTS, json.dumps([swarm, agent]))


def _body(content: Any) -> str:
    """Return the content as text for an agent: strings unchanged, other values as JSON. Raises BadRequest if it can't."""
    if isinstance(content, str) and content.strip():
        text = content
    else:
        try:
            text = json.dumps(content, ensure_ascii=False, default=str)
        except Exception as error:
            # a foreign __str__ may raise anything
            raise BadRequest(f"an agent can't read this content: {error}") from error
    _require_characters(text)
    return text


def _require_characters(text: str) -> None:
    """Raise BadRequest for lone surrogates, which databases and models reject."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"the text contains half a character: {error}") from error
