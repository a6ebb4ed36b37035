"""`ExchangeBridge`: lets agents of a swarm take part in an exchange.

A mail to an agent becomes a message in a task of the swarm, one task per agent, sender and channel. The task's
response, or the reason for its failure, is sent back as a mail. Only then is the mail removed from the inbox, so that
nothing is lost if the process dies; a mail that was submitted before is found in its task by its id and not submitted
twice. If the process dies between sending a reply and removing the mail, the reply is sent a second time.

A task that pauses for a question to the user, or for another breakpoint tool, sends the question as a mail; the next
mail of the conversation is the answer.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

from mail.api.runtime import ANSWER_SECONDS
from mail.api.swarms import MAILSwarm
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.cancel import MAX_REASON
from mail.core.decisions.submit import ResumeFrom
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import create_agent_address, create_user_address
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import compose_message
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.message import MAILMessage, MAILRequest
from mail.core.task.idempotency import IdempotencyKey
from mail.core.task.idempotency import find as find_submission
from mail.core.task.turn_state import PausedCall
from mail.core.turns.context import CURRENT_TASK
from mail.errors import BadRequest, PayloadTooLarge
from mail.exchange.durable import DurableExchange
from mail.exchange.exchange import Exchange
from mail.exchange.mailboxes import AlreadyRegistered, Mail
from mail.exchange.repeating import Repeater, Run, coroutine_function

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
ASKS = "asks"

APPROVE = "approve"
"""The mail that approves a call; case and whitespace are ignored."""


ANSWERS_KEPT_SECONDS = 10 * 366 * 86_400.0
"""How long a task remembers which mails have answered its questions; it remembers the last 64 of them."""

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
        agents: the agents that take part: a mapping of names to entity ids, or names only, with ids derived from the
            names of swarm and agent. The default is all entrypoints.
        people: names for entities, shown to agents as senders; the rest appear by their ids.
        timeout: seconds to wait for an agent's response before the mail is retried.
        max_replies: the limit of consecutive replies, so that agents don't thank each other forever; mail sent with
            `exchange_actions` counts.

    The metadata of a reply holds `in_reply_to`, the id of the mail; `replies`, the number of consecutive replies;
    `failed` if it only explains a failure; and `asks` if the agent's task is paused until the next mail of the
    conversation answers: `call_id`, `name` and, for a question to the user, `subject` of each waiting call. An empty
    reply is not sent.

    Raises BadRequest for agents that are not entrypoints, and for an invalid `timeout` or `max_replies`.
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
        if not isinstance(timeout, int | float | None) or (timeout is not None and not timeout >= 0):
            raise BadRequest(f"timeout must be 0 or more seconds, not {timeout!r:.100}")
        if type(max_replies) is not int or max_replies < 0:
            raise BadRequest(f"max_replies must be a whole number from 0, not {max_replies!r:.100}")
        self._timeout = timeout
        self._max_replies = max_replies
        self._running: dict[Conversation, asyncio.Task[int]] = {}
        self._starting = asyncio.Lock()
        self._finished: set[Conversation] = set()
        self._not_asked: set[Conversation] = set()
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

        Raises TimeoutError for a slow agent, or the error that prevented an agent's answer. Its mail stays in the
        inbox; the replies of the other agents are delivered.
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

    @coroutine_function
    def run(self, interval: float = 1.0) -> Coroutine[Any, Any, None]:
        """Sync every `interval` seconds, and let agents answer their mail, until `stop`.

        Slow agents delay only the end of `run`. Failures are logged and retried.
        """
        return self._run(self._repeater.begin(interval))

    async def _run(self, run: Run) -> None:
        async def sync() -> None:
            await self.exchange.sync()
            await self._start_work(logged=True)

        await self.register()
        try:
            await run.repeat(sync)
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
        _BY_TASK[self.task_id(*conversation)] = chain
        submitted = await self._submit(conversation, mail)
        answer = await self.swarm.runtime.wait(submitted, self._timeout)
        task = await self.swarm.runtime.load_task(submitted.key.task_id)
        if task is not None and (calls := task.generation.waiting_calls):
            await self._ask(conversation, mail, submitted, calls)
        else:
            is_failed = answer.sender.address_type == "system"
            await self._reply(conversation, mail, answer.message.body, {FAILED: True} if is_failed else {})
        self._finished.add(conversation)

    async def _ask(
        self, conversation: Conversation, mail: Mail, submitted: Submitted, calls: Sequence[PausedCall]
    ) -> None:
        """Send the questions of a paused task; at the end of a chain they are not sent, and nothing answers them."""
        read = await self.swarm.runtime.read_messages(submitted.key.task_id, after=submitted.after)
        requests = {
            each.message.request_id: each.message for each in read if isinstance(each.message, MAILRequest)
        }
        texts: list[str] = []
        asks: list[dict[str, str]] = []
        for call in calls:
            request = None if call.asks is None else requests.get(call.asks.request_id)
            asks.append({"call_id": call.call_id, "name": call.name})
            if request is None:
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                if call.needs_approval:
                    texts.append(
                        f"{conversation.agent} asks for approval of {call.name} with {arguments}. "
                        f"Reply {APPROVE!r} to run it; any other reply rejects it, as the reason."
                    )
                    continue
                texts.append(f"{conversation.agent} waits for the result of {call.name} with {arguments}")
            else:
                asks[-1]["subject"] = request.subject
                texts.append(request.body)
        await self._reply(conversation, mail, "\n\n".join(texts), {ASKS: asks})
        if self._chains[conversation].is_at_its_end:
            self._not_asked.add(conversation)

    async def _reject(
        self, conversation: Conversation, mail: Mail, error: BadRequest | PayloadTooLarge
    ) -> None:
        """Reply to the sender with the reason why there is no answer."""
        reason = f"{conversation.agent} can't answer: {error}"[:REASON]
        try:
            text = reason.encode(errors="replace").decode()
            await self._reply(conversation, mail, text, {FAILED: True})
        except (BadRequest, PayloadTooLarge):  # the explanation can't be sent either
            await settled(self.exchange.remove_mail(self.agent_ids[conversation.agent], mail))

    async def _reply(
        self, conversation: Conversation, mail: Mail, text: str, about: Mapping[str, Any]
    ) -> None:
        """Send a reply, if there is one, and remove the mail from the inbox."""
        owner_id, chain = self.agent_ids[conversation.agent], self._chains[conversation]
        if text.strip() and not chain.is_at_its_end:
            metadata = {IN_REPLY_TO: str(mail.id), **chain.metadata, **about}
            await settled(self.exchange.send(owner_id, mail.sender, text, mail.channel, metadata=metadata))
        await settled(self.exchange.remove_mail(owner_id, mail))

    async def _submit(self, conversation: Conversation, mail: Mail) -> Submitted:
        """Submit the mail to its task, unless it was submitted before: as the answer if the task waits for one.

        An earlier submission is looked up for the first mail of a conversation, and after an unfinished one.
        """
        runtime, task_id = self.swarm.runtime, self.task_id(*conversation)
        message = self._message(conversation, mail, task_id)
        task, now = await runtime.load_task(task_id), SYSTEM_CLOCK.now().timestamp()
        key = IdempotencyKey(key=f"mail {mail.id}", digest="", until=now + ANSWERS_KEPT_SECONDS)
        if conversation not in self._finished and task is not None:
            earlier = find_submission(task.submitted, key, now)
            if earlier is not None:
                return Submitted(task.key, earlier.generation, earlier.after, earlier.seq)
            found = await runtime.find(task_id, message.id)
            if found is not None:
                return found
        self._finished.discard(conversation)
        calls = () if task is None or conversation in self._not_asked else task.generation.waiting_calls
        self._not_asked.discard(conversation)
        if not calls:
            return await runtime.submit(message, drop_question=True)  # it was not sent to this sender
        return await runtime.post(
            task_id=task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result=[
                {"call_id": call.call_id, "content": message.message.body}
                for call in calls
                if call.needs_result
            ]
            or None,
            approvals=[_decision(call, message.message.body) for call in calls if call.is_undecided],
            idempotency_key=key,
        )

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


def _decision(call: PausedCall, text: str) -> GivenApproval:
    """Return the decision on a call that needs approval, from the text of a mail."""
    if " ".join(text.split()).casefold() == APPROVE:
        return GivenApproval(call_id=call.call_id, decision="approve")
    return GivenApproval(call_id=call.call_id, decision="reject", reason=text[:MAX_REASON])


def agent_id(swarm: str, agent: str) -> UUID:
    """Return the default entity id of an agent, which never changes."""
    return uuid5(AGENTS, json.dumps([swarm, agent]))


def _body(content: Any) -> str:
    """Return the content as text for an agent: strings unchanged, others as JSON. Raises BadRequest if it can't."""
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
