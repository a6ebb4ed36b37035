"""Threads: the messages about one bead in order, their summary, and which message answers which.

| a message | answers |
| --- | --- |
| with `reply_to` | that message |
| HELP_RESPONSE | the oldest open HELP_REQUEST in its thread: of the bead that it names, if any |
| SPAWN_ACK, BEAD_ACCEPTED | all open SPAWN_REQUESTs for its issue |

A HELP_RESPONSE with `reply_to` naming another type than HELP_REQUEST answers both. A message that ends the work on a
bead closes the bead's open HELP_REQUESTs and SPAWN_REQUESTs: they need no answer any more.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from mail.agentmail.beads import Beads, BeadStatus
from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.messages import COMPLETIONS, MessageType


class Effect(NamedTuple):
    """The effect of a message on earlier ones, by their numbers.

    Attributes:
        answered: the requests that it answers; its parent comes first.
        closed: the requests that need no answer any more.
    """

    answered: tuple[int, ...]
    closed: tuple[int, ...]


class AnswerMatcher:
    """Reads messages in order, numbers them from 0, and finds the requests that each answers or closes."""

    def __init__(self) -> None:
        self._types: list[MessageType] = []
        self._help_in_thread: dict[str, dict[int, str]] = {}
        self._help: dict[str, dict[int, str]] = {}
        self._spawn: dict[str, dict[int, str]] = {}
        self._open: dict[int, tuple[dict[int, str], ...]] = {}

    def read(self, message: AgentMailMessage, thread_id: str, target: int | None) -> Effect:
        """Return the effect of the next message.

        `target` is the number of the message in `reply_to`, if it has been read.
        """
        found: list[int] = [] if target is None else [target]
        asked = target is not None and self._types[target] is MessageType.HELP_REQUEST
        if message.type is MessageType.HELP_RESPONSE and not asked:
            waiting = self._help_in_thread.get(thread_id, {})
            of_bead = (number for number, bead_id in waiting.items() if message.bead_id in ("", bead_id))
            found += [number for number in [next(of_bead, None)] if number is not None]
        elif message.type in (MessageType.SPAWN_ACK, MessageType.BEAD_ACCEPTED):
            found += reversed(self._spawn.get(message.bead_id, {}))
        for number in found:
            self.close(number)
        closed: list[int] = []
        if message.type in COMPLETIONS and message.bead_id:
            closed = [*self._help.get(message.bead_id, ()), *self._spawn.get(message.bead_id, ())]
        for number in closed:
            self.close(number)
        self._note(message, thread_id)
        return Effect(tuple(dict.fromkeys(found)), tuple(closed))

    def close(self, number: int) -> None:
        """Mark the message with this number as answered."""
        for open_ones in self._open.pop(number, ()):
            open_ones.pop(number)

    def _note(self, message: AgentMailMessage, thread_id: str) -> None:
        number = len(self._types)
        self._types.append(message.type)
        groups: tuple[dict[int, str], ...] = ()
        if message.type is MessageType.HELP_REQUEST:
            groups = (
                self._help_in_thread.setdefault(thread_id, {}),
                self._help.setdefault(message.bead_id, {}),
            )
        elif message.type is MessageType.SPAWN_REQUEST:
            groups = (self._spawn.setdefault(message.bead_id, {}),)
        for open_ones in groups:
            open_ones[number] = message.bead_id
        if groups:
            self._open[number] = groups


class Summary(BeadStatus):
    """The summary of a thread: the status of its bead, and the open messages.

    The bead is the first one named in the thread. `pending` are the ids of messages that have to be acknowledged and
    are neither acknowledged nor answered nor closed, `counts` the numbers of messages by type, `participants` the
    senders in order of their first messages.
    """

    thread_id: str
    pending: tuple[str, ...] = ()
    counts: dict[MessageType, int] = Field(default_factory=dict)
    messages: int = 0
    participants: tuple[str, ...] = ()
    started_at: str = ""
    updated_at: str = ""


class Turn(BaseModel):
    """A message in a conversation, one `level` below the message with the id `answers`, or at level 0."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    message: AgentMailMessage
    level: int = 0
    answers: str = ""


class Thread(BaseModel):
    """The messages of a thread, the oldest first."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    thread_id: str
    messages: tuple[AgentMailMessage, ...]

    @property
    def summary(self) -> Summary:
        beads, effects = Beads(), self._effects()
        for message, effect in zip(self.messages, effects, strict=True):
            beads.read(message, [self.messages[number] for number in effect.answered])
        settled = set(chain.from_iterable(chain.from_iterable(effects)))
        bead_id = next((message.bead_id for message in self.messages if message.bead_id), "")
        times = [message.timestamp for message in self.messages if message.timestamp]
        status = beads.status(bead_id)
        return Summary(
            **{name: getattr(status, name) for name in BeadStatus.model_fields},
            thread_id=self.thread_id,
            pending=tuple(
                message.id
                for number, message in enumerate(self.messages)
                if message.is_pending and number not in settled
            ),
            counts=dict(Counter(message.type for message in self.messages)),
            messages=len(self.messages),
            participants=tuple(dict.fromkeys(message.sender for message in self.messages if message.sender)),
            started_at=times[0] if times else "",
            updated_at=times[-1] if times else "",
        )

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """The messages in order, each answer below the message it answers."""
        targets = [next(iter(effect.answered), None) for effect in self._effects()]
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

    def _effects(self) -> list[Effect]:
        matcher = AnswerMatcher()
        by_id: dict[str, int] = {}
        found: list[Effect] = []
        for number, message in enumerate(self.messages):
            target = by_id.get(message.reply_to) if message.reply_to else None
            found.append(matcher.read(message, self.thread_id, target))
            if message.id:
                by_id.setdefault(message.id, number)
        return found


def group_threads(messages: Iterable[AgentMailMessage]) -> dict[str, Thread]:
    """Group messages into threads by id, in the order in which the threads began.

    Messages are sorted by timestamp; one without stays behind its predecessor. A message without thread or bead joins
    the thread of the message it answers, or else the thread "".
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
