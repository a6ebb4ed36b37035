"""A task under change: collects the effects of one decision and seals them into a TaskChange.

Order inside a commit: the actions of agents, then the messages sent, then which of them go to other swarms, then the
end of the task. A message has the seq of the event that announces it, so one gapless sequence numbers both events and
mail.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor

from mail.core.protocol.address import (
    EVERYONE,
    MAILAddress,
    Principal,
    create_agent_address,
    create_system_address,
    join_agent_address,
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
from mail.core.protocol.xml import render_message
from mail.core.task.approvals import NO_ASKS
from mail.core.task.change import HistoryRecord, InboxEntry, Inheritance, TaskChange, Turn
from mail.core.task.context import UNKNOWN, AgentContext, Cut, Preparation
from mail.core.task.costs import NO_USAGE, Usage, add_models
from mail.core.task.events import Event, EventKind, encode_events
from mail.core.task.extras import NO_EXTRA, DeadLetterExtra, EndExtra, Extra, MessageExtra
from mail.core.task.fallback import Switch
from mail.core.task.files import NO_FILES, attach
from mail.core.task.interswarm import Answer, OpenRequest, Peer, UnreadQuestion
from mail.core.task.leases import Claim
from mail.core.task.limits import ANSWER_SECONDS, BROADCAST_SECONDS, DEAD_LETTERS, OPEN_REQUESTS, Limits
from mail.core.task.mailboxes import agent_of, peer_mailbox, peer_of
from mail.core.task.members import member_of
from mail.core.task.schedules import ScheduleState
from mail.core.task.size import message_size
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import (
    ENDED,
    LIFECYCLE,
    NO_MAIL,
    Cancellation,
    Generation,
    Share,
    Task,
    TaskStatus,
    Transition,
    state_of,
)
from mail.core.task.timers import Timer, timer_id
from mail.core.task.turn_state import Breakpoint, Prepaid, Resumption
from mail.core.task.waits import Wait, Waits
from mail.core.task.webhooks import TaskWebhook, add_events
from mail.errors import Subject


class Draft:
    """The working copy of a task during one decision.

    Decisions assign the attributes below, which are the fields of `Task` that they may change. `seal` turns them, and
    everything sent and emitted, into the change.

    Attributes:
        before: the task as it was.
        files: the files of the task that the decision may send, by id.
    """

    # The dictionary of a draft is a copy of the task's, and becomes the next one's; what else it needs has slots.
    # To copy the fields one by one, there and back, costs 4 % of a turn.
    __slots__ = (
        "__dict__",
        "_also_read",
        "_consumed",
        "_deliveries",
        "_ending",
        "_events",
        "_outgoing",
        "_records",
        "_to_peers",
        "_turn",
        "_waits",
        "before",
        "clock",
        "files",
        "swarm",
        "timestamp",
    )

    status: TaskStatus
    entrypoint: str
    contributors: tuple[str, ...]
    limits: Limits
    generation: Generation
    requests: tuple[OpenRequest, ...]
    unread_questions: tuple[UnreadQuestion, ...]
    resumptions: tuple[Resumption, ...]
    approved_calls: tuple[Breakpoint, ...]
    peers: Mapping[str, Peer]
    received: tuple[str, ...]
    usage: dict[str, Usage]
    models: dict[str, Usage]
    prepaid: dict[str, Prepaid]
    switches: dict[str, Switch]
    manual: bool
    cancellation: Cancellation | None
    webhooks: Mapping[str, TaskWebhook]
    dead_letters: tuple[int, ...]
    contexts: dict[str, AgentContext]
    waits: Waits
    pending: dict[str, tuple[int, ...]]
    histories: dict[str, int]
    seq: int
    schedule: ScheduleState | None
    queued: tuple[str, ...]
    shares: tuple[Share, ...]
    stored_bytes: int
    history_bytes: int

    def __init__(self, task: Task, swarm: SwarmCore, clock: Clock) -> None:
        self.__dict__ = vars(task).copy()
        self.before = task
        self.swarm = swarm
        self.clock = clock
        self.files = NO_FILES
        self.timestamp = clock.now().isoformat()
        self.pending = dict(task.pending)
        self.histories = dict(task.histories)
        self._events: list[Event] = []
        self._outgoing: list[tuple[MAILMessage, Sequence[str], Extra]] = []
        self._deliveries: list[InboxEntry] = []
        self._to_peers: list[tuple[str, MAILMessage]] = []
        self._records: list[HistoryRecord] = []
        self._ending: tuple[MAILMessage, EventKind, int] | None = None
        self._turn: Claim | None = None
        self._consumed: InboxEntry | None = None
        self._also_read: tuple[InboxEntry, ...] = ()
        self._waits: tuple[Wait, ...] = ()

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.before.task_id

    @property
    def last_seq(self) -> int:
        """The seq of the last event or message so far."""
        return self.seq + len(self._outgoing)

    @property
    def is_running(self) -> bool:
        """Whether the task still runs, as decided so far."""
        return self.status is TaskStatus.RUNNING

    @property
    def has_mail(self) -> bool:
        """Whether any mailbox of the task will contain mail that somebody reads before others have acted."""
        if self.swarm.copies:
            return not self.pending.keys() <= {*self._queue()} or any(each for _, each, _ in self._outgoing)
        return bool(self._outgoing or self.pending)

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended, as decided so far."""
        return self.status in ENDED

    def wakes(self, mailbox: str) -> bool:
        """Return whether this commit puts mail into a mailbox."""
        return any(mailbox in mailboxes for _, mailboxes, _ in self._outgoing)

    def has_mail_for(self, mailbox: str) -> bool:
        """Return whether a mailbox will contain mail."""
        return mailbox in self.pending or self.wakes(mailbox)

    def end_turn(self, turn: Turn, *, consume: bool) -> None:
        """End `turn` with this commit; with `consume`, its message leaves the mailbox."""
        self._turn = turn
        if consume:
            self._consumed, self._also_read = turn.entry, turn.also_read
            self._count(turn.entry, -1)
            for entry in turn.also_read:
                self._count(entry, -1)
            if self.resumptions or self.unread_questions:
                self._mark_read({(entry.mailbox, entry.seq) for entry in (turn.entry, *turn.also_read)})

    def end_claim(self, claim: Claim) -> None:
        """End a claim that consumes no message with this commit."""
        self._turn = claim

    def charge(self, mailbox: str, usage: Usage, models: Mapping[str, Usage]) -> None:
        """Charge the task for the models of a mailbox's agent, in total and by model."""
        agent = agent_of(mailbox)
        self.usage = {**self.usage, agent: self.usage.get(agent, NO_USAGE) + usage}
        self.models = add_models(self.models, models)
        self.generation = replace(self.generation, spent=self.generation.spent + usage)

    def add_unread_question(self, mailbox: str, seq: int) -> None:
        """Note a question that must be read before the task's answer counts as its answer."""
        self.unread_questions = (*self.unread_questions, UnreadQuestion(mailbox=mailbox, seq=seq))

    def _mark_read(self, read: set[tuple[str, int]]) -> None:
        self.resumptions = tuple(each for each in self.resumptions if (each.agent, each.seq) not in read)
        left = tuple(each for each in self.unread_questions if (each.mailbox, each.seq) not in read)
        if len(left) < len(self.unread_questions):
            self.unread_questions = left
            self.generation = replace(self.generation, answers_unread=False)

    def emit(
        self, kind: EventKind, text: str, extra: Extra = NO_EXTRA, message: MAILMessage | None = None
    ) -> None:
        """Add an event; its `extra` is of a class of its kind (`mail.core.task.events.EXTRAS`)."""
        self.seq = seq = self.seq + 1
        self._events.append(Event(seq, kind, self.timestamp, text, extra, message))

    def emit_result(self, kind: EventKind, text: str, extra: Extra) -> None:
        """Add an event with what has become of an action of the agent in `extra`."""
        self.emit(kind, f"{kind.value.replace('_', ' ')} (caller = {extra.agent}):\n{text}", extra)

    def send(
        self, message: MAILMessage, readers: Sequence[str], extra: MessageExtra | None = None
    ) -> Sequence[str]:
        """Send a message to mailboxes, and return those: a copy's in place of its agent's (`mailboxes_of`)."""
        if self.swarm.copies:
            mailboxes = list[str]()
            for reader in readers:
                mailboxes += (found := self.mailboxes_of(reader, message.msg_type))
                if message.msg_type == "request" and reader not in found:
                    self._begin_copy(*found)
            readers = mailboxes
        return self.put(message, readers, extra)

    def put(
        self, message: MAILMessage, mailboxes: Sequence[str], extra: MessageExtra | None = None
    ) -> Sequence[str]:
        """Put a message into these mailboxes, with the files that it mentions; one event announces it, with `extra`."""
        if self.files:
            message = attach(message, self.files)
        if self.swarm.copies and (copies := [each for each in mailboxes if agent_of(each) != each]):
            extra = replace(extra or MessageExtra(), copies=copies)
        self._outgoing.append((message, mailboxes, extra or NO_EXTRA))
        return mailboxes

    def mailboxes_of(self, reader: str, kind: MessageType) -> Sequence[str]:
        """Return which mailboxes get a message for `reader`: its own, unless it is an agent with copies.

        A request is for a copy that is free; if none is, or other requests wait already, it waits in the agent's own
        mailbox. Interrupts and broadcasts are for the copies that are at work, without the one that sends them; other
        mail for an agent, which answers no request of a copy, is for none.
        """
        if self.manual or not self.swarm.hands_over(reader, self.entrypoint):
            return (reader,)
        if kind == "request":
            return (reader if self.has_mail_for(reader) else self.free_copy(reader) or reader,)
        if kind == "response":
            return ()
        at_work = self._at_work()
        if self._turn is not None:
            at_work.discard(self._turn.mailbox)
        return [copy for copy in self.swarm.copies[reader] if copy in at_work]

    def free_copy(self, agent: str) -> str | None:
        """Return a copy of an agent that has nothing to do; None if all are at work."""
        at_work = self._at_work()
        if self._turn is not None:  # its history grows with this commit
            at_work.add(self._turn.mailbox)
        return next((copy for copy in self.swarm.copies[agent] if copy not in at_work), None)

    def hand_over(self, entry: InboxEntry, copy: str) -> None:
        """Give a message that leaves its agent's mailbox to a copy, under the seq that it has."""
        self._begin_copy(copy)
        self._deliveries.append(delivery := InboxEntry(copy, entry.tier, entry.seq, entry.message))
        self._count(delivery, +1)

    def _at_work(self) -> set[str]:
        """Return the mailboxes with mail, an open request, what is to come later, or a call that waits for a person."""
        names = {*self.pending, *self.waits.calls, *self.waits.reminders}
        for request in self.requests:
            names |= {request.sender, request.recipient}
        for _, mailboxes, _ in self._outgoing:
            names.update(mailboxes)
        paused_at = self.generation.breakpoint
        return names | {each.agent for each in (paused_at, *self.approved_calls) if each is not None}

    def _queue(self) -> tuple[str, ...]:
        """Return the agents whose mail waits, as all of their copies are at work."""
        waiting = [
            agent
            for agent in self.pending.keys() & self.swarm.copies.keys()
            if not self.manual and self.swarm.hands_over(agent, self.entrypoint)
        ]
        at_work = self._at_work() if waiting else set()
        return tuple(sorted(agent for agent in waiting if at_work.issuperset(self.swarm.copies[agent])))

    def _begin_copy(self, mailbox: str) -> None:
        """Let a copy begin a request with an empty history: from now on it reads nothing of earlier ones."""
        if (n := self.histories.get(mailbox, 0)) > 0:
            context = self.contexts.get(mailbox, UNKNOWN)
            cut = replace(context, cut=Cut(begin=n + 1), tokens=0, counted=0)
            self.contexts = {**self.contexts, mailbox: cut}
        generation = self.generation
        if not (generation.faults or generation.failing_calls or generation.pins):
            return
        self.generation = replace(
            generation,
            faults={name: count for name, count in generation.faults.items() if name != mailbox},
            failing_calls=tuple(each for each in generation.failing_calls if each.agent != mailbox),
            pins={name: pins for name, pins in generation.pins.items() if name != mailbox},
        )

    def writer_of(self, message: MAILMessage) -> str:
        """Return the mailbox of the agent that wrote a message: a copy's as long as its request is open."""
        sender, request_id = message.sender.address, message.message.own_id
        asked = (request.sender for request in self.requests if request.request_id == request_id)
        return next((each for each in asked if agent_of(each) == sender), sender)

    def tell(self, agent: str, subject: Subject, body: str, extra: MessageExtra | None = None) -> None:
        """Send an agent a response from the system; its event has `extra`."""
        agent = self._reader(agent, "response")
        payload = MAILResponse.trusted(
            task_id=self.task_id,
            request_id=self.clock.new_id(),
            sender=create_system_address(self.swarm.name),
            recipient=create_agent_address(agent_of(agent)),
            subject=subject.value,
            body=body,
        )
        self.send(self.envelope("response", payload), (agent,), extra)

    def announce(self, agent: str, subject: Subject, body: str) -> None:
        """Send an agent a broadcast from the system."""
        agent = self._reader(agent, "broadcast")
        self.send(
            self._broadcast(
                "broadcast", create_system_address(self.swarm.name), agent_of(agent), subject, body
            ),
            (agent,),
        )

    def _reader(self, agent: str, kind: MessageType) -> str:
        """Return who reads mail of the system for an agent: the entrypoint, if the agent has copies and none is meant.

        So it is for what began before the agent had copies.
        """
        return agent if not self.swarm.copies or self.mailboxes_of(agent, kind) else self.entrypoint

    def note_resumption(self, agent: str, *, to_come: int = 0) -> None:
        """Note that the last message resumes an agent, whose history has the results of its breakpoint.

        `to_come` is the number of portions with results that follow before the agent takes a turn.
        """
        portions = self.histories[agent] + to_come
        resumption = Resumption(seq=self.last_seq, agent=agent, portions=portions)
        self.resumptions = (*self.resumptions, resumption)

    def dead_letter(
        self,
        mailbox: str,
        reason: str,
        attempts: int,
        *,
        message: MAILMessage | None,
        message_seq: int | None,
        upto: int | None = None,
    ) -> int:
        """Add a dead letter: mail that leaves its mailbox unprocessed, after so many attempts. Return its seq.

        `message_seq` is the seq of the message; without a `message`, that of the first event not delivered, of those
        `upto` another. A message that no event has announced (`message_seq` is None) is stored with the dead letter.
        """
        what = "events" if message is None else f"{message.message.subject!r} of {message.sender.address}"
        self.emit(
            EventKind.DEAD_LETTER,
            f"dead letter: {what} for {mailbox} could not be processed: {reason}",
            DeadLetterExtra(
                agent=mailbox if self.swarm.has(mailbox) else "",
                mailbox=mailbox,
                reason=reason,
                attempts=attempts,
                message_seq=message_seq,
                message_id="" if message is None else message.id,
                msg_type="" if message is None else message.msg_type,
                sender="" if message is None else message.sender.address,
                subject="" if message is None else message.message.subject,
                upto=upto,
            ),
            message if message_seq is None else None,
        )
        self.dead_letters = (*self.dead_letters, self.seq)[-DEAD_LETTERS:]
        return self.seq

    def open_request(self, request: OpenRequest) -> None:
        """Note that a request waits for its answer."""
        self.requests = (*self.requests, request)[-OPEN_REQUESTS:]

    def open_broadcast(self, message: MAILMessage, swarm: str) -> None:
        """Note that the agents of another swarm may answer a broadcast, for a while."""
        self.open_request(
            OpenRequest(
                request_id=message.message.own_id,
                sender=message.sender.address,
                recipient=join_agent_address(EVERYONE, swarm),
                answer_deadline=self.time_in(BROADCAST_SECONDS),
            )
        )

    def answer_deadline(self, target: str) -> float | None:
        """Return when a request to an agent expires: to one of this swarm, never."""
        peer = parse_agent_address(target)[1]
        if peer is None:
            return None
        is_member = member_of(peer) is not None
        return self.time_in(self.swarm.member_days * 86_400.0 if is_member else ANSWER_SECONDS)

    def time_in(self, seconds: float) -> float:
        """Return the time so many seconds from now, in seconds since the epoch."""
        return self.clock.now().timestamp() + seconds

    def close_request(self, request: OpenRequest) -> None:
        """Note that a request no longer waits for an answer."""
        self.requests = tuple([other for other in self.requests if other is not request])

    def drop_requests(self, kept: tuple[OpenRequest, ...] = ()) -> None:
        """Drop the open requests, except `kept`; peers may still answer them, and members hear that they need not."""
        for request in self.requests:
            if request in kept:
                continue
            self.note_unanswered(request)
            if (peer := request.recipient_swarm) is not None and member_of(peer) is not None:
                sender, subject = create_system_address(self.swarm.name), Subject.TASK_COMPLETE
                self.send_to_peer(peer, sender, request.recipient, subject, NOT_NEEDED, request.request_id)
        self.requests = kept

    def note_unanswered(self, request: OpenRequest) -> None:
        """Note that a request is no longer open although the peer may answer it yet."""
        swarm = request.recipient_swarm
        if swarm is not None and swarm in self.peers:
            peer = self.peers[swarm]
            self.peers = {**self.peers, swarm: replace(peer, unanswered=peer.unanswered + 1)}

    def add_peer(self, swarm: str, agent: str, *, has_task: bool = False) -> None:
        """Add another swarm to the task; the first agent of it stays its address."""
        peer = self.peers.get(swarm) or Peer(agent=agent)
        if has_task and not peer.has_task:
            peer = replace(peer, has_task=True)
        self.peers = {**self.peers, swarm: peer}

    def remember(self, agent: str, entries: History) -> None:
        """Append to an agent's history: of the agent whose turn ends, or of any agent in a new task."""
        n = self.histories.get(agent, 0) + 1
        self.histories[agent] = n
        self._records.append(HistoryRecord(agent, n, entries))

    def prepare(self, agent: str, preparation: Preparation, prompts: int) -> None:
        """Store what the turn has done to its agent's context, and add what it carries to what the turn remembers.

        `prompts` is the size of what the model has counted of that already.
        """
        if preparation.carried and not self._records:
            self.remember(agent, [])
        context = preparation.context
        if self._records:
            record = self._records[-1]
            context = context.after(record.n, len(record.encoded) - prompts)
            if preparation.carried:
                entries = [*record.entries, *preparation.carried]
                self._records[-1] = HistoryRecord(agent, record.n, entries)
        self.contexts = {**self.contexts, agent: context}

    def inherit(self, inheritance: Inheritance) -> None:
        """Take over histories of another task, which the store copies (`TaskChange.inherits`)."""
        self.stored_bytes += inheritance.size
        self.history_bytes += inheritance.size
        self.histories = {**inheritance.portions, **self.histories}

    def portions(self, agent: str) -> int:
        """Return how many portions the history of an agent has."""
        return self.histories.get(agent, 0)

    def move(self, transition: Transition) -> None:
        """Apply a transition of the lifecycle; the end of the task cancels its open calls and reminders.

        A caller's messages that are not due yet stay, unless it cancels the task.
        """
        self.status = LIFECYCLE[self.status, transition]
        if self.waits.due is not None and self.has_ended:
            self.waits = self.waits.dropped(messages=transition is Transition.CANCEL)

    def keep_wait(self, wait: Wait) -> None:
        """Store the record of a call that finishes later, or of a timer."""
        self._waits = (*self._waits, wait)

    def set_timer(self, timer: Timer) -> Timer:
        """Have a timer's mail sent when it is due; return the timer as it is stored, with its id."""
        due = floor(timer.due * 1000) / 1000  # as exact as the id
        new_id, place = timer_id(due, self.clock.new_id()), (self.before.seq, self.waits.epoch)
        timer = replace(timer, id=new_id, due=due, seq=place[0], epoch=place[1])
        self.waits = self.waits.added(timer)
        self.stored_bytes += timer.size
        self.keep_wait(timer)
        return timer

    def end_timer(self, timer: Timer, *, is_open: bool = True) -> None:
        """Delete a timer that has fired or is cancelled; one that is not open has been dropped from the count."""
        self.keep_wait(timer.ended())
        self.stored_bytes -= timer.size
        if is_open:
            self.waits = self.waits.removed(timer)

    def finish(
        self, sender: MAILAddress, subject: Subject, body: str, message: MAILMessage | None = None
    ) -> None:
        """End this generation with a finishing message; call `move` first."""
        message = message or self._broadcast("broadcast_complete", sender, EVERYONE, subject, body)
        self.end_with(message)
        if self.before.parent_swarm is not None:
            done = self.status is TaskStatus.COMPLETED
            self._answer_parent(
                self.before.parent_swarm, message, Subject.INTERSWARM_TASK_COMPLETE if done else subject
            )
        elif not self._is_paused:
            self.tell_peers(message)
        if not self._is_paused:
            self.drop_requests(tuple(request for request in self.requests if self._is_unread(request)))

    def stop(self, sender: MAILAddress, subject: Subject, reason: str, *, answers: bool) -> None:
        """End the task from outside; with `answers`, its caller still waits for this generation's answer."""
        message = self._broadcast("broadcast_complete", sender, EVERYONE, subject, reason)
        if answers:
            self.finish(sender, subject, reason, message)
        else:
            self.tell_peers(message)
            self.drop_requests()

    def end_with(self, message: MAILMessage) -> None:
        """End this generation with a finishing message that is not sent to other swarms."""
        if self.files:
            message = attach(message, self.files)
        failed = self.status in (TaskStatus.FAILED, TaskStatus.CANCELLED)
        kind = EventKind.TASK_ERROR if failed else EventKind.TASK_COMPLETE
        self._ending = (message, kind, self.generation.number)

    @property
    def owner_address(self) -> MAILAddress:
        """The address of the task's owner."""
        return Principal.parse(self.before.owner).address

    @property
    def _is_paused(self) -> bool:
        return self.status is TaskStatus.PAUSED

    def _is_unread(self, request: OpenRequest) -> bool:
        """Return whether it joined the running task and has not been read; the next generation answers it."""
        return request.seq > 0 and any(question.seq == request.seq for question in self._unread())

    def _answer_parent(self, swarm: str, message: MAILMessage, subject: Subject) -> None:
        """Answer all requests of the parent swarm with the outcome of its task here."""
        waiting = [
            request
            for request in self.requests
            if request.sender_swarm == swarm and not self._is_unread(request)
        ]
        ends: list[tuple[str, str | None]] = [(request.sender, request.request_id) for request in waiting]
        for request in waiting:
            self.close_request(request)
        for agent, request_id in ends or [(self._peer_address(swarm), None)]:
            self.send_to_peer(swarm, message.sender, agent, subject, message.message.body, request_id)

    def tell_peers(self, message: MAILMessage, *, but: str | None = None) -> None:
        """Tell the other swarms that have the task, or will have it, that it is over; except `but`.

        An outcome that came from another swarm is passed on by the person who owns the task, or by this swarm.
        """
        sender, here = message.sender, self.swarm.name
        if (sender.address if sender.address_type == "system" else sender.swarm or here) != here:
            is_asked = self.before.parent_swarm is not None
            sender = create_system_address(here) if is_asked else self.owner_address
        for swarm, peer in list(self.peers.items()):
            mailbox = peer_mailbox(swarm)
            if (
                swarm == but
                or member_of(swarm) is not None
                or not (peer.has_task or mailbox in self.pending or self.wakes(mailbox))
            ):
                continue
            sent = self.send_to_peer(
                swarm,
                sender,
                self._peer_address(swarm),
                Subject.TASK_COMPLETE,
                message.message.body,
                None,
            )
            self.peers = {**self.peers, swarm: replace(peer, end_message=sent.id)}

    def answer_owner(
        self, sender: MAILAddress, body: str, *, message: MAILMessage | None = None, failed: bool = False
    ) -> None:
        """Add a remote agent's answer to the owner; the last one that the owner waits for ends the task."""
        answers = (*self.generation.answers, Answer(sender=sender.address, body=body))
        if any(not request.sender for request in self.requests):
            self.generation = replace(self.generation, answers=answers)
        elif not self.is_running:
            return
        elif len(answers) > 1:
            self.move(Transition.COMPLETE)
            text = "\n\n".join(f"{answer.sender}: {answer.body}" for answer in answers)
            self.finish(create_system_address(self.swarm.name), Subject.INTERSWARM_TASK_COMPLETE, text)
        elif failed:
            self.fail(body)
        else:
            self.move(Transition.COMPLETE)
            self.finish(sender, Subject.INTERSWARM_TASK_COMPLETE, body, message)

    def reply_elsewhere(self, target: str, agent: str, subject: Subject, body: str) -> None:
        """Answer what a remote agent has written to `agent`."""
        swarm = parse_agent_address(target)[1]
        assert swarm is not None
        asked = [each for each in self.requests if (each.sender, each.recipient) == (target, agent)]
        for request in asked[:1]:
            self.close_request(request)
        request_id = asked[0].request_id if asked else None
        sender = create_system_address(self.swarm.name)
        self.send_to_peer(swarm, sender, target, subject, body, request_id)

    def _peer_address(self, swarm: str) -> str:
        return join_agent_address(self.peers[swarm].agent, swarm)

    def send_to_peer(
        self, swarm: str, sender: MAILAddress, agent: str, subject: Subject, body: str, request_id: str | None
    ) -> MAILMessage:
        """Send a response to an agent of another swarm."""
        payload = MAILResponse.trusted(
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
        """Return a message that is sent now."""
        return MAILMessage.trusted(
            message_id=self.clock.new_id(), timestamp=self.timestamp, msg_type=kind, message=payload
        )

    def seal(self) -> TaskChange:
        """Return the complete change."""
        for message, mailboxes, extra in self._outgoing:
            self._deliver(message, mailboxes, extra)
        for swarm, message in self._to_peers:
            self._announce_to_peer(swarm, message)
        response = ended = None
        if self._ending is not None:
            response, kind, ended = self._ending
            self.stored_bytes += message_size(response)
            if self.status is TaskStatus.COMPLETED:
                self.emit(EventKind.NEW_MESSAGE, SENDING, message=response)
            may_continue = self.status in (TaskStatus.COMPLETED, TaskStatus.FAILED)
            unread = self._unread() if may_continue else ()
            question = self.generation.question if self._is_paused else None
            unread_from = unread[0].seq if unread else None
            end = EndExtra(unread_from=unread_from, question=question) if unread or question else NO_EXTRA
            self.emit(kind, response.message.body, end)
            if unread:
                self._answer_unread()
        events = encode_events(self._events)
        remembered = 0
        for record in self._records:
            remembered += len(record.encoded)
        if self.webhooks:
            self.webhooks = add_events(self.webhooks, self._events, self.before.generation.run)
        if self.swarm.copies or self.queued:
            self.queued = self._queue()
        facts = {
            **vars(self),
            "updated": self.timestamp,
            "version": self.before.version + 1,
            "stored_bytes": self.stored_bytes + len(events) + remembered,
            "history_bytes": self.history_bytes + remembered,
        }
        task = state_of(Task, facts)
        change = TaskChange(
            task=task,
            expected_version=self.before.version,
            turn=self._turn,
            consumed=self._consumed,
            also_read=self._also_read,
            deliveries=tuple(self._deliveries),
            histories=tuple(self._records),
            events=tuple(self._events),
            encoded_events=events,
            waits=self._waits,
            response=response,
            ended=ended,
        )
        if (self.generation.breakpoint or self.before.generation.breakpoint) is None:
            return change
        asked = self.before.asks if self.before.version else NO_ASKS
        return replace(change, asks=task.asks - asked, unasks=asked - task.asks)

    def _unread(self) -> tuple[UnreadQuestion, ...]:
        """Return the questions that need another generation; none if this one was begun for them and read none."""
        return () if self.generation.answers_unread else self.unread_questions

    def _answer_unread(self) -> None:
        """Begin the generation that answers the unread questions."""
        self.move(Transition.RESUME)
        self.generation = self.generation.next(
            continues=True,
            answers_unread=True,
            joined=len(self.unread_questions) - 1,
            output_schema=self.generation.output_schema,
        )
        if self.before.is_overdue(self.clock.now().timestamp()):
            self.limits = self.before.limits.without_time()

    def _deliver(self, message: MAILMessage, mailboxes: Iterable[str], extra: Extra) -> None:
        self.emit(EventKind.NEW_MESSAGE, SENDING, extra, message)
        tier = tier_of(message)
        for mailbox in mailboxes:
            local_tier = tier
            if (swarm := peer_of(mailbox)) is not None:
                local_tier = Tier.AGENT  # it arrives in the order in which it was sent, and is sorted there
                if swarm:
                    self._to_peers.append((swarm, message))
            entry = InboxEntry(mailbox, local_tier, self.seq, message)
            self._deliveries.append(entry)
            self._count(entry, +1)

    def _announce_to_peer(self, swarm: str, message: MAILMessage) -> None:
        """Record mail to another swarm where it is sent, so that no answer and no end of the task comes before it."""
        peer = self.before.peers.get(swarm)
        if (name := member_of(swarm)) is not None:
            self.emit(EventKind.INTERSWARM_MESSAGE_SENT, f"sent mail to {name}:\n{render_message(message)}")
            return
        way = "back" if peer is not None and peer.has_task else "forward"
        text = f"sent interswarm message {way} to swarm {swarm}:\n{render_message(message)}"
        self.emit(EventKind.INTERSWARM_MESSAGE_SENT, text)

    def _count(self, entry: InboxEntry, change: int) -> None:
        mailbox, pending = entry.mailbox, self.pending
        counts = [*pending.get(mailbox, NO_MAIL)]
        counts[entry.tier - 1] += change
        if any(counts):
            pending[mailbox] = tuple(counts)
        else:
            pending.pop(mailbox, None)

    def _broadcast(
        self, kind: MessageType, sender: MAILAddress, recipient: str, subject: Subject, body: str
    ) -> MAILMessage:
        payload = MAILBroadcast.trusted(
            task_id=self.task_id,
            broadcast_id=self.clock.new_id(),
            sender=sender,
            recipients=(create_agent_address(recipient),),
            subject=subject.value,
            body=body,
        )
        return self.envelope(kind, payload)


SENDING = "sending message:"

NOT_NEEDED = "No answer is needed any more: the task in which you were asked has ended."
