"""A task's events as a conversation: what people wrote, what agents did, asked and answered. Pure.

Everything that shows or maps a conversation draws these items, so that a new tool or kind of event is read in one place.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Json, TypeAdapter, ValidationError

from mail.core.protocol.question_text import describe_question, question_argument
from mail.core.protocol.values import value
from mail.core.task.events import Event, EventKind
from mail.core.task.task import TaskStatus


@value(kw_only=True)
class Part:
    """What the items of a conversation have in common.

    Attributes:
        id: its name in the task: the event that began it, and its number among those of that event.
        seq: the event that began it.
        version: the last event that changed it.
        time: when it began, in ISO 8601.
    """

    id: str
    seq: int
    version: int
    time: str


@value(kw_only=True)
class Message(Part):
    """A person wrote."""

    kind: Literal["message"] = "message"
    who: str
    subject: str
    text: str
    type: str


@value(kw_only=True)
class Work(Part):
    """Agents work: all that they do up to the next message, answer or question. It grows until it has `ended`."""

    kind: Literal["work"] = "work"
    last: str
    ended: str | None = None
    turns: int = 0
    agents: tuple[str, ...] = ()


@value(kw_only=True)
class Mail(Part):
    """A step of the `work` with that id: an agent, or another swarm, wrote to agents."""

    kind: Literal["mail"] = "mail"
    work: str
    sender: str
    recipients: tuple[str, ...]
    subject: str
    text: str
    type: str


@value(kw_only=True)
class Action(Part):
    """A step: an agent used a tool that is not one of MAIL's, with this result or error."""

    kind: Literal["action"] = "action"
    work: str
    agent: str
    name: str
    arguments: dict[str, Any]
    call_id: str
    result: str
    has_failed: bool = False


@value(kw_only=True)
class Fault(Part):
    """A step: something went wrong. If it `ended_task`, the item `failed` says the same."""

    kind: Literal["fault"] = "fault"
    work: str
    agent: str
    text: str
    ended_task: bool = False


@value(kw_only=True)
class Answer(Part):
    """The task's answer."""

    kind: Literal["answer"] = "answer"
    text: str


@value
class Asked:
    """A question in words: of a message to a person, or of the `argument` of a call."""

    text: str
    subject: str = ""
    argument: str = ""


@value(kw_only=True)
class Reply:
    """A person's answer to a call: its result in `text`, or a `decision` whether it runs."""

    time: str
    text: str | None = None
    decision: Literal["approve", "edit", "reject"] | None = None
    by: str = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None


@value(kw_only=True)
class Question(Part):
    """The task waits, or waited, for a person: for the result of a call, or for a decision whether it runs.

    Attributes:
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
    is_open: bool = True
    reply: Reply | None = None
    result: str | None = None


@value(kw_only=True)
class Told(Part):
    """An agent wrote to a person, who need not answer."""

    kind: Literal["told"] = "told"
    who: str
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
class Forked(Part):
    """The task continues another one, from its event `at`."""

    kind: Literal["forked"] = "forked"
    forked_from: str
    at: int


Item = Message | Work | Mail | Action | Fault | Answer | Question | Told | Failed | Cancelled | Forked


class _Call(BaseModel):
    """A call in the answer of a pause, in the style of the agent's API (SPEC, section 8)."""

    model_config = ConfigDict(defer_build=True)
    name: str
    arguments: Json[dict[str, Any]]
    id: str
    call_id: str | None = None
    needs_approval: bool = False


_CALLS = TypeAdapter(list[_Call], config=ConfigDict(defer_build=True))

_FAULTS = frozenset({EventKind.AGENT_ERROR, EventKind.DEAD_LETTER, EventKind.INTERSWARM_MESSAGE_ERROR})


class Conversation:
    """Reads a task's events in their order. It remembers only what later events can change, however long the task is.

    Attributes:
        seq: the last event that it has read.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._changed: dict[str, Item] = {}
        self._work: Work | None = None
        self._cancelled: Work | None = None
        self._turn = ("", "")
        self._questions: tuple[Question, ...] = ()
        self._asked: tuple[Asked, ...] = ()
        self._asking = ""
        # of the commit that is being read, all of whose events have one time:
        self._time = ""
        self._call: dict[str, Any] = {}
        self._faults: tuple[Fault, ...] = ()
        self._replies: tuple[str, ...] | None = None

    def copy(self) -> Self:
        """Return a reader that continues from the same event."""
        return copy(self)

    def read(self, event: Event) -> tuple[Item, ...]:
        """Return the items that an event adds or changes: each one whole, with the event as its `version`."""
        self.seq, self._changed = event.seq, {}
        if event.timestamp != self._time:
            self._time, self._call, self._faults, self._replies = event.timestamp, {}, (), None
        self._read(event)
        return tuple(self._changed.values())

    def _read(self, event: Event) -> None:
        match event.kind:
            case EventKind.NEW_MESSAGE | EventKind.INTERSWARM_MESSAGE_RECEIVED:
                self._read_message(event)
            case EventKind.TASK_COMPLETE:
                self._end(event)
            case EventKind.TASK_ERROR:
                if event.status != TaskStatus.CANCELLED:
                    for fault in self._faults:
                        self._change(fault, ended_task=True)
                    self._add(Failed, event, text=event.text)
            case EventKind.TASK_CANCELLED:
                work = self._work
                self._drop_questions()
                self._add(Cancelled, event, text=event.text)
                self._cancelled = work
            case EventKind.TASK_FORKED:
                about = event.extra
                self._add(Forked, event, forked_from=about.get("forked_from", ""), at=about.get("at", 0))
            case EventKind.TOOL_CALL:
                self._act(event)
                self._call = event.extra
            case EventKind.ACTION_COMPLETE | EventKind.ACTION_ERROR | EventKind.BUILTIN_TOOL_CALL:
                self._take_result(event)
            case EventKind.BREAKPOINT_TOOL_CALL:
                self._asking = event.agent
                if self._replies is None:  # else a call that has waited before still waits, and is no turn
                    self._act(event)
            case EventKind.BREAKPOINT_ACTION_COMPLETE:
                self._reply(event)
            case kind if kind in _FAULTS:
                fault = self._add_step(Fault, event, agent=event.agent, text=event.text)
                self._faults += (fault,)
            case EventKind.HISTORY_INHERITED:
                pass
            case _ if event.agent:
                self._act(event)

    def _read_message(self, event: Event) -> None:
        if event.message is None:
            return
        if event.is_redrive:
            self._act(event)
            return
        sent, sender = event.message.message, event.message.sender
        kind, subject, text = event.message.msg_type, sent.subject, sent.body
        recipients = sent.recipients
        if sender.is_person:
            if kind == "response" and text in (self._replies or ()):
                return
            self._drop_questions()
            self._add(Message, event, who=sender.address, subject=subject, text=text, type=kind)
            self._begin(event)
        elif any(each.is_person for each in recipients):
            if kind == "request":
                self._asked += (Asked(text, subject),)
            elif sender.address_type == "agent":
                self._add(Told, event, is_part=True, who=sender.address, subject=subject, text=text)
        elif sender.address_type != "system" and kind != "broadcast_complete":
            names = tuple(each.address for each in recipients)
            self._add_step(
                Mail, event, sender=sender.address, recipients=names, subject=subject, text=text, type=kind
            )

    def _drop_questions(self) -> None:
        for question in self._questions:
            if question.is_open:
                self._change(question, is_open=False)
        self._questions = tuple(each for each in self._questions if not each.is_open)

    def _end(self, event: Event) -> None:
        if event.status != TaskStatus.PAUSED:
            self._add(Answer, event, text=event.text)
            return
        if self._work is not None:
            self._change(self._work, ended=event.timestamp, last=event.timestamp)
            self._work = None
        try:
            calls = _CALLS.validate_json(event.text)
        except ValidationError:  # of a task of MAIL 1.3.6
            self._add(Answer, event, text=event.text)
            return
        questions = sum(not call.needs_approval for call in calls)
        asked = iter(self._asked if len(self._asked) == questions else ())
        self._asked = ()
        open_calls = {each.call_id for each in self._questions if each.is_open}
        for call in calls:
            call_id = call.call_id or call.id
            sent = None if call.needs_approval else next(asked, None)
            if call_id in open_calls:
                continue
            name = question_argument(call.arguments) if not call.needs_approval else None
            words = describe_question(
                self._asking, call.name, call.arguments, needs_approval=call.needs_approval
            )
            question = self._add(
                Question,
                event,
                agent=self._asking,
                call_id=call_id,
                name=call.name,
                arguments=call.arguments,
                needs_approval=call.needs_approval,
                words=words,
                asked=sent or (None if name is None else Asked(call.arguments[name], argument=name)),
            )
            self._questions += (question,)

    def _reply(self, event: Event) -> None:
        """Take note of the result of a call of a breakpoint tool, or of the decision on one that needs approval."""
        about, text = event.extra, event.text.partition("\n")[2]
        call_id, decision = about.get("tool_call_id"), about.get("decision")
        by = str(about.get("by") or "").partition(":")[2].partition("@")[0]
        if decision is None:
            reply = Reply(time=event.timestamp, text=text)
            self._replies = (*(self._replies or ()), text)
        else:
            reason, arguments = about.get("reason", ""), about.get("arguments")
            reply = Reply(time=event.timestamp, decision=decision, by=by, reason=reason, arguments=arguments)
            self._replies = self._replies or ()
        for question in self._questions:
            is_meant = question.call_id == call_id if call_id else not question.needs_approval
            if question.is_open and question.agent == event.agent and is_meant:
                answered = self._change(question, reply=reply, is_open=False)
                is_run = decision in ("approve", "edit")
                self._questions = tuple(
                    answered if each is question else each
                    for each in self._questions
                    if each is not question or is_run
                )
                break
        if self._work is None:
            self._begin(event)

    def _take_result(self, event: Event) -> None:
        """Add the action that has ended: of the call just before, or of one that a person has approved."""
        call, self._call = self._call, {}
        text, has_failed = event.text.partition("\n")[2], event.kind is EventKind.ACTION_ERROR
        if call.get("agent") == event.agent:
            self._add_step(
                Action,
                event,
                agent=event.agent,
                name=call.get("tool_name", ""),
                arguments=call.get("tool_args") or {},
                call_id=call.get("tool_call_id", ""),
                result=text,
                has_failed=has_failed,
            )
            return
        if event.kind is EventKind.BUILTIN_TOOL_CALL:
            return
        self._act(event)
        for question in self._questions:
            if not question.is_open and question.agent == event.agent:
                self._change(question, result=text)
                self._questions = tuple(each for each in self._questions if each is not question)
                return

    def _add[Kind: Part](
        self, kind: type[Kind], event: Event, *, is_part: bool = False, **about: Any
    ) -> Kind:
        """Add an item; it ends the work before it, unless it `is_part` of that."""
        if not is_part:
            self._close(event)
        n = len(self._changed)
        item = kind(id=f"{event.seq}.{n}", seq=event.seq, version=event.seq, time=event.timestamp, **about)
        self._changed[item.id] = item  # type: ignore[assignment]  # a Part is an Item
        return item

    def _add_step[Kind: Part](self, kind: type[Kind], event: Event, **about: Any) -> Kind:
        return self._add(kind, event, is_part=True, work=self._act(event).id, **about)

    def _change[Kind: Part](self, item: Kind, **about: Any) -> Kind:
        changed = replace(item, version=self.seq, **about)
        self._changed[item.id] = changed  # type: ignore[assignment]
        return changed

    def _begin(self, event: Event) -> Work:
        self._work = self._add(Work, event, is_part=True, last=event.timestamp)
        return self._work

    def _act(self, event: Event) -> Work:
        """Return the work that an event belongs to, which it may begin; count the turns in it."""
        # What agents still do when the task is cancelled belongs to the work before.
        work = self._work or self._cancelled or self._begin(event)
        about: dict[str, Any] = {}
        turn = (event.agent if event.message is None else "", event.timestamp)
        if turn[0] and turn != self._turn:
            self._turn = turn
            about = {"turns": work.turns + 1, "agents": tuple(dict.fromkeys((*work.agents, event.agent)))}
        if about or event.timestamp != work.last:
            grown = self._change(work, last=event.timestamp, **about)
            if work is self._work:
                self._work = grown
            else:
                self._cancelled = grown
            return grown
        return work

    def _close(self, event: Event) -> None:
        if self._work is not None:
            last = event.timestamp if event.is_terminal else self._work.last
            self._change(self._work, ended=last, last=last)
        self._work = self._cancelled = None


def fold(items: Iterable[Item]) -> list[Item]:
    """Return items in the order in which they began, each as it is after its last change."""
    return list({item.id: item for item in items}.values())
