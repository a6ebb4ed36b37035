"""A task's events as spans: the turns of agents, their model calls, and whom they wait for. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Self

from mail.core.decisions.items import Changes, ModelCall, Turn, Wait
from mail.core.protocol.calls import TEXT_OUTPUT
from mail.core.protocol.mail_tools import TaskComplete
from mail.core.protocol.message import MAILMessage, tier_of
from mail.core.protocol.values import value
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import ActionExtra, CallExtra, GuardExtra, MessageExtra, TextExtra
from mail.core.task.mailboxes import agent_of

NOT_A_TURN = frozenset(
    {EventKind.HISTORY_INHERITED, EventKind.BREAKPOINT_ACTION_COMPLETE, EventKind.COPY_ASSIGNED}
)
"""Events about an agent that others have caused."""

FAILURES = frozenset(
    {EventKind.AGENT_ERROR, EventKind.ACTION_ERROR, EventKind.DEAD_LETTER, EventKind.TASK_ERROR}
)
"""Events of a turn in which something failed."""

QUICK_SECONDS = 1.0
"""How long a turn took at most whose times the record doesn't have."""

_DONE = {
    "send_request": "asks {target}",
    "send_response": "answers {target}",
    "send_interrupt": "interrupts {target}",
    "send_broadcast": "writes to all agents",
    "task_complete": "completes the task",
    "acknowledge_broadcast": "acknowledges a broadcast",
    "ignore_broadcast": "ignores a broadcast",
    "help": "reads the manual",
    "await_message": "",
    TEXT_OUTPUT: "",
}
"""Calls in words, where they are more than `calls` and the tool's name."""


def copies_in(event: Event) -> Sequence[str]:
    """Return the copies that get the message of an event."""
    return event.extra.copies if isinstance(event.extra, MessageExtra) else ()


def readers_of(event: Event, message: MAILMessage) -> tuple[str, ...]:
    """Return the recipients of a message: the copies that got it in place of their agent."""
    copies = copies_in(event)
    names = [each.address for each in message.message.recipients]
    return tuple(
        each for name in names for each in ([copy for copy in copies if agent_of(copy) == name] or [name])
    )


def begins_turn(event: Event, *, is_reply: bool) -> bool:
    """Return whether a turn of its agent has caused an event, so that it begins one unless an event of its commit has.

    A commit with the answer to a call (`is_reply`), by a person or by the expiry of an approval, may repeat the calls
    that still wait. A result that comes later is no turn, either.
    """
    is_late = isinstance(event.extra, ActionExtra) and event.extra.tool_call_id
    is_repeated = is_reply and event.kind is EventKind.BREAKPOINT_TOOL_CALL
    return bool(event.extra.agent) and event.kind not in NOT_A_TURN and not (is_repeated or is_late)


@value
class _Sent:
    """A message that waits in mailboxes; `cause` is its event or, for a note on a turn, that turn's cause."""

    cause: int
    time: datetime
    tier: int


@value
class _Request:
    """An open request."""

    seq: int
    recipient: str


class Spans:
    """Reads a task's events in their order. It remembers only what later events can change.

    Attributes:
        turn: the turn whose commit is being read.
    """

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self._stamp = ""
        self._now = datetime.min.replace(tzinfo=UTC)
        self._first = 0
        self._is_reply = False
        self._did: tuple[str, ...] = ()
        self._agents: frozenset[str] = frozenset()
        self._unread: Mapping[str, tuple[_Sent, ...]] = {}
        self._asked: Mapping[str, Mapping[str, _Request]] = {}
        self._waits: Mapping[str, Wait] = {}
        self._pause: Wait | None = None
        self._ended: Mapping[str, datetime] = {}

    def copy(self) -> Self:
        """Return a reader that continues from the same event."""
        return copy(self)

    def read(self, event: Event, changes: Changes) -> bool:
        """Add what an event adds or changes; return whether a turn begins with it."""
        if event.timestamp != self._stamp:
            self._stamp, self._now = event.timestamp, datetime.fromisoformat(event.timestamp)
            self._first, self._is_reply, self.turn, self._did = event.seq, False, None, ()
        is_reply = event.kind is EventKind.BREAKPOINT_ACTION_COMPLETE
        self._is_reply = self._is_reply or is_reply
        if self._pause and (is_reply or (event.message is not None and event.message.sender.is_person)):
            self._end_wait(self._pause, self._now, changes)
            self._pause = None
        changes.cause = self.turn.cause if self.turn else None
        is_first = self.turn is None and begins_turn(event, is_reply=self._is_reply)
        if is_first:
            self._begin(event, changes)
        if self.turn is not None:
            self._grow(self.turn, event, changes)
        if event.message is not None and event.message.msg_type != "broadcast_complete":
            self._deliver(event, event.message, changes)
        elif event.kind is EventKind.BREAKPOINT_TOOL_CALL and self._pause is None:
            self._stop_waiting(event.agent, self._now, changes)
            self._pause = changes.add(Wait, event, agent=event.agent)
        elif event.kind is EventKind.COPY_ASSIGNED:
            sent = self._take(agent_of(event.agent), self._now)
            self._unread = {**self._unread, event.agent: (sent,) if sent else ()}
        elif event.kind is EventKind.TASK_CANCELLED or (event.is_terminal and not event.is_pause):
            self._stop(changes)
        return is_first

    def writer(self, address: str) -> str:
        """Return who wrote a message of the turn that is read: a copy in place of its agent."""
        return self.turn.agent if self.turn and agent_of(self.turn.agent) == address else address

    def within(self, after: float, seconds: float) -> str:
        """Return when something began, `after` seconds into the turn: it ended before the turn, which is rounded."""
        if self.turn is None:
            return self._stamp
        begin = datetime.fromisoformat(self.turn.time)
        return (begin + timedelta(seconds=max(0.0, min(after, self.turn.seconds - seconds)))).isoformat()

    def _begin(self, event: Event, changes: Changes) -> None:
        agent, timing, usage = event.extra.agent, event.extra.timing, event.extra.usage
        began = datetime.fromisoformat(timing.began) if timing else self._now
        is_discarded = event.kind is EventKind.TURN_DISCARDED
        mail = None if is_discarded else self._take(agent, began)
        if not timing:
            earliest = [self._now - timedelta(seconds=QUICK_SECONDS)]
            earliest += [time for time in (mail and mail.time, self._ended.get(agent)) if time]
            began = min(self._now, max(earliest))
        seconds = timing.seconds if timing else (self._now - began).total_seconds()
        self._agents |= {agent}
        self._ended = {**self._ended, agent: began + timedelta(seconds=seconds)}
        self._stop_waiting(agent, began, changes)
        changes.cause = mail.cause if mail else None
        self.turn = changes.add(
            Turn,
            event,
            seq=self._first,
            time=began.isoformat(),
            agent=agent,
            seconds=seconds,
            is_timed=bool(timing),
            last=event.seq,
            state="discarded" if is_discarded else "ok",
            queued=mail.time.isoformat() if mail and mail.time < began else None,
            usage=usage,
        )
        calls = timing.model_calls if timing else ()
        for call in calls:
            changes.add(
                ModelCall,
                event,
                time=self.within(call.after, call.seconds),
                turn=self.turn.id,
                agent=agent,
                model=call.model,
                seconds=call.seconds,
                attempts=call.attempts,
                usage=usage if len(calls) == 1 else None,
            )
        self._wait(event, agent, changes)

    def _grow(self, turn: Turn, event: Event, changes: Changes) -> None:
        """Add what an event says about a turn; it has come with the turn's commit."""
        words = _describe(event)
        if event.kind is EventKind.DEAD_LETTER:
            self._did = (words,)
        elif words and words not in self._did:
            self._did += (words,)
        state = "failed" if turn.state == "ok" and event.kind in FAILURES else turn.state
        did = ", ".join(self._did) or "waits for mail"
        self.turn = changes.change(turn, last=event.seq, did=did, state=state)

    def _deliver(self, event: Event, message: MAILMessage, changes: Changes) -> None:
        """Put a message into the mailboxes of its recipients, and note what it asks or answers."""
        sender, names = message.sender, readers_of(event, message)
        writer = self.writer(sender.address)
        people = {each.address for each in message.message.recipients if each.address_type != "agent"}
        agents: Iterable[str] = [name for name in names if "@" not in name and name not in people]
        if "all" in agents:
            copies = copies_in(event)
            agents = {name for name in self._agents if agent_of(name) == name or name in copies} - {writer}
        cause = changes.cause if sender.address_type == "system" else None
        sent = _Sent(event.seq if cause is None else cause, self._now, tier_of(message))
        self._unread = {**self._unread, **{name: (*self._unread.get(name, ()), sent) for name in agents}}
        request = getattr(message.message, "request_id", "")
        if message.msg_type == "request" and sender.address_type == "agent":
            asked = {**self._asked.get(writer, {}), request: _Request(event.seq, names[0])}
            self._asked = {**self._asked, writer: asked}
            self._wait(event, writer, changes)
        elif message.msg_type == "response":
            for name in names:
                if request in self._asked.get(name, {}):
                    changes.cause = self._asked[name][request].seq
                others = {each: to for each, to in self._asked.get(name, {}).items() if each != request}
                self._asked = {**self._asked, name: others}

    def _take(self, agent: str, time: datetime) -> _Sent | None:
        """Take the message that an agent read at a time out of its mailbox: the first of the most urgent ones."""
        unread = self._unread.get(agent, ())
        there = [sent for sent in unread if sent.time <= time + timedelta(milliseconds=1)] or unread[:1]
        taken = min(there, key=lambda sent: sent.tier, default=None)
        self._unread = {**self._unread, agent: tuple(sent for sent in unread if sent is not taken)}
        return taken

    def _wait(self, event: Event, agent: str, changes: Changes) -> None:
        """Note whose answers an agent waits for after its turn."""
        names = tuple(dict.fromkeys(asked.recipient for asked in self._asked.get(agent, {}).values()))
        if not names or (self._pause is not None and self._pause.agent == agent):
            return
        wait = self._waits.get(agent)
        new = (
            changes.change(wait, names=names) if wait else changes.add(Wait, event, agent=agent, names=names)
        )
        self._waits = {**self._waits, agent: new}

    def _stop_waiting(self, agent: str, time: datetime, changes: Changes) -> None:
        if agent in self._waits:
            self._end_wait(self._waits[agent], time, changes)
            self._waits = {name: wait for name, wait in self._waits.items() if name != agent}

    def _end_wait(self, wait: Wait, time: datetime, changes: Changes) -> None:
        seconds = (time - datetime.fromisoformat(wait.time)).total_seconds()
        changes.change(wait, seconds=max(0.0, seconds))

    def _stop(self, changes: Changes) -> None:
        """End what lasts until the task stops."""
        for wait in (*self._waits.values(), *filter(None, (self._pause,))):
            self._end_wait(wait, self._now, changes)
        self._waits, self._asked, self._pause = {}, {}, None


def _describe(event: Event) -> str:
    """Return what an agent did, in words; empty for what others say or nobody needs to know."""
    match event.extra:
        case CallExtra(tool_name=tool, tool_args=dict(given)):
            return _DONE.get(tool, f"calls {tool}").replace("{target}", str(given.get("target", "")))
        case TextExtra(target=target, taken_as=tool):
            is_end = tool == TaskComplete.tool_name
            return "completes the task" if is_end else f"answers {target}" if target else "makes a remark"
        case GuardExtra(guards=(guard, *_), outcome="refuse"):
            return f"is refused by guard {guard}"
    match event.kind:
        case EventKind.AGENT_ERROR:
            return "makes an error"
        case EventKind.DEAD_LETTER:
            return "fails"
        case EventKind.TURN_DISCARDED:
            return "is interrupted"
        case EventKind.CONTEXT_CUT:
            return "shortens its context"
        case EventKind.MODEL_SWITCHED:
            return "changes its model"
    return ""
