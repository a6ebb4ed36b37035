"""From the items of a thread and its live events to the events of AG-UI.

Text appears as models write it. Everything else comes from the record, so that each call has its result, and what a
client has seen is what the thread keeps: a draft that turns out to be no part of that is taken back by a snapshot.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ag_ui import core as ag
from pydantic_core import from_json

from mail.core.decisions import items
from mail.core.decisions.items import Item
from mail.core.engine.pacing import Paced
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import Task, TaskStatus
from mail.http.agui.input import OURS, call_id_of
from mail.http.agui.turns import Turns
from mail.http.inputs import own_name

UNFINISHED = (
    "the stream has ended before the answer, and the agents continue: run the thread again with the same messages to "
    "follow it"
)

DECISION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "Why not; the agent reads it."},
        "editedArgs": {"type": "object", "description": "Arguments in place of the agent's."},
    },
    "required": ["approved"],
}
"""The JSON Schema of an approval."""

ANSWER = {"type": "string"}

ITEM_BYTES = 1024
"""For how many bytes an item of a thread counts that is written again: it takes as long as the reading of so many."""


class Writer:
    """Writes a run for a client that holds the messages of its input.

    Attributes:
        events: those that are to be sent.
    """

    def __init__(
        self,
        given: ag.RunAgentInput,
        task: Task,
        lent: Collection[str],
        link: Callable[[Mapping[str, Any]], Awaitable[str]],
    ) -> None:
        """Write a run of a task in which the application has the tools `lent`; `link` returns the URL of a file."""
        self.events: list[ag.BaseEvent] = []
        self._given = given
        self._parent = task.entrypoint
        self._lent = lent
        self._link = link
        self._held: list[ag.Message] = [each for each in given.messages if each.role != "activity"]
        self._draft: ag.AssistantMessage | None = None
        self._source: tuple[str, object] | None = None
        self._questions: set[str] = set()
        self._answered: set[str] = set()
        self._is_restating = False
        self._pending: list[str] = []
        self._steps: dict[str, str] = {}  # the names of open steps, by call
        self._acted: set[str] = set()
        self._turns = Turns(task.entrypoint, self._emit)

    def begin(self) -> None:
        """Begin the run."""
        given = self._given
        self._emit(
            ag.RunStartedEvent(
                thread_id=given.thread_id,
                run_id=given.run_id,
                parent_run_id=given.parent_run_id,
                protocol_version=ag.PROTOCOL_VERSION,
            )
        )

    async def restate(self, told: Iterable[Item], known: Mapping[int, ag.Message], pacer: Paced) -> None:
        """Tell a client that may have missed something all that was said and done in the thread.

        Its own messages are `known` by the seq under which they were accepted. Open questions are asked again.
        """
        self._held = [each for each in self._given.messages if each.role in ("system", "developer")]
        self._is_restating, open_questions = True, list[Item]()
        for item in told:
            await pacer.pause(ITEM_BYTES)
            if isinstance(item, items.Question) and item.is_open:
                open_questions.append(item)
            elif isinstance(item, items.Message) and (message := known.get(item.seq)) is not None:
                self._held.append(message)
            else:
                await self._add(item)
        self._turns = Turns(self._parent, self._emit)
        self._pending, self._is_restating = [], False
        self._restate()
        await self.add(open_questions)

    async def add(self, changes: Iterable[Item]) -> None:
        """Write what the record adds."""
        for item in changes:
            await self._add(item)

    async def _add(self, item: Item) -> None:
        match item:
            case items.Turn() | items.ModelCall() | items.Mail():
                self._turns.read(item)
            case items.Message():
                self._say(item.id, item.text, role="user")
            case items.Told():
                self._say(item.id, item.text, name=item.who)
            case items.Answer():
                links = [await self._mention(each) for each in item.files]
                self._say(item.id, "\n\n".join((item.text, *links)), name=item.who or None)
            case items.Action(is_waiting=False) if item.call_id not in self._questions:
                self._remark(item)
                self._acted.add(item.call_id)
                call_id = f"call-{item.id}"
                self._call(call_id, item.name, item.arguments, item.agent)
                self._result(call_id, item.result, item.agent)
            case items.Question():
                self._ask(item)

    def live(self, event: LiveEvent) -> None:
        """Write what a running turn does."""
        source = (event.turn, event.extra.get("call"))
        match event.kind:
            case LiveKind.TURN_STARTED | LiveKind.TURN_ENDED:
                self._turns.live(event)
            case LiveKind.ACTION_STARTED if event.extra["tool_call_id"] not in self._acted:
                self._begin_step(event.extra["tool_call_id"], f"{event.agent}: {event.extra['tool_name']}")
            case LiveKind.ACTION_ENDED:
                self._end_step(event.extra["tool_call_id"])
            case LiveKind.MODEL_CALL_RETRIED if source == self._source:
                self._end_draft(keeps=False)
            case LiveKind.TEXT_DELTA if event.is_answer and event.delta:
                if source != self._source:
                    self._end_draft()
                    self._source = source
                    self._begin_draft(f"{OURS}{event.turn}-{source[1]}", event.agent)
                self._extend(event.delta)

    def end(self, told: Sequence[Item], status: TaskStatus, *, is_typed: bool) -> None:
        """End the run as it has ended, with the items that were `told`; `is_typed` if its answer is a JSON value."""
        self._end_draft()
        for step in list(self._steps):
            self._end_step(step)
        self._turns.end()
        given, usage = self._given, self._turns.usage() or None
        ids: dict[str, Any] = {"thread_id": given.thread_id, "run_id": given.run_id, "usage": usage}
        match status:
            case TaskStatus.RUNNING:
                self.fail(UNFINISHED, "unfinished")
            case TaskStatus.FAILED:
                why = [each.text for each in told if isinstance(each, items.Failed)]
                self._emit(ag.RunErrorEvent(message="".join(why[-1:]), code="task_failed", usage=usage))
            case TaskStatus.CANCELLED:
                self._emit(ag.RunFinishedEvent(**ids, outcome=ag.RunFinishedCancelledOutcome()))
            case _:
                asked = [each for each in told if isinstance(each, items.Question) and each.is_open]
                own = [each for each in asked if each.name not in self._lent and not each.reviewers]
                interrupts = list(map(self._interrupt, own))
                pending = [*self._pending, *(call_id_of(each) for each in asked if each.reviewers)]
                success = ag.RunFinishedSuccessOutcome(pending_tool_call_ids=pending or None)
                outcome = ag.RunFinishedInterruptOutcome(interrupts=interrupts) if interrupts else success
                result = _last_value(told) if is_typed and not asked else None
                self._emit(ag.RunFinishedEvent(**ids, outcome=outcome, result=result))

    def fail(self, message: str, code: str) -> None:
        """End the run with an error of the request."""
        self._emit(ag.RunErrorEvent(message=message, code=code))

    def _emit(self, event: ag.BaseEvent) -> None:
        if not self._is_restating:  # a snapshot has it
            self.events.append(event)

    def _restate(self) -> None:
        self._emit(ag.MessagesSnapshotEvent(messages=list(self._held)))

    # ------------------------------------------------------------------------------------------------ text

    def _say(self, item_id: str, text: str, *, role: str = "assistant", name: str | None = None) -> None:
        """Write a message, which a draft may have begun."""
        draft = self._draft
        if draft is not None and role == "assistant":
            if text.startswith(draft.content or ""):
                self._extend(text.removeprefix(draft.content or ""))
                self._end_draft()
                return
            self._end_draft(keeps=(draft.content or "") not in text)
        message_id = f"{OURS}{item_id}"
        kind: Any = ag.UserMessage if role == "user" else ag.AssistantMessage
        self._held.append(kind(id=message_id, content=text, name=name))
        role_given: Any = role
        self._emit(ag.TextMessageStartEvent(message_id=message_id, role=role_given, name=name))
        if text:
            self._emit(ag.TextMessageContentEvent(message_id=message_id, delta=text))
        self._emit(ag.TextMessageEndEvent(message_id=message_id))

    def _remark(self, item: items.Action | items.Question) -> None:
        """Write what the entrypoint said before a call."""
        if item.said and item.agent == self._parent:
            self._say(f"{item.id}-said", item.said, name=item.agent)

    def _begin_draft(self, message_id: str, agent: str) -> None:
        self._draft = ag.AssistantMessage(id=message_id, content="", name=agent)
        self._emit(ag.TextMessageStartEvent(message_id=message_id, role="assistant", name=agent))

    def _extend(self, text: str) -> None:
        if self._draft is not None and text:
            self._draft.content = (self._draft.content or "") + text
            self._emit(ag.TextMessageContentEvent(message_id=self._draft.id, delta=text))

    def _end_draft(self, *, keeps: bool = True) -> None:
        draft, self._draft, self._source = self._draft, None, None
        if draft is None:
            return
        self._emit(ag.TextMessageEndEvent(message_id=draft.id))
        if keeps:
            self._held.append(draft)
        else:
            self._restate()

    async def _mention(self, file: Mapping[str, Any]) -> str:
        """Return a file of an answer as Markdown, which front ends show."""
        is_image = file["type"].startswith("image/")
        return f"{'!' if is_image else ''}[{file['name']}]({await self._link(file)})"

    # ----------------------------------------------------------------------------------------------- calls

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any], agent: str) -> None:
        subagent, message_id, text = self._turns.subagent_of(agent), f"{OURS}{call_id}", json.dumps(arguments)
        call = ag.ToolCall(id=call_id, function=ag.FunctionCall(name=name, arguments=text))
        self._held.append(ag.AssistantMessage(id=message_id, tool_calls=[call], subagent_run_id=subagent))
        about: dict[str, Any] = {"tool_call_id": call_id, "subagent_run_id": subagent}
        self._emit(ag.ToolCallStartEvent(**about, tool_call_name=name, parent_message_id=message_id))
        self._emit(ag.ToolCallArgsEvent(**about, delta=text))
        self._emit(ag.ToolCallEndEvent(**about))

    def _result(self, call_id: str, text: str, agent: str) -> None:
        about: dict[str, Any] = {
            "tool_call_id": call_id,
            "content": text,
            "subagent_run_id": self._turns.subagent_of(agent),
        }
        self._held.append(ag.ToolMessage(id=f"{OURS}{call_id}-result", **about))
        self._emit(ag.ToolCallResultEvent(message_id=f"{OURS}{call_id}-result", **about))

    def _ask(self, question: items.Question) -> None:
        """Write the call of a question when it is asked, and its result once there is one."""
        call_id, is_lent = call_id_of(question), question.name in self._lent
        if question.call_id not in self._questions and (question.is_open or self._is_restating):
            self._remark(question)
            self._call(call_id, own_name(question.name), question.arguments, question.agent)
            (self._pending if is_lent else self._turns.raised).append(call_id)
            if question.is_open and question.reviewers:
                self._say(f"{question.id}-waits", question.words)
        self._questions.add(question.call_id)
        answers = self._is_restating or not is_lent  # the application has what its own tools returned
        if answers and call_id not in self._answered and (text := _result_of(question)) is not None:
            self._answered.add(call_id)
            self._result(call_id, text, question.agent)

    def _interrupt(self, question: items.Question) -> ag.Interrupt:
        approval = question.needs_approval
        return ag.Interrupt(
            id=call_id_of(question),
            reason="tool_call" if approval else "input_required",
            message=question.asked.text if question.asked else question.words,
            tool_call_id=call_id_of(question),
            response_schema=DECISION if approval else ANSWER,
        )

    def _begin_step(self, call_id: str, name: str) -> None:
        """Show that a tool runs; a step stands for all calls at the same time that have its name."""
        if name not in self._steps.values():
            self._steps[call_id] = name
            self._emit(ag.StepStartedEvent(step_name=name))

    def _end_step(self, call_id: str) -> None:
        if (name := self._steps.pop(call_id, None)) is not None:
            self._emit(ag.StepFinishedEvent(step_name=name))


def _result_of(question: items.Question) -> str | None:
    """Return the result of a call that waited for a person; None while there is none."""
    if question.result is not None or question.is_open:
        return question.result
    reply = question.reply
    if reply is None:
        return "dropped: the user sent a message instead of an answer"
    if reply.text is not None:
        return reply.text
    return f"rejected: {reply.reason}" if reply.decision == "reject" else None


def _last_value(told: Sequence[Item]) -> Any:
    """Return the typed answer of a run; None if it is none, such as the system's answer to an error."""
    answers = [each.text for each in told if isinstance(each, items.Answer)]
    try:
        return from_json(answers[-1], allow_inf_nan=False) if answers else None
    except ValueError:
        return None
