"""The events of a task: its timeline, as shown by SSE and by `GET /task`."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic_core import to_json

from mail.core.protocol.message import MAILMessage
from mail.core.protocol.xml import render_message
from mail.core.task.costs import Usage
from mail.core.task.extras import (
    NO_EXTRA,
    SHAPES,
    ActionExtra,
    AwaitExtra,
    CallExtra,
    ContextExtra,
    DeadLetterExtra,
    DecisionExtra,
    DeliveryExtra,
    DiscardExtra,
    EndExtra,
    Extra,
    FailedDeliveryExtra,
    ForkExtra,
    GuardExtra,
    HistoryExtra,
    MessageExtra,
    OpenExtra,
    PauseExtra,
    RedriveExtra,
    RemovedWebhookExtra,
    ReviewExtra,
    ScheduleExtra,
    SwitchExtra,
    TextExtra,
    TimerExtra,
    WaitExtra,
)
from mail.core.task.turn_state import TurnTiming


class EventKind(StrEnum):
    """Every kind of event (SPEC, section 9)."""

    NEW_MESSAGE = "new_message"
    COPY_ASSIGNED = "copy_assigned"
    TOOL_CALL = "tool_call"
    AWAIT_MESSAGE = "await_message"
    ACTION_CALL = "action_call"
    ACTION_COMPLETE = "action_complete"
    ACTION_ERROR = "action_error"
    ACTION_WAITING = "action_waiting"
    ACTION_CANCELLED = "action_cancelled"
    TASK_COMPLETE_CALL = "task_complete_call"
    TASK_COMPLETE_CALL_DUPLICATE = "task_complete_call_duplicate"
    BREAKPOINT_TOOL_CALL = "breakpoint_tool_call"
    APPROVAL_REQUESTED = "approval_requested"
    BREAKPOINT_ACTION_COMPLETE = "breakpoint_action_complete"
    INTERSWARM_MESSAGE_SENT = "interswarm_message_sent"
    INTERSWARM_MESSAGE_RECEIVED = "interswarm_message_received"
    INTERSWARM_MESSAGE_ERROR = "interswarm_message_error"
    AGENT_ERROR = "agent_error"
    MODEL_SWITCHED = "model_switched"
    HELP_CALLED = "help_called"
    BROADCAST_IGNORED = "broadcast_ignored"
    TEXT_ANSWER = "text_answer"
    BUILTIN_TOOL_CALL = "builtin_tool_call"
    GUARD_DECISION = "guard_decision"
    TIMER_SET = "timer_set"
    TIMER_CANCELLED = "timer_cancelled"
    CONTEXT_CUT = "context_cut"
    TURN_DISCARDED = "turn_discarded"
    WEBHOOK_DELIVERED = "webhook_delivered"
    WEBHOOK_ERROR = "webhook_error"
    DEAD_LETTER = "dead_letter"
    DEAD_LETTER_REDRIVEN = "dead_letter_redriven"
    DEAD_LETTER_DISCARDED = "dead_letter_discarded"
    SCHEDULE_CHANGED = "schedule_changed"
    SCHEDULE_ERROR = "schedule_error"
    TASK_CANCELLED = "task_cancelled"
    TASK_OPENED = "task_opened"
    TASK_SHARED = "task_shared"
    IMPORTED = "imported"
    TASK_FORKED = "task_forked"
    HISTORY_INHERITED = "history_inherited"
    TASK_ERROR = "task_error"
    TASK_COMPLETE = "task_complete"


TERMINAL = frozenset({EventKind.TASK_COMPLETE, EventKind.TASK_ERROR})
"""The kinds that end a generation of a task, and a stream with it."""


EXTRAS: dict[EventKind, tuple[type[Extra], ...]] = {
    EventKind.NEW_MESSAGE: (MessageExtra,),
    EventKind.TOOL_CALL: (CallExtra,),
    EventKind.AWAIT_MESSAGE: (AwaitExtra,),
    EventKind.MODEL_SWITCHED: (SwitchExtra,),
    EventKind.ACTION_CALL: (ActionExtra,),
    EventKind.ACTION_COMPLETE: (ActionExtra,),
    EventKind.ACTION_ERROR: (ActionExtra,),
    EventKind.ACTION_WAITING: (WaitExtra,),
    EventKind.ACTION_CANCELLED: (ActionExtra,),
    EventKind.BREAKPOINT_TOOL_CALL: (PauseExtra,),
    EventKind.APPROVAL_REQUESTED: (ReviewExtra,),
    EventKind.BREAKPOINT_ACTION_COMPLETE: (DecisionExtra,),
    EventKind.TEXT_ANSWER: (TextExtra,),
    EventKind.GUARD_DECISION: (GuardExtra,),
    EventKind.TIMER_SET: (TimerExtra,),
    EventKind.TIMER_CANCELLED: (TimerExtra,),
    EventKind.CONTEXT_CUT: (ContextExtra,),
    EventKind.WEBHOOK_DELIVERED: (DeliveryExtra,),
    EventKind.WEBHOOK_ERROR: (FailedDeliveryExtra, RemovedWebhookExtra),
    EventKind.DEAD_LETTER: (DeadLetterExtra,),
    EventKind.DEAD_LETTER_REDRIVEN: (RedriveExtra,),
    EventKind.DEAD_LETTER_DISCARDED: (DiscardExtra,),
    EventKind.SCHEDULE_ERROR: (ScheduleExtra,),
    EventKind.TASK_OPENED: (OpenExtra,),
    EventKind.TASK_FORKED: (ForkExtra,),
    EventKind.HISTORY_INHERITED: (HistoryExtra,),
    EventKind.TASK_ERROR: (EndExtra,),
    EventKind.TASK_COMPLETE: (EndExtra,),
}
"""The kinds that say more than any event; of several classes, the first that finds all its fields is read."""


class _EventFields(NamedTuple):
    seq: int
    kind: EventKind
    timestamp: str
    text: str = ""
    extra: Extra = NO_EXTRA
    message: MAILMessage | None = None


class Event(_EventFields):
    """One line of a task's timeline. A plain tuple, as a turn makes several, of values already checked.

    Attributes:
        seq: its number; gapless within the task.
        text: the description; in a terminal event, the answer.
        extra: what else its kind says (`EXTRAS`).
        message: the message that the event announces, if any; its XML is rendered on demand.
    """

    @property
    def agent(self) -> str:
        """The agent that it is about, or that wrote its message; empty for other events."""
        if self.message is not None and self.message.sender.address_type == "agent":
            return self.message.sender.address
        return self.extra.agent

    @property
    def is_terminal(self) -> bool:
        """Whether a generation of the task ends here."""
        return self.kind in TERMINAL

    @property
    def is_out_of_steps(self) -> bool:
        """Whether it announces the notice of a reached limit to the supervisor (SPEC, TASK-14)."""
        return isinstance(self.extra, MessageExtra) and self.extra.out_of_steps

    @property
    def is_redrive(self) -> bool:
        """Whether it announces a redriven message, which stands in the timeline already."""
        return isinstance(self.extra, MessageExtra) and self.extra.redrives is not None

    @property
    def is_pause(self) -> bool:
        """Whether the task waits for a person from this terminal event on."""
        return isinstance(self.extra, EndExtra) and self.extra.question is not None

    def answers(self, seq: int) -> bool:
        """Return whether this event ends the task's work on the message with this seq."""
        unread_from = self.extra.unread_from if isinstance(self.extra, EndExtra) else None
        return self.is_terminal and (unread_from is None or seq < unread_from)

    def logged(self, task_id: str) -> dict[str, Any]:
        """Return the event as `data` does, for records: there a terminal event has the fields of the others, too."""
        data = self.data(task_id)
        if self.is_terminal:
            failed = self.kind is EventKind.TASK_ERROR
            data |= {"description": "task failed" if failed else "task completed", "extra_data": {}}
        return data

    def data(self, task_id: str) -> dict[str, Any]:
        """Return the event as the JSON object that clients receive (SPEC, section 9)."""
        extra = self.extra.as_json()
        if self.is_terminal:
            asked = {"question": extra["question"]} if "question" in extra else {}
            return {"timestamp": self.timestamp, "task_id": task_id, "response": self.text, **asked}
        description = self.text
        if self.message is not None:
            description = f"{self.text}\n{render_message(self.message)}"
            extra = {"full_message": self.message.as_json(), **extra}
        return {
            "timestamp": self.timestamp,
            "description": description,
            "task_id": task_id,
            "extra_data": extra,
        }


def encode_events(events: Iterable[Event]) -> bytes:
    """Return events as stores keep them: a JSON list for each. Raises ValueError for an `extra` that is not JSON."""
    stored = [
        # a message as it would be dumped: pydantic takes longer to do that, and must have built the class
        (
            seq,
            str(kind),
            time,
            text,
            {} if extra is NO_EXTRA else extra.as_json(),
            message and {**vars(message), "message": vars(message.message)},
        )
        for seq, kind, time, text, extra, message in events
    ]
    return to_json(stored, inf_nan_mode="null")


def read_extra(kind: EventKind, data: Mapping[str, Any]) -> Extra:
    """Return what an event of this kind says, in JSON as `Extra.as_json` makes it or another program has made it."""
    if not data:
        return NO_EXTRA
    cls, names = _fields_of(kind, tuple(data))
    known: dict[str, Any] = {name: data[key] for key, name in names}
    more = {} if len(known) == len(data) else {key: data[key] for key in data.keys() - dict(names)}
    for key in _READERS.keys() & known.keys():
        try:
            known[key] = _READERS[key](known[key])
        except (KeyError, TypeError):  # not a fact of ours
            more[key] = known.pop(key)
    return cls(**known, more=more or None)


@lru_cache(maxsize=1024)
def _fields_of(kind: EventKind, keys: tuple[str, ...]) -> tuple[type[Extra], list[tuple[str, str]]]:
    """Return the class of what an event says under these keys, and those that are fields of it, with their names."""
    cls = next((each for each in EXTRAS.get(kind, ()) if SHAPES[each].required.issubset(keys)), Extra)
    return cls, [(key, SHAPES[cls].keys[key]) for key in keys if key in SHAPES[cls].keys]


_READERS: dict[str, Callable[[Any], Any]] = {
    "usage": lambda usage: Usage(**usage),
    "timing": lambda timing: TurnTiming.from_json(**timing),
}
