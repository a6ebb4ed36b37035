"""A task's events as a conversation, what people wrote and what agents did, asked and answered, and as spans. Pure."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Json, TypeAdapter, ValidationError

from mail.core.decisions.items import (
    Action,
    Answer,
    Asked,
    Cancelled,
    Changes,
    Failed,
    Fault,
    Forked,
    Item,
    Mail,
    Message,
    Note,
    Opened,
    Part,
    Question,
    Reply,
    Told,
    Work,
)
from mail.core.decisions.spans import Spans, readers_of
from mail.core.protocol.question_text import describe_question, question_argument
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import (
    ActionExtra,
    AwaitExtra,
    CallExtra,
    ContextExtra,
    DecisionExtra,
    ForkExtra,
    GuardExtra,
    OpenExtra,
    TextExtra,
)
from mail.core.task.files import files_in
from mail.errors import Subject


class _Call(BaseModel):
    """A call in the answer of a pause, in the style of the agent's API (SPEC, section 8)."""

    model_config = ConfigDict(defer_build=True)
    name: str
    arguments: Json[dict[str, Any]]
    id: str
    call_id: str | None = None
    needs_approval: bool = False
    reviewers: tuple[str, ...] = ()


_CALLS = TypeAdapter(list[_Call], config=ConfigDict(defer_build=True))

_REPEATED = frozenset({Subject.ACTION_COMPLETE, Subject.ACTION_ERROR})
"""Subjects of messages by which the system wakes an agent with results that other items show."""

_FAULTS = frozenset({EventKind.AGENT_ERROR, EventKind.DEAD_LETTER, EventKind.INTERSWARM_MESSAGE_ERROR})


def _read_calls(text: str) -> list[_Call] | None:
    """Return the calls that the answer of a pause lists; None for another text, as of a task of MAIL 1.3.6."""
    try:
        return _CALLS.validate_json(text)
    except ValidationError:
        return None


class Conversation:
    """Reads a task's events in their order. It remembers only what later events can change, however long the task is.

    Attributes:
        seq: the last event that it has read.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._changes = Changes()
        self._spans = Spans()
        self._begins_turn = False
        self._work: Work | None = None
        self._cancelled: Work | None = None
        self._questions: tuple[Question, ...] = ()
        self._asked: tuple[Asked, ...] = ()
        self._asking = ""
        self._waiting: Mapping[tuple[str, str], Action] = {}
        # of the commit that is being read, all of whose events have one time:
        self._time = ""
        self._call: CallExtra | None = None
        self._thoughts: dict[str, dict[str, str]] = {}
        self._action: Event | None = None
        self._files: tuple[dict[str, Any], ...] = ()
        self._is_cancelling = False
        self._faults: tuple[Fault, ...] = ()
        self._replies: tuple[str, ...] | None = None

    def copy(self) -> Self:
        """Return a reader that continues from the same event."""
        copied = copy(self)
        copied._spans = self._spans.copy()
        return copied

    def read(self, event: Event) -> tuple[Item, ...]:
        """Return the items that an event adds or changes: each one whole, with the event as its `version`."""
        self.seq, self._changes = event.seq, Changes(event.seq)
        if event.timestamp != self._time:
            self._time, self._call, self._action = event.timestamp, None, None
            self._thoughts = {}
            self._faults, self._replies, self._is_cancelling = (), None, False
        self._begins_turn = self._spans.read(event, self._changes)
        self._read(event)
        return self._changes.items

    def _read(self, event: Event) -> None:
        match event.kind:
            case EventKind.NEW_MESSAGE | EventKind.INTERSWARM_MESSAGE_RECEIVED:
                self._read_message(event)
            case EventKind.TASK_COMPLETE:
                self._end(event)
            case EventKind.TASK_ERROR:
                if not self._is_cancelling:
                    for fault in self._faults:
                        self._changes.change(fault, ended_task=True)
                    self._add(Failed, event, text=event.text)
            case EventKind.TASK_CANCELLED:
                work = self._work
                self._drop_questions()
                self._add(Cancelled, event, text=event.text)
                self._cancelled, self._is_cancelling = work, True
            case EventKind.TASK_OPENED:
                if isinstance(event.extra, OpenExtra):
                    about = {"by": event.extra.by, "reason": event.extra.reason, "text": event.text}
                    self._add(Opened, event, is_part=True, **about)
            case EventKind.TASK_FORKED:
                if isinstance(event.extra, ForkExtra):
                    self._add(Forked, event, forked_from=event.extra.forked_from, at=event.extra.at)
            case EventKind.TOOL_CALL:
                self._act(event)
                if isinstance(event.extra, CallExtra):
                    self._call = event.extra
                    self._think(event.extra)
            case EventKind.ACTION_CALL:
                self._act(event)
                self._action = event
            case EventKind.ACTION_COMPLETE | EventKind.ACTION_ERROR | EventKind.BUILTIN_TOOL_CALL:
                if isinstance(event.extra, ActionExtra) and event.extra.tool_call_id:
                    self._take_late_result(event, event.extra.tool_call_id)
                else:
                    self._take_result(event)
            case EventKind.ACTION_WAITING:
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
            case EventKind.TASK_COMPLETE_CALL:
                self._act(event)
            case EventKind.TEXT_ANSWER:
                self._act(event)
                # without content, the message or the answer that it is taken as shows the text
                if isinstance(event.extra, TextExtra) and event.extra.content:
                    self._note(event, event.extra.content)
            case EventKind.AWAIT_MESSAGE:
                self._act(event)
                reason = event.extra.reason if isinstance(event.extra, AwaitExtra) else None
                self._note(event, event.text if reason is None else reason)
            case EventKind.CONTEXT_CUT:
                self._act(event)
                summary = event.extra.summary if isinstance(event.extra, ContextExtra) else ""
                self._note(event, f"{event.text}\n\n{summary}".rstrip())
            case EventKind.GUARD_DECISION:
                self._act(event)
                if not (isinstance(event.extra, GuardExtra) and event.extra.is_usual):
                    self._note(event, event.text)
            case kind:
                if event.agent and kind is not EventKind.HISTORY_INHERITED:
                    self._act(event)
                self._note(event, event.text.partition(":\n<incoming_message>")[0])

    def _read_message(self, event: Event) -> None:
        if event.message is None:
            self._note(event, event.text)
            return
        if event.is_redrive:
            self._act(event)
            return
        sent, sender = event.message.message, event.message.sender
        kind, subject, text = event.message.msg_type, sent.subject, sent.body
        names, writer = readers_of(event, event.message), self._spans.writer(sender.address)
        files = tuple(each.as_json() for each in files_in(sent.routing_info))
        if sender.is_person:
            if kind == "response" and text in (self._replies or ()):
                return
            self._drop_questions()
            self._add(
                Message,
                event,
                who=sender.address,
                recipients=names,
                subject=subject,
                text=text,
                type=kind,
                files=files,
            )
            self._begin(event)
        elif any(each.is_person for each in sent.recipients):
            if kind == "request":
                self._asked += (Asked(text, subject),)
            elif sender.address_type == "agent":
                about = {"who": writer, "recipients": names, "subject": subject, "text": text}
                self._add(Told, event, is_part=True, **about)
        elif sender.address_type == "system":
            if kind != "broadcast_complete" and subject not in _REPEATED:
                self._note(event, text, name=subject.strip(":").replace("_", " "), recipients=names)
        elif kind == "broadcast_complete":
            self._files = files
        else:
            about = {"sender": writer, "recipients": names, "subject": subject, "text": text}
            self._add_step(Mail, event, type=kind, files=files, **about, **self._take_thoughts(writer))

    def _drop_questions(self) -> None:
        for question in self._questions:
            if question.is_open:
                self._changes.change(question, is_open=False)
        self._questions = tuple(each for each in self._questions if not each.is_open)

    def _end(self, event: Event) -> None:
        calls = _read_calls(event.text) if event.is_pause else None
        if calls is None:
            turn = self._spans.turn
            who = turn.agent if turn else ""
            files, self._files = self._files, ()
            self._add(Answer, event, who=who, text=event.text, files=files, **self._take_thoughts(who))
            return
        self._close(event)
        questions = sum(not (call.needs_approval or call.reviewers) for call in calls)
        asked = iter(self._asked if len(self._asked) == questions else ())
        self._asked = ()
        open_calls = {each.call_id for each in self._questions if each.is_open}
        for call in calls:
            call_id = call.call_id or call.id
            sent = None if call.needs_approval or call.reviewers else next(asked, None)
            if call_id in open_calls:
                continue
            name = question_argument(call.arguments) if not call.needs_approval else None
            words = describe_question(
                self._asking,
                call.name,
                call.arguments,
                needs_approval=call.needs_approval,
                reviewers=call.reviewers,
            )
            question = self._add(
                Question,
                event,
                agent=self._asking,
                call_id=call_id,
                name=call.name,
                arguments=call.arguments,
                needs_approval=call.needs_approval,
                reviewers=call.reviewers,
                words=words,
                **self._take_thoughts(self._asking),
                asked=sent or (None if name is None else Asked(call.arguments[name], argument=name)),
            )
            self._questions += (question,)

    def _reply(self, event: Event) -> None:
        """Take note of the result of a call of a breakpoint tool, or of the decision on one that needs approval."""
        about, text = event.extra, event.text.partition("\n")[2]
        call_id = ""
        if not isinstance(about, DecisionExtra):
            reply = Reply(time=event.timestamp, text=text)
            self._replies = (*(self._replies or ()), text)
        else:
            call_id, by = about.tool_call_id, (about.by or "").partition(":")[2].partition("@")[0]
            reply = Reply(
                time=event.timestamp,
                text=about.answer,
                decision=about.decision,
                by=by,
                reason=about.reason,
                arguments=about.arguments,
            )
            self._replies = self._replies or ()
        for question in self._questions:
            is_meant = (
                question.call_id == call_id
                if call_id
                else not (question.needs_approval or question.reviewers)
            )
            if question.is_open and question.agent == event.agent and is_meant:
                answered = self._changes.change(question, reply=reply, is_open=False)
                is_run = reply.decision in ("approve", "edit")
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
        call, self._call = self._call, None
        text, has_failed = event.text.partition("\n")[2], event.kind is EventKind.ACTION_ERROR
        self._act(event)
        if call is None or call.agent != event.agent:
            is_builtin = event.kind is EventKind.BUILTIN_TOOL_CALL
            call = None if is_builtin else self._take_approved(event.agent, text)
        if call is None:
            self._note(event, text or event.text)
            return
        began, self._action = self._action or event, None
        after = began.extra.after if isinstance(began.extra, ActionExtra) else None
        seconds = event.extra.seconds if isinstance(event.extra, ActionExtra) else None
        turn = self._spans.turn
        is_waiting = event.kind is EventKind.ACTION_WAITING
        action = self._add_step(
            Action,
            event,
            seq=began.seq,
            time=self._spans.within(after or 0.0, seconds or 0.0),
            turn=turn and turn.id,
            seconds=seconds,
            agent=event.agent,
            name=call.tool_name,
            arguments=call.tool_args,
            call_id=call.tool_call_id,
            result=text,
            has_failed=has_failed,
            is_waiting=is_waiting,
            **self._take_thoughts(event.agent),
        )
        if is_waiting:
            self._waiting = {**self._waiting, (event.agent, call.tool_call_id): action}

    def _take_late_result(self, event: Event, call_id: str) -> None:
        """Add the result of an action to the item of its call, which has waited for it."""
        action = self._waiting.get((event.agent, call_id))
        text = event.text.partition("\n")[2]
        if action is None:  # it has come before the turn of the call
            self._note(event, text)
            return
        failed = event.kind is EventKind.ACTION_ERROR
        self._changes.change(action, result=text, has_failed=failed, is_waiting=False)
        self._waiting = {key: each for key, each in self._waiting.items() if each is not action}

    def _take_approved(self, agent: str, result: str) -> CallExtra | None:
        """Note the result of an agent's first approved call, and return the call; None if there is none."""
        for question in self._questions:
            if not question.is_open and question.agent == agent:
                self._changes.change(question, result=result)
                self._questions = tuple(each for each in self._questions if each is not question)
                arguments = question.reply.arguments if question.reply else None
                return CallExtra(
                    agent=agent,
                    tool_name=question.name,
                    tool_args=question.arguments if arguments is None else arguments,
                    tool_call_id=question.call_id,
                )
        return None

    def _add[Kind: Part](
        self, kind: type[Kind], event: Event, *, is_part: bool = False, **about: Any
    ) -> Kind:
        """Add an item; it ends the work before it, unless it `is_part` of that."""
        if not is_part:
            self._close(event)
        return self._changes.add(kind, event, **about)

    def _add_step[Kind: Part](self, kind: type[Kind], event: Event, **about: Any) -> Kind:
        return self._add(kind, event, is_part=True, work=self._act(event).id, **about)

    def _think(self, call: CallExtra) -> None:
        """Keep what the model gave besides a call for the next item of its agent."""
        known = self._thoughts.get(call.agent, {})
        given = {"reasoning": call.reasoning, "said": call.preamble}
        both = {name: "\n\n".join(filter(None, (known.get(name), text))) for name, text in given.items()}
        self._thoughts = {**self._thoughts, call.agent: both}

    def _take_thoughts(self, agent: str) -> dict[str, Any]:
        thoughts = self._thoughts.get(agent, {})
        self._thoughts = {**self._thoughts, agent: {}}
        return thoughts

    def _note(self, event: Event, text: str, **about: Any) -> None:
        self._add(
            Note,
            event,
            is_part=True,
            **{"agent": event.agent, "name": event.kind.value, "text": text, **about},
        )

    def _begin(self, event: Event) -> Work:
        self._work = self._add(Work, event, is_part=True, last=event.timestamp)
        return self._work

    def _act(self, event: Event) -> Work:
        """Return the work that an event belongs to, which it may begin; count the turns in it."""
        # What agents still do when the task is cancelled belongs to the work before.
        work = self._work or self._cancelled or self._begin(event)
        about: dict[str, Any] = {}
        if self._begins_turn:
            self._begins_turn = False
            about = {"turns": work.turns + 1, "agents": tuple(dict.fromkeys((*work.agents, event.agent)))}
        if about or event.timestamp != work.last:
            grown = self._changes.change(work, last=event.timestamp, **about)
            if work is self._work:
                self._work = grown
            else:
                self._cancelled = grown
            return grown
        return work

    def _close(self, event: Event) -> None:
        if self._work is not None:
            last = event.timestamp if event.is_terminal else self._work.last
            self._changes.change(self._work, ended=last, last=last)
        self._work = self._cancelled = None
