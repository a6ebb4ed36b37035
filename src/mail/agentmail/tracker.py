"""Tracking the messages of a task as they arrive: the work of each agent, open requests, the state of each bead.

A message is acknowledged by an answer (`mail.agentmail.threads`; a MAIL response answers the request with its
`request_id`), or by `acknowledge`. An answer also unblocks a stuck bead; `acknowledge` doesn't. Either accepts an
offer.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from mail.agentmail.beads import Beads, BeadStatus
from mail.agentmail.envelope import ACK_WITHIN, AgentMailMessage, Envelope, envelope_of, filter_overdue
from mail.agentmail.messages import Checkpoint, MessageType
from mail.agentmail.parser import Parser, UnknownMessage
from mail.agentmail.threads import AnswerMatcher, Thread
from mail.core.protocol.message import MAILMessage, MAILRequest, MAILResponse


class Tracker:
    """Reads messages in order, each in constant time. It has no clock and does no I/O.

    The default parser recognizes a type only in subjects that contain nothing but a type and a bead, as agents also
    exchange ordinary messages.
    """

    def __init__(self, *, parser: Parser | None = None, ack_within: timedelta = ACK_WITHIN) -> None:
        self._parser = parser or Parser(exact_subjects=True)
        self._ack_within = ack_within
        self._messages: list[AgentMailMessage] = []
        self._numbers: dict[str, int] = {}
        self._threads: dict[str, list[int]] = {}
        self._requests: dict[str, int] = {}
        self._early_answers: dict[str, AgentMailMessage] = {}
        self._pending: dict[int, None] = {}
        self._matcher = AnswerMatcher()
        self._beads = Beads()

    def add(self, message: MAILMessage | Envelope, *, closed: bool = False) -> AgentMailMessage | None:
        """Read the next message; return None for a repeated id.

        A `closed` message expects no answer, because its task has ended. The thread of a MAIL message is
        `routing_info["thread_id"]`, else its bead's, else that of the request it answers, else its task's. For a
        message of no type, the request that it answers comes before the bead that its subject replies to.
        """
        payload = message.message if isinstance(message, MAILMessage) else None
        envelope = message if isinstance(message, Envelope) else envelope_of(message)
        if envelope.id and envelope.id in self._numbers:
            return None
        read = envelope if isinstance(envelope, AgentMailMessage) else self._parser.parse(envelope)
        target = self._numbers.get(read.reply_to)
        if isinstance(payload, MAILResponse):
            target = self._requests.get(payload.request_id)
        replied = None if target is None else self._messages[target]
        is_typed = read.type is not MessageType.UNKNOWN
        thread_id = (
            (read.thread if is_typed else read.thread_id)
            or (replied.thread_id if replied else "")
            or read.bead_id
            or (payload.task_id if payload else "")
        )
        read = read.place(thread_id, closed=closed or read.closed)
        answered, settled = self._matcher.read(read, thread_id, target)
        if answered and not read.reply_to:
            read = read.answer(self._messages[answered[0]].id)
        number = self._keep(read)
        for each in answered:
            self._acknowledge(each, read.sender)
        for each in settled:
            self._close(each)
        self._beads.read(read, [self._messages[each] for each in answered])
        if read.is_pending:
            self._pending[number] = None
        match payload:
            case MAILRequest(request_id=request_id):
                self._requests[request_id] = number
                if request_id in self._early_answers:
                    self._answer(number, self._early_answers.pop(request_id))
            case MAILResponse(request_id=request_id) if target is None:
                self._early_answers[request_id] = read
        return self._messages[number]

    def extend(self, messages: Iterable[MAILMessage | Envelope]) -> None:
        """Read more messages."""
        for message in messages:
            self.add(message)

    def acknowledge(self, message_id: str, by: str) -> AgentMailMessage:
        """Mark a message as acknowledged; a second time has no effect. Raises UnknownMessage."""
        if message_id not in self._numbers:
            raise UnknownMessage(f"no message with the id {message_id!r} has been read")
        number = self._numbers[message_id]
        self._acknowledge(number, by)
        self._beads.acknowledge(self._messages[number])
        return self._messages[number]

    def pending(self) -> list[AgentMailMessage]:
        """Return the messages that still have to be acknowledged, in the order read."""
        return [self._messages[number] for number in self._pending]

    def overdue(self, now: datetime) -> list[AgentMailMessage]:
        """Return the pending messages past their deadline."""
        return filter_overdue(self.pending(), now, self._ack_within)

    def who_works_on_what(self) -> dict[str, tuple[str, ...]]:
        """Return the beads that each worker works on."""
        return self._beads.workers()

    def beads(self) -> dict[str, BeadStatus]:
        """Return the status of each bead."""
        return self._beads.all()

    def last_checkpoint(self, bead_id: str) -> Checkpoint | None:
        """Return the last checkpoint of a bead, left by a worker for its successor."""
        return self._beads.status(bead_id).checkpoint

    def threads(self) -> dict[str, Thread]:
        """Return all threads, each in the order read."""
        return {thread_id: self.thread(thread_id) for thread_id in self._threads}

    def thread(self, thread_id: str) -> Thread:
        """Return one thread, which may be empty."""
        found = (self._messages[number] for number in self._threads.get(thread_id, ()))
        return Thread(thread_id=thread_id, messages=tuple(found))

    def _keep(self, read: AgentMailMessage) -> int:
        number = len(self._messages)
        self._messages.append(read)
        if read.id:
            self._numbers[read.id] = number
        self._threads.setdefault(read.thread_id, []).append(number)
        return number

    def _answer(self, number: int, answer: AgentMailMessage) -> None:
        self._matcher.close(number)
        self._acknowledge(number, answer.sender)
        self._beads.read_answer(self._messages[number], answer)

    def _close(self, number: int) -> None:
        message = self._messages[number]
        self._messages[number] = message.place(message.thread_id, closed=True)
        self._pending.pop(number, None)

    def _acknowledge(self, number: int, by: str) -> None:
        self._messages[number] = self._messages[number].acknowledge(by)
        self._pending.pop(number, None)
