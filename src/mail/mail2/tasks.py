"""Mail to agents is a submission, or a member's answer; what tasks say to their senders and to members is mail.

A message to an agent belongs to a *thread*: that of the message which it answers, if its sender has sent or received
that. A task belongs to a thread, an agent and a sender, whose names make its id. All ids derive from those of messages
and events, so that work which is done twice after a crash changes nothing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID, uuid5

from pydantic_core import from_json

from mail.auth.keys import digest
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.cancel import MAX_REASON
from mail.core.decisions.members import MemberMail
from mail.core.decisions.reviewers import may_decide
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import value
from mail.core.task.approvals import DecisionName
from mail.core.task.documents import PutIf
from mail.core.task.events import EventKind
from mail.core.task.files import files_in
from mail.core.task.idempotency import REMEMBERED_SECONDS, IdempotencyKey
from mail.core.task.members import member_address
from mail.core.task.rows import Rows, Write
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import PausedCall
from mail.core.task.webhooks import Reply, Webhook
from mail.errors import Conflict, MAILError, PeerRefused, PeerUnavailable, RateLimited
from mail.mail2.addresses import PEOPLE, Address
from mail.mail2.agents import Agents, caller_of
from mail.mail2.boxes import release
from mail.mail2.delivery import Deliveries
from mail.mail2.lists import Lists
from mail.mail2.records import (
    HELD,
    MESSAGES,
    REFERENCES,
    TASKS,
    THREADS,
    Held,
    Message,
    Row,
    format_utc,
    held_of,
    own_id,
)

SCHEME = "mail2"
"""The scheme of the webhook by which a task answers the mail that began it: `mail2://HOST/SENDER/AGENT`."""

ANSWERS = (EventKind.TASK_COMPLETE, EventKind.TASK_ERROR)

APPROVE: DecisionName = "approve"
REJECT: DecisionName = "reject"
"""Tags of mail that decides on calls which wait for approval."""

HOUR = 3_600.0

SUBMISSIONS_PER_HOUR = 20
"""The number of submissions to a task in an hour, from a sender that isn't a person, unless it is configured."""

MAX_SUBJECT, MAX_BODY = 256, 65_535

LONGEST_THREAD = 64
"""The number of messages between people that are followed to the beginning of a thread."""

GONE = 410

DELETED = "the task of this thread was deleted; write a message that answers none"


@value
class Thread(Row):
    """The thread of a message to or from an agent.

    Attributes:
        root: the id of its first message.
        instance, task_id: its task, of mail to a member and of mail that asks the sender of a task something.
        agent, member, request_id: of mail to a member: who has written to whom, and the request that it is, or is
            about. Empty for others.
    """

    root: str
    instance: str = ""
    task_id: str = ""
    agent: str = ""
    member: str = ""
    request_id: str = ""


@value
class MailTask(Row):
    """The mail of a task that began by mail.

    Attributes:
        last: the last message of its sender.
        asked: the last message to its sender.
        calls: the ids of the calls that it shows, each with `PausedCall.digest`, if it asks about some.
        has_begun: whether it exists, or was deleted.
        recent: the messages of the last hour from a sender that isn't a person, each with its time.
    """

    last: str
    asked: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    has_begun: bool = False
    recent: tuple[tuple[str, float], ...] = ()


def asked_of(agent: str, member: str) -> str:
    """Return the place of the requests of an agent to the address of a member; their names are those of messages."""
    return f"mail2:asked:{agent} {member}"


@value
class Tasks:
    """The tasks of a swarm that begin by mail, or send some.

    Attributes:
        _begin: takes up work that was noted with a message.
        _per_hour: the number of submissions to a task in an hour from a sender that isn't a person; 0 for no limit.
    """

    _rows: Rows
    _runtime: Runtime
    _agents: Agents
    _lists: Lists
    _deliveries: Deliveries
    _host: str
    _begin: Callable[[str], Awaitable[None]]
    _per_hour: int

    # ---------------------------------------------------------------------------------------------- mail to agents

    async def take(self, message: Message, agent: str) -> TaskKey | str:
        """Give a message to the agent with this local address; return its task, or why the agent can't have it.

        Raises RateLimited and StoreUnavailable for what has to be tried again.
        """
        name, sender = self._agents.names().get(agent), Address.parse(message.sender)
        if name is None:
            return "this agent does not exist"
        if sender.kind == "daemon" or (sender.host == self._host and sender.key in self._agents.names()):
            return "agents take no mail of daemons, and none of each other"
        try:
            if (asked := await self._find_asked(message, agent)) is not None:
                return await self._hear(message, name, asked)
            if agent in self._agents.entrypoints():
                return await self._submit(message, agent, name)
            known = ", ".join(f"{key}@{self._host}" for key in self._agents.entrypoints())
            return f"this agent takes only answers to what it has asked; write to {known}"
        except MAILError as error:
            if error.http_status >= 500 or isinstance(error, RateLimited):
                raise
            return error.detail

    async def forget(self, key: TaskKey) -> None:
        """Delete what is stored for the mail of a task, unless the task exists."""
        if await self._runtime.store.load(key) is not None:
            return
        at_once = self._rows.write_limit // 2
        while found := await self._rows.find(HELD, held_of(key), limit=at_once):
            gone = [Write((HELD, name), None, text) for name, text in found]
            counted = Counter(name.split(" ")[1] for name, text in found if Held.read(text).counts)
            await self._rows.write([*gone, *await release(self._rows, counted)])
        await self._delete((TASKS, key.task_id))

    async def forget_gone(self, after: str, limit: int) -> str:
        """Forget the tasks that are gone, of some that have got mail; return where others follow, or an empty text."""
        found = await self._rows.find(HELD, "", after=after, limit=limit)
        for key in {TaskKey(held.instance, held.task_id) for held in (Held.read(text) for _, text in found)}:
            await self.forget(key)
        return found[-1][0] if len(found) == limit else ""

    async def behind(self, message: Mapping[str, Any], reader: str) -> list[str]:
        """Return the ids of those tasks of an address that have sent it a message, or got it from that address."""
        names, others = self._agents.names(), [message["sender"]]
        if others == [reader]:
            others = message["recipients"]
        addresses = map(Address.parse, others)
        agents = [each.key for each in addresses if each.host == self._host and each.key in names]
        thread = await self._thread_of(message["message_id"]) if agents else None
        if thread is None:
            return []
        if thread.task_id:
            return [thread.task_id] if thread.instance == str(self._owner_of(reader)) else []
        return [_task_id(thread.root, agent, reader) for agent in agents]

    async def awaited(self, message_ids: Sequence[str]) -> set[str]:
        """Return those of the messages that ask something for which a task still waits."""
        found = await self._rows.read(*((THREADS, each) for each in message_ids))
        threads = {row[1]: Thread.read(text) for row, text in found.items()}
        return {each for each, thread in threads.items() if thread.task_id and await self._is_open(thread)}

    async def _find_asked(self, message: Message, agent: str) -> Thread | None:
        """Return the mail to a member that a message answers; None if it answers none of this agent's.

        Mail that answers nothing is the answer to the only request of the agent to its sender that is open. What was
        taken for an answer before, by a process that died then, is one.
        """
        for message_id in filter(None, (message.message_id, message.reply_to)):
            thread = await self._thread_of(message_id)
            if thread is not None and thread.member and thread.agent == agent:
                is_own = message_id == message.message_id
                may_answer = is_own or (
                    await self._may_answer(message) and await self._speaks(message, thread)
                )
                return thread if may_answer else None
        if message.reply_to is not None:
            return None
        place, left = asked_of(agent, message.sender), list[Thread]()
        for name, text in await self._rows.find(place, ""):
            thread = Thread.read(text)
            if await self._is_open(thread):
                left.append(thread)
                if len(left) > 1:
                    return None
            else:
                await self._delete((place, name))
        return left[0] if left else None

    async def _speaks(self, message: Message, thread: Thread) -> bool:
        """Return whether the sender of a message is the member of a thread, or of the list which that is."""
        address = self._runtime.swarm.members.get(thread.member)
        if address is None or address == message.sender:
            return address is not None
        member = Address.parse(address)
        is_list = member.kind == "list" and member.host == self._host
        return is_list and message.sender in (await self._lists.members(member.key)).get(member.key, ())

    async def _is_open(self, thread: Thread) -> bool:
        """Return whether the task of a thread waits for the answer to its request, or that of its sender."""
        task = await self._runtime.store.load(TaskKey(thread.instance, thread.task_id))
        if task is None or not thread.member:
            return bool(_waiting(task))
        asked = (thread.request_id, member_address(thread.member))
        return any((each.request_id, each.recipient) == asked for each in task.requests)

    async def _hear(self, message: Message, name: str, asked: Thread) -> TaskKey:
        key = TaskKey(asked.instance, asked.task_id)
        noted = Write((THREADS, message.message_id), asked.text)  # what answers it is for the same task
        await self._rows.write([noted, _noted(key, message, asked.agent)])
        mail = MemberMail(
            id=message.message_id,
            member=asked.member,
            agent=name,
            answers=asked.request_id,
            subject=message.subject,
            body=message.body,
            sent=message.sent_at,
        )
        await self._runtime.hear(key, mail)
        if (address := self._runtime.swarm.members.get(asked.member)) is not None:
            await self._delete((asked_of(asked.agent, address), asked.root))
        return key

    async def _submit(self, message: Message, agent: str, name: str) -> TaskKey:
        runtime, now = self._runtime, self._runtime.now()
        owner = self._owner_of(message.sender)
        thread = await self._root_of(message)
        task_id = _task_id(thread, agent, message.sender)
        key = TaskKey(str(owner), task_id)
        known = await self._note(message, key, thread, agent, now)
        task = await runtime.store.load(key)
        if task is None and known.has_begun:
            raise Conflict(DELETED)
        if task is None or all(each.key != message.message_id for each in task.submitted):
            submission = Submission(
                task_id=task_id,
                entrypoint=name,
                subject=message.subject,
                ceiling=runtime.ceiling(owner),
                idempotency_key=IdempotencyKey(
                    key=message.message_id, digest=message.message_id, until=now + REMEMBERED_SECONDS
                ),
                **_said(task, message, known),
            )
            hook = Webhook(url=self._hook(message.sender, agent), events=ANSWERS)
            await runtime.submit(owner, submission, (hook,))
        if not known.has_begun:
            begun = Write((TASKS, task_id), replace(known, has_begun=True).text, known.text)
            await self._rows.write([begun])  # if it has answered, that stands
        return key

    def _owner_of(self, sender: str) -> Principal:
        return caller_of(Address.parse(sender), self._host).principal(self._runtime.swarm.name)

    async def _answers(self, message: Message, agent: str, thread: str) -> bool:
        """Return whether a message that belongs to a thread answers what a task of the agent has said to its sender."""
        if thread == message.message_id or message.reply_to is None:
            return False
        found = await self._rows.read(row := (MESSAGES, message.reply_to), of := (THREADS, message.reply_to))
        is_agent_s = row in found and Message.read(found[row]).sender == f"{agent}@{self._host}"
        return is_agent_s and of in found and not Thread.read(found[of]).member

    async def _note(self, message: Message, key: TaskKey, thread: str, agent: str, now: float) -> MailTask:
        """Note that a message is the last one of a task, and return the notes. Raises Conflict for too many.

        Raises Conflict also if the task was deleted.
        """
        row, message_id = (TASKS, key.task_id), message.message_id
        while True:
            text = (await self._rows.read(row)).get(row)
            if text is None and await self._answers(message, agent, thread):
                raise Conflict(DELETED)
            before = MailTask(message_id) if text is None else MailTask.read(text)
            recent: tuple[tuple[str, float], ...] = ()
            if self._per_hour and Address.parse(message.sender).kind not in PEOPLE:
                others = tuple(
                    each for each in before.recent if each[1] > now - HOUR and each[0] != message_id
                )
                if len(others) >= self._per_hour:
                    raise Conflict(
                        f"a task takes {self._per_hour} messages an hour from senders that aren't people; write later"
                    )
                recent = (*others, (message_id, now))
            after = replace(before, last=message_id, recent=recent)
            writes = [
                Write(row, after.text, PutIf.ABSENT if text is None else text),
                Write((THREADS, message_id), Thread(thread).text),
                _noted(key, message, agent),
            ]
            if await self._rows.write(writes):
                return after

    async def _root_of(self, message: Message) -> str:
        """Return the id of the first message of a thread."""
        for _ in range(LONGEST_THREAD):
            if message.reply_to is None or not await self._may_answer(message):
                break
            if (thread := await self._thread_of(message.reply_to)) is not None:
                return thread.root
            row = (MESSAGES, message.reply_to)
            message = Message.read((await self._rows.read(row))[row])
        return message.message_id

    async def _thread_of(self, message_id: str) -> Thread | None:
        found = await Thread.find(self._rows, (THREADS, message_id))
        return found and found[0]

    async def _may_answer(self, message: Message) -> bool:
        """Return whether the sender of a message has sent or received the one that it answers."""
        found = await Message.find(self._rows, (MESSAGES, message.reply_to or ""))
        if found is None:
            return False
        answered, _ = found
        if message.sender in (answered.sender, *answered.recipients):
            return True
        lists = [each for each in map(Address.parse, answered.recipients) if each.kind == "list"]
        members = await self._lists.members(*(each.key for each in lists if each.host == self._host))
        return any(message.sender in each for each in members.values())

    # ---------------------------------------------------------------------------------------------- mail of agents

    async def send(self, key: TaskKey, member: str, address: str, message: MAILMessage) -> None:
        """Send what a task has for a member; see `mail.core.task.ports.Members`."""
        payload, asks = message.message, message.msg_type == "request"
        if payload.sender.address_type == "system":
            await self._withdraw(key, payload.own_id)
            return
        agent = self._agents.address(payload.sender.address)
        message_id = self._id_of(key, payload.own_id if asks else message.id)
        thread = Thread(message_id, key.instance, key.task_id, agent, member, payload.own_id)
        notes = [Write((THREADS, message_id), thread.text)]
        if asks:
            notes.append(Write((asked_of(agent, address), message_id), thread.text))
        names = [f"[the file {file.name} can't be sent by mail]" for file in files_in(payload.routing_info)]
        body = self._cut("\n\n".join((payload.body, *names)), key.task_id)
        sent = datetime.fromisoformat(message.timestamp)
        await self._post(
            message_id, agent, address, payload.subject, body, sent, None, ("request",) if asks else (), notes
        )

    async def _withdraw(self, key: TaskKey, request_id: str) -> None:
        """Tell a member that a request needs no answer any more, if it was sent."""
        asked = self._id_of(key, request_id)
        found = await self._rows.read((MESSAGES, asked), (THREADS, asked))
        if len(found) < 2:
            return
        request, thread = Message.read(found[MESSAGES, asked]), Thread.read(found[THREADS, asked])
        [address] = request.recipients
        notes = [
            Write((asked_of(thread.agent, address), asked), None),
            Write((THREADS, message_id := self._id_of(key, f"withdrawn:{request_id}")), thread.text),
        ]
        now, subject = self._runtime.clock.now(), f"Withdrawn: {request.subject}"
        text = "No answer is needed any more: the task in which you were asked has ended."
        await self._post(message_id, thread.agent, address, subject, text, now, asked, ("withdrawn",), notes)

    async def answer(self, url: str, event_id: str, body: bytes) -> Reply:
        """Send the sender of a task what an event of it says: its answer, its question, or why it has failed."""
        event = from_json(body)
        data, task_id = event["data"], event["task_id"]
        sender, agent = map(unquote, url.rpartition(f"{SCHEME}://")[2].split("/")[1:])
        row, message_id = (TASKS, task_id), own_id(self._host, f"{SCHEME}:{event_id}")
        if (stored := await MailTask.find(self._rows, row)) is None:
            return Reply(GONE, "the thread of this task is no longer stored")
        known, text = stored
        found = await self._rows.read((MESSAGES, known.last), (THREADS, known.last))
        if len(found) < 2:
            return Reply(GONE, "the message that this task would answer is deleted")
        last, thread = Message.read(found[MESSAGES, known.last]), Thread.read(found[THREADS, known.last])
        asks = Thread("")
        tag, said, calls = "answer", data["response"], tuple[tuple[str, str], ...]()
        if event["event"] == EventKind.TASK_ERROR:
            tag = "failed"
        elif (question := data.get("question")) is not None:
            calls = tuple(
                (each.get("call_id", each["id"]), digest(each["arguments"])) for each in from_json(said)
            )
            key = TaskKey(str(self._owner_of(sender)), task_id)
            asks = Thread("", key.instance, task_id)
            tag, said = self._question(question, await self._runtime.store.load(key), task_id)
        subject = last.subject if last.subject[:3].lower() == "re:" else f"Re: {last.subject}"
        notes = [
            Write((THREADS, message_id), replace(asks, root=thread.root).text),
            Write(row, replace(known, asked=message_id, calls=calls).text, text),
        ]
        said, sent = self._cut(said, task_id), datetime.fromisoformat(data["timestamp"])
        try:
            await self._post(message_id, agent, sender, subject, said, sent, known.last, (tag,), notes)
        except PeerRefused as error:
            return Reply(GONE, error.detail)
        except PeerUnavailable as error:
            return Reply(None, error.detail)
        return Reply(200)

    def _question(self, question: str, task: Task | None, task_id: str) -> tuple[str, str]:
        """Return the tag and the text of mail that asks a question."""
        if not _open_to_owner(task):
            asks_owner = any(call.needs_result for call in _waiting(task))
            return "question" if asks_owner else "approval", question
        link = self._link(task_id)
        where = f", or decide at {link}" if link else ""
        return "approval", f"{question}\n\nReply with the tag {APPROVE} or {REJECT}{where}."

    def _cut(self, text: str, task_id: str) -> str:
        if len(text) <= MAX_BODY:
            return text or "(no text)"
        link = self._link(task_id)
        end = f"\n\n[{len(text)} characters in all{f': {link}' if link else ''}]"
        return text[: MAX_BODY - len(end)] + end

    def _link(self, task_id: str) -> str:
        """Return the address of a task in the page; empty if this server doesn't know its own."""
        return self._runtime.base_url and f"{self._runtime.base_url}/ui#task={task_id}"

    def _hook(self, sender: str, agent: str) -> str:
        return f"{SCHEME}://{self._host}/{quote(sender, safe='@:')}/{quote(agent, safe='@:')}"

    async def _post(
        self,
        message_id: str,
        agent: str,
        to: str,
        subject: str,
        body: str,
        sent: datetime,
        reply_to: str | None,
        tags: tuple[str, ...],
        notes: list[Write],
    ) -> None:
        """Send mail of an agent, once, even if its reader has deleted it. Raises PeerRefused and PeerUnavailable.

        The former is for mail that reaches nobody.
        """
        row = (REFERENCES, message_id)
        if row in await self._rows.read(row):
            await self._begin(message_id)
            return
        message = Message(
            message_id=message_id,
            sender=f"{agent}@{self._host}",
            recipients=(to,),
            subject=subject[:MAX_SUBJECT] or "(no subject)",
            body=body,
            sent_at=format_utc(sent),
            reply_to=reply_to,
            tags=tags,
        )
        try:
            undelivered = await self._deliveries.post(message, notes)
        except MAILError as error:
            failure = PeerUnavailable if error.http_status >= 500 else PeerRefused
            raise failure(error.detail) from error
        if undelivered:
            raise PeerRefused("; ".join(f"{each.recipient}: {each.reason}" for each in undelivered))
        await self._begin(message_id)

    def _id_of(self, key: TaskKey, text: str) -> str:
        """Return the id of the mail that a task sends for one of its messages."""
        return own_id(self._host, f"{SCHEME}:{key.instance}#{key.task_id}:{text}")

    async def _delete(self, row: tuple[str, str]) -> None:
        await self._rows.write([Write(row, None)])


def _task_id(thread: str, agent: str, sender: str) -> str:
    """Return the id of the task of a thread, an agent and a sender."""
    return str(uuid5(UUID(thread), f"{agent} {sender}"))


def _noted(key: TaskKey, message: Message, agent: str) -> Write:
    """Return what notes that a task gets a message of an agent, before it has that."""
    name = f"{held_of(key)}{message.message_id} {agent}"
    return Write((HELD, name), Held(key.instance, key.task_id).text)


def _waiting(task: Task | None) -> tuple[PausedCall, ...]:
    """Return the calls for which a paused task waits."""
    reached = None if task is None or task.status is not TaskStatus.PAUSED else task.generation.breakpoint
    return () if reached is None else reached.calls


def _open_to_owner(task: Task | None) -> list[PausedCall]:
    """Return the calls that wait for an approval which the owner of their task may give."""
    if task is None:
        return []
    owner, calls = Principal.parse(task.instance), _waiting(task)
    return [
        each for each in calls if each.is_undecided and each.needs_approval and may_decide(task, each, owner)
    ]


def _said(task: Task | None, message: Message, known: MailTask) -> dict[str, Any]:
    """Return what a message says to its task: what to do, the answer to its question, or a decision.

    A decision is for the calls that the last message to its sender has shown. Raises Conflict for one that can't be.
    """
    calls = _waiting(task)
    if not calls:
        return {"body": message.body}
    free = _open_to_owner(task)
    results = [{"call_id": call.call_id, "content": message.body} for call in calls if call.needs_result]
    if results and not free:
        resume = ResumeFrom.BREAKPOINT_TOOL_CALL
        return {"resume_from": resume, "breakpoint_tool_call_result": results}
    if not free:
        raise Conflict("the task waits for calls on which others decide; write to it again after that")
    decisions = {APPROVE, REJECT}.intersection(message.tags)
    if len(decisions) != 1 or message.reply_to != known.asked:
        raise Conflict(
            f"calls wait for your approval: reply to the message that asks for it with the tag {APPROVE} or {REJECT}"
        )
    if {(call.call_id, call.digest) for call in calls if call.approval is None} != set(known.calls):
        raise Conflict(
            "nothing was decided: the task asks something else by now; reply to the message that asks it"
        )
    [decision] = decisions
    reason = message.body[:MAX_REASON] if decision == REJECT else ""
    return {
        "approvals": tuple(
            GivenApproval(
                decision=decision, call_id=call.call_id, arguments_sha256=call.digest, reason=reason
            )
            for call in free
        )
    }
