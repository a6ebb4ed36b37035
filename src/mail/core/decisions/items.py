"""Items: what the events of a task mean to people, as a conversation and as spans. Pure.

Everything that shows or maps a task draws these items, so that a new tool or kind of event is read in one place.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from mail.core.protocol.values import value
from mail.core.task.approvals import DecisionName
from mail.core.task.costs import Usage
from mail.core.task.events import Event


@value(kw_only=True)
class Part:
    """What the items of a conversation have in common.

    Attributes:
        id: its name in the task.
        seq: the event that began it.
        version: the last event that changed it.
        time: when it began, in ISO 8601.
        cause: the event of the message that led to it: that its agent had read, or that it answers.
    """

    id: str
    seq: int
    version: int
    time: str
    cause: int | None = None


@value(kw_only=True)
class Message(Part):
    """A person wrote; `files` are references (`mail.core.task.files.FileRef.as_json`)."""

    kind: Literal["message"] = "message"
    who: str
    recipients: tuple[str, ...]
    subject: str
    text: str
    type: str
    files: tuple[dict[str, Any], ...] = ()


@value(kw_only=True)
class Work(Part):
    """Agents work: all that they do up to the next message, answer or question. It grows until it has `ended`."""

    kind: Literal["work"] = "work"
    last: str
    ended: str | None = None
    turns: int = 0
    agents: tuple[str, ...] = ()


@value(kw_only=True)
class Thoughts(Part):
    """What a model gave besides its calls: its `reasoning`, and what it `said` before; empty if another item has it."""

    reasoning: str = ""
    said: str = ""


@value(kw_only=True)
class Mail(Thoughts):
    """A step of the `work` with that id: an agent, or another swarm, wrote to agents."""

    kind: Literal["mail"] = "mail"
    work: str
    sender: str
    recipients: tuple[str, ...]
    subject: str
    text: str
    type: str
    files: tuple[dict[str, Any], ...] = ()


@value(kw_only=True)
class Action(Thoughts):
    """A step, in the `turn` with that id: an agent used a tool that is not one of MAIL's, with this result or error.

    Attributes:
        seconds: how long it took; None if the record doesn't say.
        is_waiting: whether its work has begun, and its result is to come.
    """

    kind: Literal["action"] = "action"
    work: str
    turn: str | None
    seconds: float | None
    agent: str
    name: str
    arguments: dict[str, Any]
    call_id: str
    result: str
    has_failed: bool = False
    is_waiting: bool = False


@value(kw_only=True)
class Fault(Part):
    """A step: something went wrong. If it `ended_task`, the item `failed` says the same."""

    kind: Literal["fault"] = "fault"
    work: str
    agent: str
    text: str
    ended_task: bool = False


@value(kw_only=True)
class Note(Part):
    """Something that no other item shows: `agent` did or met it, or the system wrote to `recipients`.

    Attributes:
        agent: empty if it is about none.
        name: the kind of the event, or the subject of the system's message.
    """

    kind: Literal["note"] = "note"
    agent: str
    name: str
    text: str
    recipients: tuple[str, ...] = ()


@value(kw_only=True)
class Answer(Thoughts):
    """The task's answer, by an agent or the system."""

    kind: Literal["answer"] = "answer"
    who: str
    text: str
    files: tuple[dict[str, Any], ...] = ()


@value
class Asked:
    """A question in words: of a message to a person, or of the `argument` of a call."""

    text: str
    subject: str = ""
    argument: str = ""


@value(kw_only=True)
class Reply:
    """A person's answer to a call: its result in `text`, or a `decision`, which may be `answer` with the `text`."""

    time: str
    text: str | None = None
    decision: DecisionName | None = None
    by: str = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None


@value(kw_only=True)
class Question(Thoughts):
    """The task waits, or waited, for a person: for the result of a call, or for a decision whether it runs.

    Attributes:
        reviewers: who decides, in place of the task's owner; empty for the owner.
        words: the call in one line.
        is_open: whether the task still waits. A message instead of an answer drops the question.
        asked: the question that it asks, if it asks one.
        result: the result of an approved call, once it has run.
    """

    kind: Literal["question"] = "question"
    agent: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    needs_approval: bool
    words: str
    asked: Asked | None = None
    reviewers: tuple[str, ...] = ()
    is_open: bool = True
    reply: Reply | None = None
    result: str | None = None


@value(kw_only=True)
class Told(Part):
    """An agent wrote to a person, who need not answer."""

    kind: Literal["told"] = "told"
    who: str
    recipients: tuple[str, ...]
    subject: str
    text: str


@value(kw_only=True)
class Failed(Part):
    """The task failed."""

    kind: Literal["failed"] = "failed"
    text: str


@value(kw_only=True)
class Cancelled(Part):
    """The task was cancelled."""

    kind: Literal["cancelled"] = "cancelled"
    text: str


@value(kw_only=True)
class Opened(Part):
    """An admin, `by`, has read the task of another caller, for a `reason`."""

    kind: Literal["opened"] = "opened"
    by: str
    reason: str
    text: str


@value(kw_only=True)
class Forked(Part):
    """The task continues another one, from its event `at`."""

    kind: Literal["forked"] = "forked"
    forked_from: str
    at: int


@value(kw_only=True)
class Turn(Part):
    """An agent's turn.

    Attributes:
        time: when it began or, if it is not timed, can have begun at the earliest.
        is_timed: whether the record says when it began.
        last: the last event of its commit.
        did: what the agent did, in words.
        queued: since when the message that it read had waited.
    """

    kind: Literal["turn"] = "turn"
    agent: str
    seconds: float
    is_timed: bool
    last: int
    did: str = ""
    state: Literal["ok", "failed", "discarded"] = "ok"
    queued: str | None = None
    usage: Usage | None = None


@value(kw_only=True)
class ModelCall(Part):
    """A model call of the turn with that id; it has the turn's `usage` if it is its only one."""

    kind: Literal["model_call"] = "model_call"
    turn: str
    agent: str
    model: str
    seconds: float
    attempts: int = 1
    usage: Usage | None = None


@value(kw_only=True)
class Wait(Part):
    """An agent waits for the answers of others or, if it names none, for a person; `seconds` is None while it does."""

    kind: Literal["wait"] = "wait"
    agent: str
    names: tuple[str, ...] = ()
    seconds: float | None = None


Item = (
    Message
    | Work
    | Mail
    | Action
    | Fault
    | Note
    | Answer
    | Question
    | Told
    | Failed
    | Cancelled
    | Opened
    | Forked
    | Turn
    | ModelCall
    | Wait
)


class Changes:
    """The items that an event adds or changes, each whole.

    Attributes:
        cause: that of the items that it adds.
    """

    def __init__(self, seq: int = 0) -> None:
        self.seq = seq
        self.cause: int | None = None
        self._items: dict[str, Item] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """The items, each as it is after its last change."""
        return tuple(self._items.values())

    def add[Kind: Part](self, kind: type[Kind], event: Event, **about: Any) -> Kind:
        """Add an item that begins with the event, unless `about` says when."""
        begin = {"seq": event.seq, "time": event.timestamp, "cause": self.cause}
        return self._set(kind(id=f"{event.seq}.{len(self._items)}", version=self.seq, **{**begin, **about}))

    def change[Kind: Part](self, item: Kind, **about: Any) -> Kind:
        """Change an item, and return it as it is then."""
        return self._set(replace(item, version=self.seq, **about))

    def _set[Kind: Part](self, item: Kind) -> Kind:
        self._items[item.id] = item  # type: ignore[assignment]  # a Part is an Item
        return item


def fold(items: Iterable[Item]) -> list[Item]:
    """Return items in the order in which they began, each as it is after its last change."""
    return list({item.id: item for item in items}.values())
