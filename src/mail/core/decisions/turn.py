"""The effect of a turn on its task: `settle`, and the other ways a turn can end. Pure functions.

Rules first (SPEC, section 5):

- the calls of a turn are processed in order; each leaves a tool result in the agent's history;
- an agent that makes an error gets a system message about it, which also wakes it again;
- an agent that keeps failing is reported to the sender of its message, or the task ends with an error;
- after the step limit, only the entrypoint (or a supervisor, if it isn't one) gets one more turn, to finish;
- a running task without any mail would hang: it is nudged the first time, and ended the second time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, Required, TypedDict

from mail.core.decisions.approvals import expire_approvals
from mail.core.decisions.breakpoints import NO_ITEMS, pause
from mail.core.decisions.callbacks import close, let_wait
from mail.core.decisions.cancel import discard, is_discarded
from mail.core.decisions.failing_calls import count_call, note_failures
from mail.core.decisions.guards import decided, in_words, refused
from mail.core.decisions.stalls import can_wait, prevent_stall
from mail.core.decisions.text_answers import TEXT_ALONE, interpret
from mail.core.decisions.tools import ToolExecutor
from mail.core.decisions.waits import fall_due
from mail.core.protocol.address import create_agent_address, parse_agent_address
from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT, AgentToolCall
from mail.core.protocol.mail_tools import MAILTool, TaskComplete, read_call
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.output_schema import written
from mail.core.protocol.question_text import shortened
from mail.core.protocol.values import value
from mail.core.protocol.xml import render_message
from mail.core.task.change import TaskChange, Turn
from mail.core.task.context import UNKNOWN, AgentContext, Preparation
from mail.core.task.costs import NO_MODELS, NO_USAGE, Usage
from mail.core.task.draft import Draft
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import (
    ActionExtra,
    CallExtra,
    ContextExtra,
    Extra,
    MessageExtra,
    PauseExtra,
    SwitchExtra,
    TextExtra,
)
from mail.core.task.fallback import Switch, SwitchCause
from mail.core.task.guards import TEXT, Verdict
from mail.core.task.limits import FAULTS_IN_A_ROW, NO_BUDGET
from mail.core.task.mailboxes import agent_of
from mail.core.task.members import show_address
from mail.core.task.size import MAX_HELD, json_size
from mail.core.task.swarm import (
    ActionCore,
    AgentCore,
    FormContext,
    FormResult,
    History,
    SwarmCore,
    UserQuestion,
)
from mail.core.task.task import Task, TaskStatus
from mail.core.task.timers import Timer
from mail.core.task.turn_state import Checkpoint, Receipt, TurnTiming
from mail.core.task.waits import Wait
from mail.errors import AgentFault, Refused, Subject, ToolCallFault, UnknownTool

MOST_PINS = 32
"""How many messages stay in an agent's context in one run: the first and the last ones."""

ANNOUNCED = 400
"""Characters of a result in the message that wakes its agent, which has the result in its history, too."""

MAX_FAULT_TEXT = 300
"""Characters of the last error, of an agent or an action, in the report of a failure."""


@value
class AgentFailure:
    """The failure of an agent function.

    Attributes:
        reason: the reason to report.
        usage, models: what its models cost nevertheless, in total and by model.
        attempts: the number of attempts at the turn.
        timing, preparation: as in `Checkpoint`.
    """

    reason: str
    usage: Usage = NO_USAGE
    models: Mapping[str, Usage] = NO_MODELS
    attempts: int = 1
    timing: TurnTiming | None = None
    preparation: Preparation | None = None


TurnOutput = Checkpoint | AgentFailure
"""The outcome of running an agent: its output with the receipts of all actions, or its failure."""


@value(kw_only=True)
class Background:
    """What settling a turn reads besides its task and output.

    Attributes:
        mail: the task's messages so far, for forms that read them.
        kept: the stored checkpoint, if any.
        reminders: the first of the agent, and those that it cancels (`mail.core.decisions.tools.reminders_asked`).
    """

    mail: Sequence[MAILMessage] = ()
    kept: Checkpoint | None = None
    reminders: Sequence[Timer] = ()


NO_BACKGROUND = Background()


def settle(
    draft: Draft, turn: Turn, output: TurnOutput, background: Background = NO_BACKGROUND
) -> TaskChange:
    """Decide the effect of a turn on the task as it is now, which may have changed since the turn began."""
    if is_discarded(draft.before, turn):
        return discard(draft, turn, output.usage, output.models, background.kept)
    return Settlement(draft, turn, AUTOMATIC, background).settle(output)


def on_limit_reached(
    draft: Draft, turn: Turn, limit: str, events: Sequence[Event], room: int | None = None
) -> TaskChange | None:
    """Tell the supervisor to finish, as a limit is reached; the mail stays where it is (SPEC, section 5).

    The entrypoint finishes if it can complete tasks. `events` is the task's timeline; its messages are the transcript
    for the supervisor: of more than `room` characters, the first one and the newest. Return None if the task has
    stopped meanwhile, or the notice was sent already.
    """
    if not draft.is_running or draft.generation.limit_notice is not None:
        return None
    draft.end_turn(turn, consume=False)
    transcript = "\n\n".join(_within([render_message(message) for message in _transcript(events)], room))
    draft.tell(
        draft.swarm.closing_agent(draft.entrypoint),
        Subject.MAXIMUM_STEPS_REACHED,
        f"This task has used up its {limit}. Call task_complete now, with the best answer "
        f"that this transcript allows:\n\n{transcript}",
        MessageExtra(out_of_steps=True),
    )
    draft.generation = replace(draft.generation, limit_notice=draft.seq + 1, limit_reached=limit)
    return draft.seal()


def _transcript(events: Sequence[Event]) -> Iterator[MAILMessage]:
    """Yield the messages so far, without earlier notices of this kind, which contain the messages before them."""
    for event in events:
        if event.message is not None and not (event.is_out_of_steps or event.is_redrive):
            yield event.message


def _within(texts: list[str], room: int | None) -> list[str]:
    """Return the first and the newest texts that take at most `room` characters together; None for no limit."""
    if room is None or sum(map(len, texts)) <= room:
        return texts
    first = shortened(texts[0], room // 4)
    newest: list[str] = []
    left = room - len(first)
    for text in reversed(texts[1:]):
        left -= min(len(text), room // 4)
        if left < 0:
            break
        newest.insert(0, shortened(text, room // 4))
    omitted = len(texts) - 1 - len(newest)
    return [first, *([f"({omitted} messages are left out here.)"] if omitted else []), *newest]


def outgrow(
    draft: Draft,
    turn: Turn,
    usage: Usage,
    models: Mapping[str, Usage],
    limit: int,
    kept: Checkpoint | None = None,
) -> TaskChange:
    """End a task that a turn would make larger than its `limit`, in bytes.

    Of the turn only its cost is stored, and its message becomes a dead letter. `kept` is the stored checkpoint, if any.
    """
    if is_discarded(draft.before, turn):
        return discard(draft, turn, usage, models, kept)
    settlement = Settlement(draft, turn, AUTOMATIC)
    settlement.charge(usage, models)
    settlement.outgrow(
        f"the task may store {limit} bytes and has stored {draft.stored_bytes}; the next turn of agent "
        f"'{turn.mailbox}' would exceed that. Begin a new task"
    )
    return settlement.seal()


def abandon(draft: Draft, turn: Turn, reason: str, attempts: int) -> TaskChange:
    """End a task because so many attempts at one of its turns could not be committed.

    Nothing that the turn has made is stored, not even its cost, as any of it may be the fault. Its message becomes a
    dead letter, unless it waits for approved calls, which run when the task is resumed.
    """
    if draft.swarm.has(turn.mailbox) and is_discarded(draft.before, turn):
        return discard(draft, turn, NO_USAGE, NO_MODELS)
    has_approved_calls = draft.before.approved_calls_of(turn.mailbox) is not None
    draft.end_turn(turn, consume=not has_approved_calls)
    if not has_approved_calls:
        entry = turn.entry
        draft.dead_letter(turn.mailbox, reason, attempts, message=entry.message, message_seq=entry.seq)
    if draft.is_running:
        draft.fail(
            f"The task was ended: {attempts} attempts at a turn of {turn.mailbox!r} could not be stored: {reason}."
        )
    return draft.seal()


def end_unreadable(draft: Draft, mailbox: str) -> TaskChange | None:
    """End a running task, as what the next turn of a mailbox reads is stored no longer; None if it doesn't run."""
    if not draft.is_running:
        return None
    draft.fail(
        f"The task was ended: a long text that {mailbox!r} must read is no longer stored, as its retention has ended "
        "or it was deleted. Begin a new task."
    )
    return draft.seal()


def expire(draft: Draft, turn: Turn | None, waits: Sequence[Wait] | None = None) -> TaskChange | None:
    """End a task whose time limit has passed, else do what is due in it (`Task.deadline`).

    These are requests to other swarms, approvals of a paused task, and open calls and timers: of these, `waits` are the
    first (`mail.core.decisions.waits.fall_due`). Return None if nothing is due yet, or for a schedule.
    """
    task, now = draft.before, draft.time_in(0.0)
    if task.schedule is not None:
        return None
    change = None
    if task.status is TaskStatus.PAUSED:
        change = expire_approvals(draft, now)
    elif task.is_running and not task.is_overdue(now):
        change = expire_requests(draft, now)
    if change is not None:
        return change
    if not (task.is_running and task.is_overdue(now)):
        return fall_due(draft, waits, now)
    if turn is not None:
        draft.end_turn(turn, consume=False)
    draft.fail("The task did not finish within its time limit.", Subject.TASK_TIMEOUT)
    return draft.seal()


def expire_requests(draft: Draft, now: float) -> TaskChange | None:
    """Close requests to other swarms whose deadline has passed, and notify their senders. None if there are none."""
    expired = [
        request
        for request in draft.requests
        if request.answer_deadline is not None and request.answer_deadline <= now
    ]
    for request in expired:
        draft.close_request(request)
        draft.note_unanswered(request)
    for request in expired:
        text = (
            f"{show_address(request.recipient)} has not answered in time. A later answer still reaches you."
        )
        draft.emit(EventKind.INTERSWARM_MESSAGE_ERROR, text)
        if not request.sender:
            draft.answer_owner(create_agent_address(request.recipient), text, failed=True)
        elif draft.swarm.has(request.sender):
            draft.tell(request.sender, Subject.RUNTIME_ERROR, text)
    if not expired:
        return None
    prevent_stall(draft)
    return draft.seal()


def text_recipient(draft: Draft, turn: Turn) -> str:
    """Return who receives text that the agent writes in this turn, if it calls no tool: an agent, or `user`.

    Live events show it while a model writes. Empty if nobody would receive it: a remark, or an agent that must call
    tools.
    """
    agent = draft.swarm.agent(turn.mailbox)
    if agent.strict_tools or draft.before.turn_tools(turn.mailbox).is_required:
        return ""
    draft.end_turn(turn, consume=True)
    try:
        tool = _read_text("…", draft, turn)
    except AgentFault:
        return ""
    return "" if tool is None else getattr(tool, "target", "user")


def _read_text(text: str, draft: Draft, turn: Turn) -> MAILTool | None:
    """Return the tool call that text stands for, as `interpret` does; after a limit is reached, it ends the task."""
    if turn.entry.seq == draft.before.generation.limit_notice:
        return TaskComplete(finish_message=text)
    name = turn.mailbox
    agent = draft.swarm.agent(name)
    return interpret(text, draft, name, agent, turn.entry.message, can_wait=can_wait(draft))


def find_used_up(task: Task, swarm: SwarmCore, turn: Turn, now: float) -> str | None:
    """Return the limit that forbids this turn, in words; None if it may run.

    System messages count as turns but not as steps. `now` is in seconds since the epoch.
    """
    generation, limits = task.generation, task.limits
    if generation.limit_notice is not None:
        return None if turn.mailbox == swarm.closing_agent(task.entrypoint) else generation.limit_reached
    begun = generation.steps + turn.running_turns
    # `max_steps` and `max_turns` are never less than the limits
    if begun >= limits.steps and begun >= task.max_steps and is_step(turn.entry.message, swarm):
        return f"{task.max_steps} steps"
    if generation.turns >= limits.turns and generation.turns >= task.max_turns:
        return f"{task.max_turns} turns"
    budget = limits.budget
    if budget is NO_BUDGET:
        return None
    if budget.turns is not None and generation.turns + turn.running_turns >= budget.turns:
        return f"budget of {budget.turns} turns"
    if budget.tokens is not None and generation.spent.tokens >= budget.tokens:
        return f"budget of {budget.tokens} tokens"
    if budget.cost is not None and generation.spent.cost >= budget.cost:
        return f"budget of ${budget.cost:g}"
    if limits.finish_by is not None and now >= limits.finish_by:
        return f"budget of {budget.seconds:g} seconds"
    return None


def is_step(message: MAILMessage, swarm: SwarmCore) -> bool:
    """Return whether processing the message counts as a step: all do, except this swarm's system messages."""
    sender = message.message.sender
    return sender.address_type != "system" or sender.address != swarm.name


class _TurnFields(TypedDict, total=False):
    """The fields of `Extra` about a turn."""

    agent: Required[str]
    usage: Usage
    timing: TurnTiming


class SettlementPolicy(Protocol):
    """The rules of a settlement that depend on the task's mode; `mail.core.decisions.manual` has those of a step."""

    def text_of(self, output: Checkpoint) -> str | None:
        """Return the text of an output that calls no tool of MAIL; None if there is no text, or such a call."""

    def take_text(self, settlement: "Settlement", text: str | None, content: str) -> None:
        """Do what the `content` that an agent wrote stands for; `text` is None if it calls other tools beside it."""

    def perform(self, settlement: "Settlement", call: AgentToolCall, result: FormResult) -> str | None:
        """Perform a MAIL tool and return its result; None if the user gives it. Raises AgentFault."""

    def end_output(self, settlement: "Settlement", output: Checkpoint) -> None:
        """Do what follows from all calls of an output."""

    def agent_failed(self, settlement: "Settlement", reason: str) -> None:
        """Do what follows from a failure of the agent function, beside the dead letter."""

    def may_give_up(self, settlement: "Settlement") -> bool:
        """Return whether too many faulty turns in a row count as a failure."""

    def end_turn(self, settlement: "Settlement", *, gave_up: bool) -> None:
        """Ensure that a task that still runs can end."""


def text_alone(output: Checkpoint) -> str | None:
    """Return the text of an output that calls no tool of MAIL; None if there is no visible text, or such a call."""
    said: list[AgentToolCall] = []
    for call in output.calls:
        tool = call.tool_name
        if tool == TEXT_OUTPUT:
            said.append(call)
        elif tool not in BUILTIN_TOOLS:
            return None
    if output.calls and not said:
        return None
    text = output.text or "\n\n".join(str(call.tool_args.get("content", "")) for call in said)
    return text if text.strip() else None


class _Automatic:
    """The rules of a task whose agents are woken by their mail."""

    text_of = staticmethod(text_alone)

    def take_text(self, settlement: "Settlement", text: str | None, content: str) -> None:
        settlement.take_text(text)

    def perform(self, settlement: "Settlement", call: AgentToolCall, result: FormResult) -> str | None:
        if isinstance(result, UserQuestion) and not settlement.tools.is_finished:
            settlement.ask(call, result)
            return None
        return f"SUCCESS: {settlement.tools.perform(result)}"

    def end_output(self, settlement: "Settlement", output: Checkpoint) -> None:
        if settlement.tools.acts:
            settlement.wake_after_actions(output)

    def agent_failed(self, settlement: "Settlement", reason: str) -> None:
        if prompts := settlement.turn.prompts:
            settlement.draft.remember(settlement.name, prompts)
        settlement.report_failure(reason)

    def may_give_up(self, settlement: "Settlement") -> bool:
        return not settlement.is_last

    def end_turn(self, settlement: "Settlement", *, gave_up: bool) -> None:
        if settlement.is_last:
            limit = settlement.task.generation.limit_reached
            settlement.draft.fail(f"The task used up its {limit} and was not finished.")
            return
        if gave_up:
            settlement.fail_after_faults()
        elif settlement.failed_call is not None:
            settlement.report_failure(settlement.failed_call, settlement.waiting_agent())
        prevent_stall(settlement.draft)


AUTOMATIC: SettlementPolicy = _Automatic()


class Settlement:
    """The settlement of one turn.

    Attributes:
        is_last: whether the turn is the one that has to finish the task, as a limit is reached.
        failed_call: why a call that keeps failing ends the turn.
    """

    failed_call: str | None = None
    _faults = 0
    _first_fault = ""
    _output: Checkpoint
    _last_reasoning: str | None = None

    def __init__(
        self, draft: Draft, turn: Turn, policy: SettlementPolicy, background: Background = NO_BACKGROUND
    ) -> None:
        self.draft = draft
        self.task = task = draft.before
        self.swarm = swarm = draft.swarm
        self.turn = turn
        self.name = turn.mailbox
        self.agent: AgentCore = swarm.agent(self.name)
        draft.end_turn(turn, consume=True)
        self.is_last = turn.entry.seq == task.generation.limit_notice
        self.tools = ToolExecutor(draft, turn, self.agent, background.reminders)
        self._policy = policy
        self._mail = background.mail
        self._client_tools = None if task.generation.client_tools is None else task.client_tools_of(self.name)
        self._questions: dict[str, UserQuestion] = {}
        self._held: dict[str, ActionCore | None] = {}
        self._failing_calls = task.generation.failing_calls
        self._unannounced: _TurnFields = {"agent": self.name}

    def settle(self, output: TurnOutput) -> TaskChange:
        """Return the change that the turn's output makes."""
        self.charge(output.usage, output.models)
        if output.timing is not None:
            self._unannounced["timing"] = output.timing
        if isinstance(output, Checkpoint):
            self.draft.files = output.files
            if output.switch is not None:
                self._switch(output.switch)
            self._process(output)
            if output.preparation is not None:
                self._prepare(output.preparation)
        else:
            self._emit(EventKind.AGENT_ERROR, f"agent '{self.name}' failed: {output.reason}")
            self._dead_letter(output.reason, output.attempts)
            self._policy.agent_failed(self, output.reason)
            if output.preparation is not None:
                self._learn_window(output.preparation.context)
        if self.agent.context is not None and any(
            entry.message.stays for entry in (self.turn.entry, *self.turn.also_read)
        ):
            self._pin()
        return self.seal()

    def _prepare(self, preparation: Preparation) -> None:
        """Store what the turn has done to the agent's context, unless that has changed since it was prepared."""
        context = self.task.contexts.get(self.name, UNKNOWN)
        cut, before = preparation.context.cut, context.cut
        if before != preparation.before:
            return
        prompts = json_size(self.turn.prompts)
        self.draft.prepare(self.name, preparation, prompts)
        if cut == before:
            return
        about = f"the context of agent {self.name} was cut: "
        if cut.begin != before.begin:
            by = "a summary" if preparation.summary else "a note"
            turns = "turn" if cut.begin == 2 else f"{cut.begin - 1} turns"
            about += f"{by} stands for its first {turns}; "
        about += f"long results up to turn {cut.references} are references"
        extra = ContextExtra(
            **self._of_turn(), begin=cut.begin, references=cut.references, summary=preparation.summary
        )
        self.draft.emit(EventKind.CONTEXT_CUT, about, extra)

    def _learn_window(self, context: AgentContext) -> None:
        """Store the window that a refused call has taught, without the cut, as the turn has failed."""
        before = self.task.contexts.get(self.name, UNKNOWN)
        learnt = replace(before, window=context.window, model=context.model)
        if learnt != before:
            self.draft.contexts = {**self.draft.contexts, self.name: learnt}

    def _pin(self) -> None:
        """Let the message that the turn has read stay in the agent's context for this run."""
        draft, n = self.draft, self.draft.portions(self.name)
        pins = self.task.pins_of(self.name)
        if n and n not in pins and n > self.task.histories.get(self.name, 0):
            pins = (*pins[:1], *pins[1:][-MOST_PINS + 2 :], n)
            draft.generation = replace(draft.generation, pins={**draft.generation.pins, self.name: pins})

    def _switch(self, switch: Switch) -> None:
        """Store to which model the agent's calls go from now on, and announce it unless it only lasts longer."""
        name = agent_of(self.name)
        before = self.task.switches.get(name)
        others = {agent: each for agent, each in self.task.switches.items() if agent != name}
        is_over = switch.cause is SwitchCause.RECOVERED
        self.draft.switches = others if is_over else {**others, name: switch}
        if before is None or before.model != switch.model:
            extra = SwitchExtra(
                **self._of_turn(),
                model=switch.model,
                previous=switch.previous,
                cause=switch.cause,
                until=switch.until,
            )
            self.draft.emit(EventKind.MODEL_SWITCHED, f"agent {self.name} {switch.text}", extra)

    def charge(self, usage: Usage, models: Mapping[str, Usage]) -> None:
        """Charge the agent for its models in this turn; the turn's first event shows the cost."""
        if prepaid := self.task.prepaid:
            usage, models = self.task.unpaid(self.name, self.turn.entry.seq, usage, models)
            self.draft.prepaid = {agent: paid for agent, paid in prepaid.items() if agent != self.name}
        if usage is not NO_USAGE and usage:
            self.draft.charge(self.name, usage, models)
            self._unannounced["usage"] = usage

    def outgrow(self, reason: str) -> None:
        """Record that the turn is too large to be stored, and end the task."""
        self._emit(EventKind.AGENT_ERROR, f"the turn of agent '{self.name}' is not stored: {reason}")
        self._dead_letter(reason, 1)
        if self.draft.is_running:
            self.draft.fail(f"The task was ended: {reason}.")

    def _process(self, output: Checkpoint) -> None:
        """Process the agent's calls, in order."""
        history: History = self.turn.prompts
        said: History = []
        self.tools.acts = any(output.receipts)
        self._output = output
        user_has_tools = self._client_tools is not None or self.swarm.breakpoint_tools
        breakpoints: list[AgentToolCall] = []
        judgement = output.judgement
        if judgement is not None:
            for extra in decided(output):
                about = replace(extra, **self._of_turn())
                self.draft.emit(EventKind.GUARD_DECISION, in_words(extra, self.name), about)
        for index, (call, receipt) in enumerate(zip(output.calls, output.receipts, strict=True)):
            if (turns := call.turns) != said:  # calls of one completion share it; their results follow it
                said = turns
                history += said
            self._emit_call(call)
            if judgement is not None and (refusal := judgement.refusal(index)) is not None:
                history.append(call.create_response_msg(f"ERROR: {self._refuse(refusal)}"))
                continue
            if (
                (receipt is not None or user_has_tools)
                and self._waits_for_the_user(call, receipt)
                and not self.tools.is_finished
            ):
                if problem := self._problem_of_question(call, breakpoints):
                    self._fault(ToolCallFault(problem))
                    history.append(call.create_response_msg(f"ERROR: {problem}"))
                else:
                    breakpoints.append(call)
                continue
            result = self._perform(call, receipt)
            if self._questions and call.tool_call_id in self._questions:
                breakpoints.append(call)
                continue
            if result is not None:
                history.append(call.create_response_msg(result))
        if not output.calls:
            text = self._policy.text_of(output)
            if text is None:
                self._fault(
                    ToolCallFault(
                        "the model returned an empty reply, but every turn must call at least one tool"
                    )
                )
            else:
                history.append({"role": "assistant", "content": text})
                if judgement is not None and (refusal := judgement.refusal(TEXT)) is not None:
                    self._refuse(refusal)
                else:
                    self._policy.take_text(self, text, text)
        if breakpoints:
            history += self._pause(breakpoints)
        if not (self.tools.forgets and len(output.calls) == 1):
            self.draft.remember(self.name, history)
        self._policy.end_output(self, output)

    def seal(self) -> TaskChange:
        """Return the complete change."""
        draft = self.draft
        faults = draft.generation.faults
        if draft.waits.early:  # of calls that this turn has lost
            early = tuple(each for each in draft.waits.early if each[1] != self.turn.entry.seq)
            draft.waits = replace(draft.waits, early=early)
        gave_up = False
        if self._faults or self.name in faults:
            count = faults.get(self.name, 0) + 1 if self._faults else 0
            gave_up = count >= FAULTS_IN_A_ROW and draft.is_running and self._policy.may_give_up(self)
            if count and not gave_up:
                faults = {**faults, self.name: count}
            else:
                faults = {agent: count for agent, count in faults.items() if agent != self.name}
        draft.generation = draft.generation.after_turn(
            self.swarm.digest,
            is_step=is_step(self.turn.entry.message, self.swarm),
            faults=faults,
            failing_calls=self._failing_calls,
        )
        if draft.is_running:
            self._policy.end_turn(self, gave_up=gave_up)
        return draft.seal()

    def fail_after_faults(self) -> None:
        """Report the agent's failure after too many faulty turns in a row, and make its message a dead letter."""
        self._dead_letter(self.faults_in_words, FAULTS_IN_A_ROW)
        self.report_failure(self.faults_in_words)

    def waiting_agent(self) -> str | None:
        """Return the agent that waits for this one's answer; None for the entrypoint, which answers the task."""
        if self.name == self.task.entrypoint:
            return None
        asked = (each.sender for each in reversed(self.draft.requests) if each.recipient == self.name)
        return next(filter(None, asked), None)

    @property
    def faults_in_words(self) -> str:
        """Why the agent has failed, with the first error of its last turn, to which others may be due."""
        return f"{FAULTS_IN_A_ROW} faulty turns in a row; the last: {_shortened(self._first_fault)}"

    def _waits_for_the_user(self, call: AgentToolCall, receipt: Receipt | None) -> bool:
        """Return whether the user runs the tool, a breakpoint tool or one of the caller's, or must approve the call."""
        if call.tool_name in self.swarm.breakpoint_tools:
            return True
        if receipt is not None and receipt.state is Receipt.State.HELD:
            self._held[call.tool_call_id] = self.swarm.actions.get(call.tool_name)  # None: an MCP server's
            return True
        tools = self._client_tools
        return tools is not None and receipt is None and tools.holds(call.tool_name)

    def _problem_of_question(self, call: AgentToolCall, before: Sequence[AgentToolCall]) -> str:
        """Return why reviewers don't get a question: with those `before`, it is more than a person reads."""
        asked = self.swarm.asked_by
        if asked(call.tool_name) is None:
            return ""
        size = sum(json_size(each.tool_args) for each in (*before, call) if asked(each.tool_name) is not None)
        if size <= MAX_HELD:
            return ""
        return (
            f"{call.tool_name} was not asked: the questions of a turn to reviewers may have {MAX_HELD} bytes together, "
            f"not {size}. Shorten them, or put a long text into a file and pass its id."
        )

    def _perform(self, call: AgentToolCall, receipt: Receipt | None) -> str | None:
        """Process one call and return its tool result; None if it has one already, or gets it later."""
        if receipt is not None:
            if receipt.state is Receipt.State.HELD:  # the task has just ended
                return "ERROR: it was not run: nobody has approved it"
            return self._report_action(call, receipt)
        tool = call.tool_name
        if tool in BUILTIN_TOOLS:
            self._emit(EventKind.BUILTIN_TOOL_CALL, f"agent {self.name} used builtin tool {tool}")
            return None
        if tool == TEXT_OUTPUT:
            text = self._policy.text_of(self._output)
            self._policy.take_text(self, text, str(call.tool_args.get("content", "")))
            return None
        try:
            return self._policy.perform(self, call, self._read(call))
        except AgentFault as fault:
            self._fault(fault)
            return f"ERROR: {fault.detail}"

    def _refuse(self, verdict: Verdict) -> str:
        """Do what follows from a refusal, which the agent reads as an error of its own; return what it reads."""
        text = refused(verdict.reason)
        self._fault(Refused(f"{verdict.guard}: {text}"))
        return text

    def ask(self, call: AgentToolCall, question: UserQuestion) -> None:
        """Let a call wait for the answer to its question."""
        self._questions[call.tool_call_id] = question

    def take_text(self, text: str | None) -> None:
        """Do what the agent's text stands for (`mail.core.decisions.text_answers`); None for text beside tool calls.

        If the agent must call a tool, it is an error.
        """
        if self.tools.is_finished:
            return
        try:
            must_call = self.agent.strict_tools or self.task.turn_tools(self.name).is_required
            if text is None or must_call:
                raise ToolCallFault(TEXT_ALONE)
            tool = _read_text(text, self.draft, self.turn)
            taken_as, whom = "a remark", ""
            if tool is not None:
                whom = getattr(tool, "target", "")
                taken_as = f"an answer to {whom}" if whom else "the answer to the task"
            self.draft.emit(
                EventKind.TEXT_ANSWER,
                f"agent {self.name} wrote text without a tool call; it is taken as {taken_as}",
                TextExtra(
                    **self._of_turn(),
                    taken_as=None if tool is None else tool.tool_name,
                    target=whom,
                    content=text if tool is None else "",
                ),
            )
            if tool is not None:
                self.tools.perform(FormResult(tool))
        except AgentFault as fault:
            self._fault(fault)

    def _read(self, call: AgentToolCall) -> FormResult:
        """Return the MAIL tool that a call, perhaps of a form, performs. Raises ToolCallFault."""
        if self.draft.generation.output_schema is not None and call.tool_name == TaskComplete.tool_name:
            return FormResult(TaskComplete(finish_message=written(call.tool_args)))
        form = self.swarm.form(self.agent, call.tool_name) if self.agent.actions else None
        if form is None or form.form is None:
            return FormResult(read_call(call))
        return form.form(call.tool_args, FormContext(self.name, self.draft.timestamp, self._mail))

    def _fault(self, fault: AgentFault) -> None:
        self._faults += 1
        self._first_fault = self._first_fault or fault.detail
        if isinstance(fault, UnknownTool):
            self.draft.emit_result(EventKind.ACTION_ERROR, fault.detail, ActionExtra(**self._of_turn()))
        elif not isinstance(fault, Refused):  # that has an event of its own
            self._emit(EventKind.AGENT_ERROR, f"agent '{self.name}' made an error: {fault.detail}")
        if not self.tools.is_finished:
            self.draft.tell(self.name, fault.subject, fault.detail)

    def _emit_call(self, call: AgentToolCall) -> None:
        tool, call_id = call.tool_name, call.tool_call_id
        about = CallExtra(**self._of_turn(), tool_name=tool, tool_args=call.tool_args, tool_call_id=call_id)
        if call.preamble:
            about = replace(about, preamble=call.preamble)
        if call.reasoning and (reasoning := "\n\n".join(filter(str.strip, call.reasoning))):
            about, self._last_reasoning = replace(about, reasoning=reasoning), call_id
        elif self._last_reasoning is not None:
            about = replace(about, reasoning_ref=self._last_reasoning)
        did = "wrote text" if tool == TEXT_OUTPUT else f"called {tool}"
        self.draft.emit(EventKind.TOOL_CALL, f"agent {self.name} {did}", about)

    def _emit(self, kind: EventKind, text: str) -> None:
        """Add an event about this agent, of a kind whose `extra` needs no more."""
        self.draft.emit(kind, text, Extra(**self._of_turn()))

    def _of_turn(self) -> _TurnFields:
        """Return the agent, and the turn's cost and timing for its first event."""
        about = self._unannounced
        if len(about) > 1:
            self._unannounced = {"agent": self.name}
        return about

    def _report_action(self, call: AgentToolCall, receipt: Receipt) -> str:
        self.draft.stored_bytes += receipt.apart
        self.draft.history_bytes += receipt.apart  # a fork has it, too
        self.draft.emit(
            EventKind.ACTION_CALL,
            f"agent {self.name} executing action tool: {call.tool_name} with args: {call.tool_args}",
            ActionExtra(**self._of_turn(), after=receipt.after),
        )
        if receipt.callback is not None:
            about = (call.tool_name, call.tool_call_id)
            if receipt.state is Receipt.State.WAITING:
                return let_wait(self.draft, self.name, *about, receipt.callback, call.tool_args)
            close(self.draft, self.name, *about, receipt)
        attempts = receipt.attempts if receipt.attempts > 1 else None
        took = ActionExtra(agent=self.name, seconds=receipt.seconds, attempts=attempts)
        if receipt.state is Receipt.State.DONE:
            self.draft.emit_result(EventKind.ACTION_COMPLETE, receipt.content, took)
            if self._failing_calls:
                self._count_call(call, None)
            return f"SUCCESS: {receipt.content}"
        self.draft.emit_result(EventKind.ACTION_ERROR, receipt.content, took)
        return f"ERROR: {receipt.content}{self._count_call(call, receipt.content)}"

    def _count_call(self, call: AgentToolCall, error: str | None) -> str:
        """Count a call of an action that has ended; return what its agent reads about that."""
        self._failing_calls, times = count_call(self._failing_calls, self.name, call, error)
        limit = self.swarm.failing_call_limit
        if error is not None and limit and times >= limit:
            self.failed_call = f"{call.tool_name} failed {times} times: {_shortened(error)}"
        return note_failures(times, limit)

    def wake_after_actions(self, output: Checkpoint) -> None:
        """Wake the agent with the results of its actions, which its history contains too.

        Do nothing if the task has ended, if a breakpoint of this turn will wake the agent, or if the turn fails.
        """
        if self.tools.is_finished or self.draft.generation.breakpoint is not self.task.generation.breakpoint:
            return
        if self.failed_call is not None:
            return
        acted = [
            (call, receipt)
            for call, receipt in zip(output.calls, output.receipts, strict=True)
            if receipt is not None and receipt.state not in (Receipt.State.HELD, Receipt.State.WAITING)
        ]
        if not acted:
            return
        body = "\n".join(
            f"{call.tool_name}: {'' if receipt.state is Receipt.State.DONE else 'ERROR: '}"
            f"{self._announced(receipt.content)}"
            for call, receipt in acted
        )
        if any(receipt.state is Receipt.State.DONE for _, receipt in acted):
            self.draft.announce(self.name, Subject.ACTION_COMPLETE, body)
        else:
            self.draft.tell(self.name, Subject.ACTION_ERROR, body)

    def _announced(self, content: str) -> str:
        """Return a result for the message that wakes the agent: its beginning, if the window of a model is to last."""
        if self.agent.context is None or len(content) <= ANNOUNCED:
            return content
        return f"{content[:ANNOUNCED]}… (the result of the call has more)"

    def _pause(self, calls: list[AgentToolCall]) -> History:
        """Pause at breakpoint tools; return the results of calls that the user need not answer."""
        if self.draft.is_running:
            tools = self._client_tools
            excess: list[AgentToolCall] = []
            if tools is not None and not tools.parallel:
                excess = [call for call in calls if call.tool_call_id not in self._held][1:]
            waiting = [call for call in calls if call not in excess]
            for call in waiting:
                self._emit_pause(call)
            questions = {
                call.tool_call_id: self._questions[call.tool_call_id]
                for call in waiting
                if call.tool_call_id in self._questions
            }
            pause(self.draft, self.name, waiting, questions, self._held, self._asked_by_guards())
            one = "ERROR: one tool at a time; call this one again when you have the other's result"
            return [call.create_response_msg(one) for call in excess]
        reason = "the task is paused at another breakpoint; call the tool again"
        self._fault(ToolCallFault(reason))
        return [call.create_response_msg(f"ERROR: {reason}") for call in calls]

    def _asked_by_guards(self) -> Mapping[str, str]:
        """Return what guards ask about calls, by the ids of these."""
        output = self._output
        if output.judgement is None:
            return NO_ITEMS
        return {
            call.tool_call_id: output.judgement.question(index) for index, call in enumerate(output.calls)
        }

    def _emit_pause(self, call: AgentToolCall) -> None:
        if call.tool_call_id in self._held:
            does, call_id = "asks for approval of", call.tool_call_id
        else:
            does, call_id = "used breakpoint tools", ""
        self.draft.emit(
            EventKind.BREAKPOINT_TOOL_CALL,
            f"agent {self.name} {does} {call.tool_name} with args: {call.tool_args}",
            PauseExtra(**self._of_turn(), needs_approval=bool(call_id), tool_call_id=call_id),
        )

    def _dead_letter(self, reason: str, attempts: int) -> None:
        """Make the turn's message a dead letter."""
        entry = self.turn.entry
        self.draft.dead_letter(self.name, reason, attempts, message=entry.message, message_seq=entry.seq)

    def report_failure(self, reason: str, waiting: str | None = None) -> None:
        """Report the agent's failure to the `waiting` agent, its message's sender or the entrypoint, or end the task.

        A turn that began before the task was paused or resumed doesn't end it, as the user has written, or will.
        """
        if self.tools.is_finished:
            return
        if agent_of(self.name) != self.name:
            waiting = self._end_request() or waiting
        sender = self.turn.entry.message.sender if waiting is None else create_agent_address(waiting)
        text = f"agent '{self.name}' has failed: {reason}"
        if sender.address_type != "system" and parse_agent_address(sender.address)[1] is not None:
            self.draft.reply_elsewhere(sender.address, self.name, Subject.AGENT_ERROR, text)
            return
        reader = self.task.entrypoint
        if sender.address_type == "agent" and sender.address != self.name:
            reader = sender.address if waiting else self.draft.writer_of(self.turn.entry.message)
        is_gone = not self.swarm.has(self.name) and sender.address_type != "agent"
        if (reader == self.name or is_gone) and self.draft.is_running and not self.tools.is_late:
            self.draft.fail(text)
        else:
            self.draft.tell(reader, Subject.AGENT_ERROR, text)

    def _end_request(self) -> str | None:
        """Close what a copy was asked, as its failure is the answer, so that it is free; return who has asked."""
        asked = [each for each in self.draft.requests if each.recipient == self.name]
        for request in asked:
            if request.sender_swarm is None:  # else the answer to the other swarm closes it
                self.draft.close_request(request)
        return next((each.sender for each in asked if each.sender), None)


def _shortened(error: str) -> str:
    """Return the error of an agent or an action on one line, cut for a report."""
    return shortened(" ".join(error[: 2 * MAX_FAULT_TEXT].split()), MAX_FAULT_TEXT)
