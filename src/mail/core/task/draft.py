"""A task under change: collects what a decision does, and seals it into one TaskChange.

Order inside a commit: what agents did, then the messages that were sent, then the end of the task. A
message has the seq of the event that announces it, so events and mail are numbered by one gapless count.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from mail.core.protocol.address import (
    EVERYONE,
    MAILAddress,
    Principal,
    create_agent_address,
    create_system_address,
    format_agent_address,
    parse_agent_address,
)
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import (
    MAILBroadcast,
    MAILMessage,
    MAILPayload,
    MAILResponse,
    MessageType,
    Tier,
    tier_of,
)
from mail.core.task.change import Claim, HistoryRecord, InboxEntry, TaskChange, Turn
from mail.core.task.events import UNREAD_FROM, Event, EventKind
from mail.core.task.interswarm import peer_mailbox, peer_of
from mail.core.task.limits import DEAD_LETTERS, OPEN_REQUESTS
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import (
    LIFECYCLE,
    NO_MAIL,
    Answer,
    Contact,
    OpenRequest,
    Question,
    Task,
    TaskStatus,
    Transition,
)
from mail.core.task.webhooks import call
from mail.errors import Subject


class Draft:
    """The mutable side of one decision. Nothing leaves it but the sealed change.

    Attributes:
        requests: the task's unanswered requests, as this decision leaves them.
        contacts: what the task knows of other swarms, likewise.
        hooks: the task's webhooks, likewise; what this decision adds for them to send is counted in the end.
    """

    def __init__(self, task: Task, swarm: SwarmCore, clock: Clock, *, is_new: bool = False) -> None:
        self.before = task
        self.swarm = swarm
        self.clock = clock
        self.timestamp = clock.now().isoformat()
        self.status = task.status
        self.updates: dict[str, Any] = {}
        self.requests = task.requests
        self.contacts = dict(task.contacts)
        self.hooks = dict(task.hooks)
        self._is_new = is_new
        self._seq = task.seq
        self._pending = dict(task.pending)
        self._histories = dict(task.histories)
        self._events: list[Event] = []
        self._outgoing: list[tuple[MAILMessage, Sequence[str], dict[str, Any]]] = []
        self._deliveries: list[InboxEntry] = []
        self._records: list[HistoryRecord] = []
        self._ending: tuple[MAILMessage, EventKind] | None = None
        self._turn: Claim | None = None
        self._consumed: InboxEntry | None = None
        self._along: tuple[InboxEntry, ...] = ()

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.before.task_id

    @property
    def last_seq(self) -> int:
        """That of the last event so far; messages come after those."""
        return self._seq + len(self._outgoing)

    @property
    def is_running(self) -> bool:
        """Whether the task still runs after what was decided so far."""
        return self.status is TaskStatus.RUNNING

    @property
    def has_mail(self) -> bool:
        """Whether any mailbox of the task will hold mail."""
        return bool(self._outgoing or self._pending)

    def wakes(self, mailbox: str) -> bool:
        """Whether this commit puts mail into a mailbox."""
        return any(mailbox in mailboxes for _, mailboxes, _ in self._outgoing)

    def end_turn(self, turn: Turn, *, consume: bool) -> None:
        """This commit ends `turn`; its message leaves the mailbox where it has been processed."""
        self._turn = turn
        if consume:
            self._consumed, self._along = turn.entry, turn.also_read
            for entry in (turn.entry, *turn.also_read):
                self._count(entry, -1)
            if self.before.questions:
                read = {(entry.mailbox, entry.seq) for entry in (turn.entry, *turn.also_read)}
                left = tuple(
                    question
                    for question in self.before.questions
                    if (question.mailbox, question.seq) not in read
                )
                self.updates["questions"] = left
                if len(left) < len(self.before.questions):
                    self.updates["unheard"] = False

    def end_claim(self, claim: Claim) -> None:
        """This commit ends a claim that consumes no message."""
        self._turn = claim

    def emit(self, kind: EventKind, text: str, *, agent: str = "", **extra: Any) -> None:
        """Add an event; `agent` is the agent of this swarm that it is about, where it is about one."""
        self._append_event(kind, text, {"agent": agent, **extra} if agent else extra, None)

    def send(self, message: MAILMessage, mailboxes: Sequence[str], **extra: Any) -> None:
        """Put a message into mailboxes, with one event for all of them; `extra` is told in the event alone."""
        self._outgoing.append((message, mailboxes, extra))

    def tell(self, agent: str, subject: Subject, body: str, **extra: Any) -> None:
        """Send an agent a message from the system; `extra` is told in its event alone."""
        payload = MAILResponse(
            task_id=self.task_id,
            request_id=self.clock.new_id(),
            sender=create_system_address(self.swarm.name),
            recipient=create_agent_address(agent),
            subject=subject.value,
            body=body,
        )
        self.send(self.envelope("response", payload), (agent,), **extra)

    def announce(self, agent: str, subject: Subject, body: str) -> None:
        """Send an agent a broadcast from the system: news that it did not ask for by a request."""
        self.send(
            self._broadcast("broadcast", create_system_address(self.swarm.name), agent, subject, body),
            (agent,),
        )

    def dead_letter(
        self,
        mailbox: str,
        reason: str,
        attempts: int,
        *,
        message: MAILMessage | None,
        message_seq: int | None,
        **extra: Any,
    ) -> int:
        """Add a dead letter: what leaves its mailbox without having been processed. Returns its seq.

        `attempts` is how often that was tried; `message_seq` is that of the event which announced the message, or
        of the first event that was not delivered, where no message was (`message` is None). A message that was never
        announced (`message_seq` is None) is kept with the dead letter.
        """
        about: dict[str, Any] = {}
        if message is not None:
            payload = message.message
            about = {
                "message_id": message.id,
                "msg_type": message.msg_type,
                "sender": payload.sender.address,
                "subject": payload.subject,
            }
        what = "events" if message is None else f"{message.message.subject!r} of {message.sender.address}"
        self._append_event(
            EventKind.DEAD_LETTER,
            f"dead letter: {what} for {mailbox} could not be processed: {reason}",
            {
                **({"agent": mailbox} if mailbox in self.swarm.agents else {}),
                "mailbox": mailbox,
                "reason": reason,
                "attempts": attempts,
                "message_seq": message_seq,
                **about,
                **extra,
            },
            message if message_seq is None else None,
        )
        dead: tuple[int, ...] = self.updates.get("dead", self.before.dead)
        self.updates["dead"] = (*dead, self._seq)[-DEAD_LETTERS:]
        return self._seq

    def ask(self, request: OpenRequest) -> None:
        """Remember that a request waits for its answer."""
        self.requests = (*self.requests, request)[-OPEN_REQUESTS:]

    def due_in(self, seconds: float) -> float:
        """The time so many seconds from now, in seconds since the epoch."""
        return self.clock.now().timestamp() + seconds

    def settle_request(self, request: OpenRequest) -> None:
        """A request waits no longer."""
        self.requests = tuple(other for other in self.requests if other is not request)

    def add_peer(self, swarm: str, agent: str, *, knows: bool = False) -> None:
        """Another swarm gets a part in the task, by this agent of it; the first one stays its contact."""
        contact = self.contacts.get(swarm) or Contact(agent=agent)
        if knows and not contact.knows:
            contact = contact.model_copy(update={"knows": True})
        self.contacts[swarm] = contact

    def remember(self, agent: str, entries: History) -> None:
        """Append to an agent's history: that of the agent whose turn this ends, or of each agent of a new task."""
        n = self._histories.get(agent, 0) + 1
        self._histories[agent] = n
        self._records.append(HistoryRecord(agent, n, entries))

    def move(self, transition: Transition) -> None:
        """Let the task go through a transition of the lifecycle."""
        self.status = LIFECYCLE[self.status, transition]

    def finish(
        self, sender: MAILAddress, subject: Subject, body: str, message: MAILMessage | None = None
    ) -> None:
        """End this generation with a finishing message; the caller has moved the status."""
        message = message or self._broadcast("broadcast_complete", sender, EVERYONE, subject, body)
        self.end_with(message)
        if self.before.asker is not None:
            done = self.status is TaskStatus.COMPLETED
            self._answer_asker(
                self.before.asker, message, Subject.INTERSWARM_TASK_COMPLETE if done else subject
            )
        elif not self._is_paused:
            self.tell_contacts(message)
        if not self._is_paused:
            self.requests = tuple(request for request in self.requests if self._is_unread(request))

    def stop(self, sender: MAILAddress, subject: Subject, reason: str, *, answers: bool) -> None:
        """End the task from outside; `answers`: whether somebody still waits for this generation's answer."""
        message = self._broadcast("broadcast_complete", sender, EVERYONE, subject, reason)
        if answers:
            self.finish(sender, subject, reason, message)
        else:
            self.tell_contacts(message)
            self.requests = ()

    def end_with(self, message: MAILMessage) -> None:
        """End this generation with a finishing message that other swarms need not be told."""
        failed = self.status in (TaskStatus.FAILED, TaskStatus.CANCELLED)
        self._ending = (message, EventKind.TASK_ERROR if failed else EventKind.TASK_COMPLETE)

    @property
    def owner_address(self) -> MAILAddress:
        """The address of the task's owner."""
        return Principal.parse(self.before.owner).address

    @property
    def _is_paused(self) -> bool:
        return self.status is TaskStatus.PAUSED

    def _is_unread(self, request: OpenRequest) -> bool:
        """Whether it came while the task was running, and nobody has read it yet: the next generation answers it."""
        return request.seq > 0 and any(question.seq == request.seq for question in self._unread())

    def _answer_asker(self, swarm: str, message: MAILMessage, subject: Subject) -> None:
        """This swarm's part of another one's task is over: its outcome answers whatever waits there for an answer."""
        waiting = [
            request for request in self.requests if request.asks == swarm and not self._is_unread(request)
        ]
        ends: list[tuple[str, str | None]] = [(request.sender, request.request_id) for request in waiting]
        for request in waiting:
            self.settle_request(request)
        for agent, request_id in ends or [(self._contact(swarm), None)]:
            self.send_to_peer(swarm, message.sender, agent, subject, message.message.body, request_id)

    def tell_contacts(self, message: MAILMessage, *, but: str | None = None) -> None:
        """The task is over: tell the other swarms that have it, or will, save the one that said so."""
        for swarm, contact in list(self.contacts.items()):
            mailbox = peer_mailbox(swarm)
            if swarm == but or not (contact.knows or mailbox in self._pending or self.wakes(mailbox)):
                continue
            told = self.send_to_peer(
                swarm,
                message.sender,
                self._contact(swarm),
                Subject.TASK_COMPLETE,
                message.message.body,
                None,
            )
            self.contacts[swarm] = contact.model_copy(update={"ending": told.id})

    def answer_owner(
        self, sender: MAILAddress, body: str, *, message: MAILMessage | None = None, failed: bool = False
    ) -> None:
        """Somebody elsewhere has answered the owner: the task ends with it, once all who were asked have answered."""
        given: tuple[Answer, ...] = self.updates.get("answers", self.before.answers)
        answers = (*given, Answer(sender=sender.address, body=body))
        if any(not request.sender for request in self.requests):
            self.updates["answers"] = answers
        elif not self.is_running:
            return
        elif len(answers) > 1:
            self.move(Transition.COMPLETE)
            told = "\n\n".join(f"{answer.sender}: {answer.body}" for answer in answers)
            self.finish(create_system_address(self.swarm.name), Subject.INTERSWARM_TASK_COMPLETE, told)
        elif failed:
            self.fail(body)
        else:
            self.move(Transition.COMPLETE)
            self.finish(sender, Subject.INTERSWARM_TASK_COMPLETE, body, message)

    def reply_elsewhere(self, target: str, agent: str, subject: Subject, body: str) -> None:
        """Tell an agent of another swarm what has become of what it wrote to `agent`."""
        swarm = parse_agent_address(target)[1]
        assert swarm is not None
        asked = [each for each in self.requests if (each.sender, each.recipient) == (target, agent)]
        for request in asked[:1]:
            self.settle_request(request)
        request_id = asked[0].request_id if asked else None
        sender = create_system_address(self.swarm.name)
        self.send_to_peer(swarm, sender, target, subject, body, request_id)

    def _contact(self, swarm: str) -> str:
        return format_agent_address(self.contacts[swarm].agent, swarm)

    def send_to_peer(
        self, swarm: str, sender: MAILAddress, agent: str, subject: Subject, body: str, request_id: str | None
    ) -> MAILMessage:
        payload = MAILResponse(
            task_id=self.task_id,
            request_id=request_id or self.clock.new_id(),
            sender=sender,
            recipient=create_agent_address(agent),
            subject=subject.value,
            body=body,
        )
        message = self.envelope("response", payload)
        self.send(message, (peer_mailbox(swarm),))
        return message

    def fail(self, reason: str, subject: Subject = Subject.TASK_ERROR) -> None:
        """End the task with an error."""
        self.move(Transition.FAIL)
        self.finish(create_system_address(self.swarm.name), subject, reason)

    def envelope(self, kind: MessageType, payload: MAILPayload) -> MAILMessage:
        """A message that is sent now."""
        return MAILMessage(id=self.clock.new_id(), timestamp=self.timestamp, msg_type=kind, message=payload)

    def seal(self) -> TaskChange:
        """The change, complete."""
        for message, mailboxes, extra in self._outgoing:
            self._deliver(message, mailboxes, extra)
        response = None
        if self._ending is not None:
            response, kind = self._ending
            if self.status is TaskStatus.COMPLETED:
                self._append_event(EventKind.NEW_MESSAGE, SENDING, {}, response)
            goes_on = self.status in (TaskStatus.COMPLETED, TaskStatus.FAILED)
            unread = self._unread() if goes_on else ()
            extra = {UNREAD_FROM: unread[0].seq} if unread else {}
            self._append_event(kind, response.message.body, extra, None)
            if unread:
                self._go_on()
        version = 0 if self._is_new else self.before.version
        task = self.before.model_copy(
            update={
                **self.updates,
                "requests": self.requests,
                "contacts": self.contacts,
                "hooks": call(self.hooks, self._events),
                "status": self.status,
                "updated": self.timestamp,
                "seq": self._seq,
                "version": version + 1,
                "pending": self._pending,
                "histories": self._histories,
            }
        )
        return TaskChange(
            task=task,
            expected_version=version,
            turn=self._turn,
            consumed=self._consumed,
            also_read=self._along,
            deliveries=tuple(self._deliveries),
            histories=tuple(self._records),
            events=tuple(self._events),
            response=response,
            ended=None if response is None else self.before.generation,
        )

    def _unread(self) -> tuple[Question, ...]:
        """The questions for which the task goes on; none where it has done so once, and has not read any."""
        questions: tuple[Question, ...] = self.updates.get("questions", self.before.questions)
        return () if self.updates.get("unheard", self.before.unheard) else questions

    def _go_on(self) -> None:
        """Somebody has written to the task who has not been read: begin the generation that answers them."""
        self.move(Transition.RESUME)
        self.updates |= self.before.next_generation() | {"unheard": True}
        if self.before.is_overdue(self.clock.now().timestamp()):
            self.updates["limits"] = self.before.limits.without_time()

    def _deliver(self, message: MAILMessage, mailboxes: Iterable[str], extra: dict[str, Any]) -> None:
        self._append_event(EventKind.NEW_MESSAGE, SENDING, extra, message)
        tier = tier_of(message)
        for mailbox in mailboxes:
            # what goes to another swarm arrives in the order in which it was sent, and is sorted there
            place = tier if peer_of(mailbox) is None else Tier.AGENT
            entry = InboxEntry(mailbox, place, self._seq, message)
            self._deliveries.append(entry)
            self._count(entry, +1)

    def _count(self, entry: InboxEntry, change: int) -> None:
        counts = list(self._pending.get(entry.mailbox, NO_MAIL))
        counts[entry.tier - 1] += change
        if any(counts):
            self._pending[entry.mailbox] = tuple(counts)
        else:
            self._pending.pop(entry.mailbox, None)

    def _append_event(
        self, kind: EventKind, text: str, extra: dict[str, Any], message: MAILMessage | None
    ) -> None:
        self._seq += 1
        self._events.append(
            Event(seq=self._seq, kind=kind, timestamp=self.timestamp, text=text, extra=extra, message=message)
        )

    def _broadcast(
        self, kind: MessageType, sender: MAILAddress, recipient: str, subject: Subject, body: str
    ) -> MAILMessage:
        payload = MAILBroadcast(
            task_id=self.task_id,
            broadcast_id=self.clock.new_id(),
            sender=sender,
            recipients=(create_agent_address(recipient),),
            subject=subject.value,
            body=body,
        )
        return self.envelope(kind, payload)


SENDING = "sending message:"
