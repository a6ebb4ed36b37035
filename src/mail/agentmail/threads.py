"""Threads: the messages of one bead in their order, what they come to, and who answered what."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from mail.agentmail.beads import Beads, BeadStatus
from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.filters import filter_pending
from mail.agentmail.kinds import MessageType


class Answering:
    """Reads messages one by one, and numbers them from 0. What one takes depends only on the requests still open."""

    def __init__(self) -> None:
        self._types: list[MessageType] = []
        self._help: dict[str, dict[int, str]] = {}
        self._spawn: dict[str, dict[int, None]] = {}
        self._open: dict[int, dict[int, str] | dict[int, None]] = {}

    def read(self, message: AgentMailMessage, thread_id: str, target: int | None) -> tuple[int, ...]:
        """Return the numbers of what the next message answers, which isn't open any more; first what it stands below.

        `target` is the number of the message that it says it replies to, if it does and that has been read.
        """
        found: list[int] = [] if target is None else [target]
        if message.type is MessageType.HELP_RESPONSE and not self._asks_for_help(target):
            waiting = self._help.get(thread_id, {})
            of_bead = (number for number, bead_id in waiting.items() if message.bead_id in ("", bead_id))
            found += [number for number in [next(of_bead, None)] if number is not None]
        elif message.type is MessageType.SPAWN_ACK:
            found += reversed(self._spawn.get(message.bead_id, {}))
        for number in found:
            self.close(number)
        self._note(message, thread_id)
        return tuple(dict.fromkeys(found))

    def close(self, number: int) -> None:
        """What has this number has been answered."""
        self._open.pop(number, {}).pop(number, None)

    def _asks_for_help(self, number: int | None) -> bool:
        return number is not None and self._types[number] is MessageType.HELP_REQUEST

    def _note(self, message: AgentMailMessage, thread_id: str) -> None:
        number = len(self._types)
        self._types.append(message.type)
        if message.type is MessageType.HELP_REQUEST:
            of_thread = self._help.setdefault(thread_id, {})
            of_thread[number] = message.bead_id
            self._open[number] = of_thread
        elif message.type is MessageType.SPAWN_REQUEST:
            of_issue = self._spawn.setdefault(message.bead_id, {})
            of_issue[number] = None
            self._open[number] = of_issue


class Summary(BeadStatus):
    """What a thread comes to: the state of its bead, and what is open.

    The bead is the first that a message of the thread names. `pending` are the ids of messages that still have to be
    acknowledged; `counts` are of messages by type; `participants` are senders, by their first message.
    """

    thread_id: str
    pending: tuple[str, ...] = ()
    counts: dict[MessageType, int] = Field(default_factory=dict)
    messages: int = 0
    participants: tuple[str, ...] = ()
    started_at: str = ""
    updated_at: str = ""


class Turn(BaseModel):
    """A message in a conversation: `level` 0, or one deeper than the message with the id `answers`."""

    model_config = ConfigDict(frozen=True)

    message: AgentMailMessage
    level: int = 0
    answers: str = ""


class Thread(BaseModel):
    """The messages of a thread, the oldest first."""

    model_config = ConfigDict(frozen=True)

    thread_id: str
    messages: tuple[AgentMailMessage, ...]

    @property
    def summary(self) -> Summary:
        """What the thread comes to."""
        beads = Beads()
        for message, answered in zip(self.messages, self._answered(), strict=True):
            beads.read(message, [self.messages[number] for number in answered])
        bead_id = next((message.bead_id for message in self.messages if message.bead_id), "")
        times = [message.timestamp for message in self.messages if message.timestamp]
        status = beads.status(bead_id)
        return Summary(
            **{name: getattr(status, name) for name in BeadStatus.model_fields},
            thread_id=self.thread_id,
            pending=tuple(message.id for message in filter_pending(self.messages)),
            counts=dict(Counter(message.type for message in self.messages)),
            messages=len(self.messages),
            participants=tuple(dict.fromkeys(message.sender for message in self.messages if message.sender)),
            started_at=times[0] if times else "",
            updated_at=times[-1] if times else "",
        )

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """The messages in their order, but each answer below what it answers."""
        targets = [next(iter(answered), None) for answered in self._answered()]
        below: dict[int | None, list[int]] = {}
        for number, target in enumerate(targets):
            below.setdefault(target, []).append(number)
        turns: list[Turn] = []
        waiting = [(number, 0) for number in reversed(below.get(None, []))]
        while waiting:
            number, level = waiting.pop()
            target = targets[number]
            answers = "" if target is None else self.messages[target].id
            turns.append(Turn(message=self.messages[number], level=level, answers=answers))
            waiting += [(answer, level + 1) for answer in reversed(below.get(number, []))]
        return tuple(turns)

    def _answered(self) -> list[tuple[int, ...]]:
        """Return the numbers of the messages that each one answers."""
        answering = Answering()
        by_id: dict[str, int] = {}
        found: list[tuple[int, ...]] = []
        for number, message in enumerate(self.messages):
            target = by_id.get(message.reply_to) if message.reply_to else None
            found.append(answering.read(message, self.thread_id, target))
            if message.id:
                by_id.setdefault(message.id, number)
        return found


def group_threads(messages: Iterable[AgentMailMessage]) -> dict[str, Thread]:
    """Return the threads of the messages by their ids, in the order in which they began.

    Messages are put in the order of their timestamps; one without follows what it came after. One that names neither a
    thread nor a bead goes with the message that it answers, and if it answers none, with the others of its kind in the
    thread "".
    """
    threads: dict[str, list[AgentMailMessage]] = {}
    thread_of: dict[str, str] = {}
    for message in _in_time(messages):
        thread_id = message.thread or thread_of.get(message.reply_to, "")
        if message.id:
            thread_of[message.id] = thread_id
        threads.setdefault(thread_id, []).append(message)
    return {
        thread_id: Thread(thread_id=thread_id, messages=tuple(found)) for thread_id, found in threads.items()
    }


def _in_time(messages: Iterable[AgentMailMessage]) -> list[AgentMailMessage]:
    last = datetime.min.replace(tzinfo=UTC)
    placed = [(last := message.sent_at or last, message) for message in messages]
    return [message for _, message in sorted(placed, key=lambda pair: pair[0])]
