"""Submissions: a person's message begins a task, joins it, or resumes it. Pure functions.

| the task is | the message is | effect |
| --- | --- | --- |
| unknown | new | the task begins |
| running | new, or user_response | more mail for the entrypoint, and as many steps again; it may have a second answer |
| paused | breakpoint_tool_call | the waiting agent gets the tool results |
| paused | new | refused, unless it says to drop the question |
| paused, completed, failed | new, or user_response | a new generation; waiting mail becomes deliverable again |

People write text to an entrypoint. Programs that embed a swarm may also pass a complete message, with any sender and
recipients; it is sent unchanged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal, TypedDict, Unpack

from pydantic import Field

from mail.core.decisions.approvals import (
    GivenApproval,
    continue_run,
    decide,
    has_approved,
    keep_results,
    keep_waiting,
    run_approved,
)
from mail.core.decisions.breakpoints import (
    abandon_breakpoint,
    add_results,
    announce_results,
    is_answer,
    read_results,
    require_no_question,
    send_answers,
    unrun_results,
    waiting_breakpoint,
)
from mail.core.protocol.address import (
    EVERYONE,
    MAX_ADDRESS,
    Principal,
    create_agent_address,
    is_swarm_name,
    parse_agent_address,
)
from mail.core.protocol.clock import Clock, format_time
from mail.core.protocol.compose import compose_message
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.message import DEFAULT_SUBJECT, MAILMessage, MessageType, TaskId
from mail.core.protocol.output_schema import check_schema
from mail.core.protocol.question_text import shortened
from mail.core.protocol.values import Value
from mail.core.task.callbacks import LONGEST_IN_WORDS, LONGEST_WAIT
from mail.core.task.change import TaskChange
from mail.core.task.client_tools import ClientTools
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import TimerExtra
from mail.core.task.idempotency import IdempotencyKey
from mail.core.task.interswarm import OpenRequest
from mail.core.task.limits import ANSWER_SECONDS, NO_BUDGET, TURNS_PER_STEP, Budget, Limits
from mail.core.task.mailboxes import agent_of, goes_out, peer_mailbox
from mail.core.task.size import text_size
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Generation, Task, TaskStatus, Transition
from mail.core.task.timers import MAX_DELAYED, MAX_TIMERS, Timer, TimerKind
from mail.core.task.webhooks import Webhook
from mail.errors import (
    BadRequest,
    DecisionTooLate,
    MailboxFull,
    NotPaused,
    PayloadTooLarge,
    PreconditionFailed,
    TaskMovedOn,
    TaskNotFound,
    UnknownEntrypoint,
)

TITLE_LENGTH = 80
TITLE_SOURCE = 2_000
"""Characters of a text in which its title is looked for."""


class ResumeFrom(StrEnum):
    """The point at which a stopped task resumes (SPEC, section 8)."""

    USER_RESPONSE = "user_response"
    BREAKPOINT_TOOL_CALL = "breakpoint_tool_call"


class SubmissionChanges(TypedDict, total=False):
    """The fields of a submission that are filled in after it was built."""

    body: str
    routing_info: dict[str, Any]
    entrypoint: str
    resume_from: ResumeFrom
    breakpoint_tool_call_result: object
    task_id: str | None
    ceiling: Budget
    expects: int | Literal["*"] | None
    idempotency_key: IdempotencyKey | None


_TERMS = (
    "task_id",
    "continues",
    "expects",
    "begins",
    "idempotency_key",
    "webhook",
    "live",
    "deltas",
    "files",
    "not_before",
)
"""The fields of a submission that count only when it is accepted."""


class Submission(Value):
    """A person's message to a swarm, with options.

    Attributes:
        steps: the step limit of this generation, for each message that it answers; None for the swarm's default.
        timeout: seconds after which this generation ends with an error; None for no such limit.
        budget: the budget of this generation; None keeps that of a running task, and sets none otherwise.
        ceiling: the upper limit of the caller's budgets.
        breakpoint_tool_call_result: the results of breakpoint tools, when resuming there.
        drop_question: whether a message to a paused task drops the question that the task asks. `user_response` does.
        approvals: decisions on calls that need approval; the task resumes there.
        message: a complete message, instead of `body`, `subject`, `msg_type` and `entrypoint`.
        is_direct: whether a response of the entrypoint, if that can't complete tasks, completes this one.
        targets: agents of other swarms, as `agent@swarm`, to write to instead of an entrypoint.
        routing_info: the `routing_info` of the message.
        files: the ids of the files that go with the message.
        continues: the generation whose answer this continues; None for any.
        expects: the generation that the task must be in, or `*` if the task must exist; None for no condition.
        begins: whether it must begin the task: it is refused if there is one of this id.
        idempotency_key: identifies the submission when it is sent again.
        client_tools: tools that the caller runs, for the generation that this begins.
        notes: data stored with that generation for the caller.
        manual: whether to switch the task to manual mode (`mail.core.decisions.manual`).
        webhook: a webhook to add to the task.
        live: whether the caller will watch the task's live events; with `deltas`, the pieces of models' replies, too.
        output_schema: the JSON Schema that the answer must fit; None for that of the swarm, if it has one.
        not_before: when to post it, in seconds since the epoch; None, and any time that has passed, for now.
    """

    body: str = ""
    subject: str = DEFAULT_SUBJECT
    msg_type: Literal["request", "response", "broadcast", "interrupt"] = "request"
    entrypoint: str | None = None
    task_id: TaskId | None = None
    resume_from: ResumeFrom | None = None
    steps: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout: float | None = Field(default=None, gt=0, le=10_000_000, allow_inf_nan=False)
    budget: Budget | None = None
    ceiling: Budget = NO_BUDGET
    breakpoint_tool_call_result: Any = None
    drop_question: bool = False
    approvals: tuple[GivenApproval, ...] = ()
    message: MAILMessage | None = None
    is_direct: bool = False
    targets: tuple[str, ...] = ()
    routing_info: dict[str, Any] | None = None
    files: tuple[str, ...] = ()
    continues: int | None = None
    expects: int | Literal["*"] | None = None
    begins: bool = False
    idempotency_key: IdempotencyKey | None = None
    client_tools: ClientTools | None = None
    notes: dict[str, Any] = Field(default_factory=dict)
    manual: bool = False
    webhook: Webhook | None = None
    live: bool = False
    deltas: bool = False
    output_schema: dict[str, Any] | None = None
    not_before: float | None = None

    def is_later(self, now: float) -> bool:
        """Return whether it is to be posted only after `now`, in seconds since the epoch."""
        return self.not_before is not None and self.not_before > now

    def as_new(self, task_id: str) -> "Submission":
        """Return the submission as one that begins the task with this id, which is the server's own."""
        return self._trusted({**vars(self), "task_id": task_id})

    def as_kept(self) -> str:
        """Return the JSON of the submission as it is posted later: its terms were met when it was accepted."""
        met = {name: type(self).model_fields[name].default for name in _TERMS}
        return self._trusted({**vars(self), **met}).model_dump_json(exclude_defaults=True)

    def evolve(self, **changes: Unpack[SubmissionChanges]) -> "Submission":
        """Return the submission with these changes."""
        return Submission(**{**vars(self), **changes})


def admit(
    task: Task | None, swarm: SwarmCore, caller: Principal, submission: Submission, clock: Clock
) -> TaskChange:
    """Decide the effect of a submission on the caller's task; `task` is None if there is none with its id.

    Raises BadRequest or one of its subclasses, QuestionOpen, or TaskNotFound; MailboxFull or PayloadTooLarge for one
    that is to be posted later.
    """
    return enter(task, swarm, caller, submission, clock).seal()


def enter(
    task: Task | None, swarm: SwarmCore, caller: Principal, submission: Submission, clock: Clock
) -> Draft:
    """Return the draft of what `admit` decides."""
    if submission.message is not None:
        _check_message(swarm, submission.message)
    elif submission.targets:
        _check_targets(swarm, submission)
    elif submission.entrypoint is not None:
        open_agents = swarm.entrypoints
        if submission.entrypoint not in open_agents:
            word = "target" if submission.is_direct else "entrypoint"
            raise UnknownEntrypoint(
                f"{word} must be one of: {', '.join(open_agents)}; not {submission.entrypoint!r}"
                f"{did_you_mean(submission.entrypoint, open_agents)}"
            )
    elif task is not None and task.entrypoint not in swarm.entrypoints and not task.manual:
        submission = submission.evolve(entrypoint=swarm.entrypoint)
    if submission.approvals and submission.resume_from is ResumeFrom.USER_RESPONSE:
        raise BadRequest("approvals decide on calls that wait: leave out resume_from, or the approvals")
    if submission.approvals and submission.resume_from is None:
        submission = submission.evolve(resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL)
    given, submission = submission, _as_answer(task, submission)
    resumes_breakpoint = submission.resume_from is ResumeFrom.BREAKPOINT_TOOL_CALL
    if not submission.body and submission.message is None and not resumes_breakpoint:
        raise BadRequest("body must not be empty")
    if submission.begins and task is not None:
        raise PreconditionFailed(f"there is a task {task.task_id!r} already")
    if submission.expects is not None:
        _check_generation(task, submission, submission.expects)
    if submission.output_schema is not None:
        check_schema(submission.output_schema)
    if submission.client_tools is not None:
        submission.client_tools.check({*swarm.actions, *swarm.breakpoint_tools})
    if task is None:
        if submission.resume_from is not None:
            raise TaskNotFound(f"there is no task {submission.task_id!r} to resume")
        return _begin(swarm, caller, submission, clock)
    if task.manual and not submission.manual:
        raise BadRequest(f"task {task.task_id!r} is in manual mode: its agents take no turns by themselves")
    if submission.continues is not None:
        check_continues(task, submission.continues)
    draft = Draft(task, swarm, clock)
    if submission.is_later(clock.now().timestamp()):
        _post_later(draft, caller, given)
        return draft
    draft.manual = submission.manual
    if resumes_breakpoint:
        _resume_at_breakpoint(draft, caller, submission)
    else:
        if not task.is_running:
            if submission.resume_from is None and not submission.drop_question:
                require_no_question(task)
            abandon_breakpoint(draft)
            _resume(draft, submission)
        else:
            if _asks_agents(swarm, submission) and all(request.sender for request in task.requests):
                raise BadRequest(
                    f"agents of this swarm work on task {task.task_id!r}; use another task_id to write to "
                    f"{'other swarms' if submission.targets else submission.entrypoint}"
                )
            if submission.output_schema not in (None, task.generation.output_schema):
                raise BadRequest(
                    f"task {task.task_id!r} is running with another output_schema; wait for its answer, or use another "
                    "task_id"
                )
            if _begins(task):
                draft.limits = _limits(swarm, submission, clock)
                _deliver(draft, caller, submission)
                return draft
            draft.limits = _adjusted_limits(task.limits, submission, clock)
            if not (submission.targets or _is_by_agent(submission)):
                draft.generation = replace(draft.generation, joined=draft.generation.joined + 1)
        mailboxes = _deliver(draft, caller, submission)
        _note_question(draft, submission, mailboxes)
    return draft


def _begins(task: Task) -> bool:
    """Return whether a message is the first of a running task, which was begun by one that is to be posted later."""
    return task.waits.messages > 0 and not (task.pending or task.histories or task.generation.turns)


def check_time(submission: Submission, now: float) -> None:
    """Raise BadRequest if a message is to be posted too far ahead."""
    if submission.is_later(now + LONGEST_WAIT):
        raise BadRequest(f"not_before may be {LONGEST_IN_WORDS} ahead at most")


def _post_later(draft: Draft, caller: Principal, submission: Submission) -> None:
    """Keep a message until it is to be posted. Raises MailboxFull or PayloadTooLarge."""
    due, waits = submission.not_before or 0.0, draft.waits
    if waits.timers >= MAX_TIMERS:
        raise MailboxFull(f"{MAX_TIMERS} timers of task {draft.task_id!r} wait already; cancel some of them")
    kept = submission.as_kept()
    if (size := text_size(kept)) > MAX_DELAYED:
        raise PayloadTooLarge(
            f"a message with not_before can have {MAX_DELAYED} bytes, and this one has {size}"
        )
    timer = draft.set_timer(
        Timer(
            id="",
            due=due,
            kind=TimerKind.MESSAGE,
            text=_title(submission),
            submission=kept,
            caller=str(caller),
        )
    )
    draft.emit(
        EventKind.TIMER_SET,
        f"a message of {caller.id} will be posted at {format_time(due)}: {timer.text}",
        TimerExtra(timer_id=timer.id, due=timer.due),
    )


def _check_generation(task: Task | None, submission: Submission, expected: int | Literal["*"]) -> None:
    if task is None:
        raise PreconditionFailed(
            f"there is no task {submission.task_id!r} yet; leave out If-Match to start it"
        )
    if expected not in ("*", task.generation.number):
        raise PreconditionFailed(
            f"task {task.task_id!r} is at generation {task.generation.number}, not at {expected}; look at it again"
        )


def check_continues(task: Task, generation: int) -> None:
    """Raise TaskMovedOn unless the task has stopped at the end of this generation."""
    if task.is_running or task.generation.number != generation:
        raise TaskMovedOn(
            f"task {task.task_id!r} {'is running' if task.is_running else 'has continued since'}; only its last answer "
            "can be continued, after it is complete"
        )


def _check_message(swarm: SwarmCore, message: MAILMessage) -> None:
    """Raise BadRequest for a message that can't come from outside, or that has no recipient here."""
    if message.sender.address_type == "system" or message.msg_type == "broadcast_complete":
        raise BadRequest("only the runtime sends system messages and completions")
    for recipient in message.message.recipients:
        name, where = parse_agent_address(recipient.address)
        if where not in (None, swarm.name) or (name != EVERYONE and name not in swarm.agents):
            raise BadRequest(
                f"{recipient.address!r} is not an agent of swarm {swarm.name!r}{did_you_mean(name, swarm.agents)}"
            )


def _check_targets(swarm: SwarmCore, submission: Submission) -> None:
    """Raise BadRequest for targets that are not agents of other swarms, or too many."""
    for target in submission.targets:
        name, where = parse_agent_address(target)
        if not name or where is None or not is_swarm_name(where) or len(target) > MAX_ADDRESS:
            raise BadRequest(f"target {target[:MAX_ADDRESS]!r} is not of the form agent@swarm")
        if where == swarm.name:
            raise BadRequest(f"{target!r} belongs to this swarm; POST /message writes to its agents")
    if submission.msg_type == "request" and len(submission.targets) != 1:
        raise BadRequest(f"a request has exactly one target; this one has {len(submission.targets)}")
    if submission.msg_type not in ("request", "broadcast"):
        raise BadRequest(f"msg_type to another swarm must be request or broadcast, not {submission.msg_type}")


def resume(draft: Draft) -> None:
    """Resume a stopped task without a new message; its breakpoint and its deadline are dropped."""
    abandon_breakpoint(draft)
    continue_run(draft)
    draft.limits = draft.limits.without_time()


def _note_question(
    draft: Draft, submission: Submission, mailboxes: Sequence[str], *, resumes: bool = False
) -> None:
    """Note the message as unread if agents have other mail, so that its sender gets an answer given after reading it.

    It went to `mailboxes`; with `resumes`, together with the results for the agent that it resumes.
    """
    task, given = draft.before, submission.message
    is_alone = not task.is_running and all(map(goes_out, task.pending))
    if is_alone or submission.targets or _is_by_agent(submission):
        return
    kind = submission.msg_type if given is None else given.msg_type
    if mailboxes and (resumes or kind != "broadcast"):
        draft.add_unread_question(mailboxes[0], draft.last_seq)


def _asks_agents(swarm: SwarmCore, submission: Submission) -> bool:
    """Return whether the submission asks agents whose responses end the task."""
    if submission.is_direct:
        return not swarm.agents[submission.entrypoint or swarm.entrypoint].can_complete_tasks
    return bool(submission.targets)


def _is_by_agent(submission: Submission) -> bool:
    return submission.message is not None and submission.message.sender.address_type == "agent"


def _begin(swarm: SwarmCore, caller: Principal, submission: Submission, clock: Clock) -> Draft:
    owner, is_later = str(caller), submission.is_later(clock.now().timestamp())
    task = Task(
        instance=owner,
        task_id=submission.task_id or clock.new_id(),
        status=TaskStatus.RUNNING,
        owner=owner,
        contributors=(owner,),
        entrypoint=_entrypoint(swarm, submission),
        generation=Generation(
            client_tools=submission.client_tools,
            notes=submission.notes,
            output_schema=_output_schema(submission, swarm.output_schema),
            versions=(swarm.digest,),
        ),
        manual=submission.manual,
        title=_title(submission),
        started=clock.now().isoformat(),
        limits=swarm_limits(swarm) if is_later else _limits(swarm, submission, clock),
    )
    draft = Draft(task, swarm, clock)
    if is_later:
        _post_later(draft, caller, submission)
    else:
        _deliver(draft, caller, submission)
    return draft


def _entrypoint(swarm: SwarmCore, submission: Submission) -> str:
    """Return the task's entrypoint: the agent addressed if it may be one, else the swarm's."""
    if submission.message is None:
        return submission.entrypoint or swarm.entrypoint
    name = parse_agent_address(submission.message.message.recipients[0].address)[0]
    return name if name in swarm.agents and swarm.agents[name].enable_entrypoint else swarm.entrypoint


def _title(submission: Submission) -> str:
    source = submission if submission.message is None else submission.message.message
    return title_of(source.subject, source.body)


def title_of(subject: str, body: str) -> str:
    """Return a title for a task, from the subject or the text of its first message."""
    text = body if subject == DEFAULT_SUBJECT else subject
    return shortened(" ".join(text.lstrip()[:TITLE_SOURCE].split()), TITLE_LENGTH)


def swarm_limits(swarm: SwarmCore) -> Limits:
    """Return the swarm's default limits of a generation."""
    steps = swarm.task_message_limit
    return Limits(steps=steps, turns=steps * TURNS_PER_STEP)


def _limits(swarm: SwarmCore, submission: Submission, clock: Clock) -> Limits:
    limits = swarm_limits(swarm).within(submission.ceiling, clock.now().timestamp())
    return _adjusted_limits(limits, submission, clock)


def _adjusted_limits(limits: Limits, submission: Submission, clock: Clock) -> Limits:
    """Return the limits with the changes that the submission asks for."""
    if submission.steps is not None:
        limits = replace(limits, steps=submission.steps, turns=submission.steps * TURNS_PER_STEP)
    if submission.timeout is not None:
        limits = replace(limits, deadline=clock.now().timestamp() + submission.timeout)
    if submission.budget is None:
        return limits
    return limits.within(submission.budget.tightened(submission.ceiling), clock.now().timestamp())


def _resume(draft: Draft, submission: Submission) -> None:
    draft.move(Transition.RESUME)
    unanswered = draft.before.status is TaskStatus.PAUSED  # what it was asked for is still to come
    given = draft.generation.output_schema if unanswered else draft.swarm.output_schema
    draft.generation = draft.generation.next(
        continues=unanswered,
        version=draft.swarm.digest,
        began=draft.last_seq,
        client_tools=submission.client_tools,
        notes=submission.notes,
        output_schema=_output_schema(submission, given),
    )
    draft.entrypoint = submission.entrypoint or draft.entrypoint
    draft.limits = _limits(draft.swarm, submission, draft.clock)


def _keep_options(draft: Draft, submission: Submission) -> None:
    """Set the options of a submission after which the task still waits, for when others let it continue."""
    before = draft.generation
    draft.generation = replace(
        before,
        client_tools=submission.client_tools or before.client_tools,
        notes=submission.notes or before.notes,
        output_schema=_output_schema(submission, before.output_schema),
    )
    draft.entrypoint = submission.entrypoint or draft.entrypoint
    draft.limits = _adjusted_limits(draft.limits, submission, draft.clock)


def _output_schema(submission: Submission, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the submission's schema, or the `given` one; other swarms, which answer its targets, know none."""
    return given if submission.output_schema is None and not submission.targets else submission.output_schema


def _deliver(draft: Draft, caller: Principal, submission: Submission) -> Sequence[str]:
    """Send the person's message to the entrypoint, or a broadcast to all agents that people may write to.

    Return the mailboxes of agents that get it.
    """
    if submission.message is not None:
        return draft.send(submission.message, _readers(draft, submission.message))
    if submission.targets:
        _send_to_targets(draft, caller, submission)
        return ()
    target = submission.entrypoint or draft.before.entrypoint
    readers = [target]
    if submission.msg_type == "broadcast" and not submission.is_direct:
        readers = list(draft.swarm.agents if submission.manual else draft.swarm.entrypoints)
    names = [EVERYONE] if len(readers) == len(draft.swarm.agents) > 1 else readers
    message = write(submission, draft, caller, names)
    if _asks_agents(draft.swarm, submission):
        draft.open_request(OpenRequest(request_id=message.message.own_id, sender="", recipient=target))
    return draft.send(message, readers)


def write(
    submission: Submission,
    draft: Draft,
    caller: Principal,
    names: Iterable[str],
    kind: MessageType | None = None,
) -> MAILMessage:
    """Return the message of a submission to agents; its `kind` defaults to that of the submission."""
    return compose_message(
        kind or submission.msg_type,
        task_id=draft.task_id,
        sender=caller.address,
        recipients=[create_agent_address(name) for name in names],
        subject=submission.subject,
        body=submission.body,
        clock=draft.clock,
        request_id=draft.clock.new_id(),
        routing_info=submission.routing_info,
    )


def _send_to_targets(draft: Draft, caller: Principal, submission: Submission) -> None:
    """Send the person's message to agents of other swarms, whose answers end the task."""
    for target in dict.fromkeys(submission.targets):
        name, swarm = parse_agent_address(target)
        assert swarm is not None
        message = write(submission, draft, caller, [target])
        draft.add_peer(swarm, name)
        request_id, until = message.message.own_id, draft.time_in(ANSWER_SECONDS)
        draft.open_request(
            OpenRequest(request_id=request_id, sender="", recipient=target, answer_deadline=until)
        )
        draft.send(message, [peer_mailbox(swarm)])


def _readers(draft: Draft, message: MAILMessage) -> list[str]:
    """Return a checked message's recipients, without its sender."""
    names = [parse_agent_address(recipient.address)[0] for recipient in message.message.recipients]
    if EVERYONE not in names:
        return list(dict.fromkeys(names))
    sender = message.sender
    return [name for name in draft.swarm.agents if (sender.address_type, sender.address) != ("agent", name)]


def _as_answer(task: Task | None, submission: Submission) -> Submission:
    """Turn a message that answers an agent's question to the user into the result of that tool call."""
    if (
        task is None
        or submission.resume_from is ResumeFrom.BREAKPOINT_TOOL_CALL
        or not is_answer(task.generation.breakpoint, submission.subject)
    ):
        return submission
    return submission.evolve(
        resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
        body="",
        breakpoint_tool_call_result={"content": submission.body},
    )


def _resume_at_breakpoint(draft: Draft, caller: Principal, submission: Submission) -> None:
    """Give the waiting agent its tool results, and wake it: by the text sent with them, if there is any."""
    try:
        paused_at = waiting_breakpoint(draft)
    except NotPaused as error:
        if submission.approvals:
            raise DecisionTooLate(f"the decision comes too late: {error.detail}") from error
        raise
    waiting = decide(draft, caller, paused_at, submission.approvals)
    given = submission.breakpoint_tool_call_result
    results: dict[str, str] = {}
    if given is not None or not any(call.is_held for call in waiting.calls):
        results = read_results(given, waiting.calls)
    if any(call.approval is None and call.call_id not in results for call in waiting.calls):
        waiting = keep_results(draft, caller, waiting, results)
        _keep_options(draft, submission)
        keep_waiting(draft, waiting, has_more=bool(submission.body))
        return
    is_run = has_approved(waiting)
    if not is_run:
        results |= unrun_results(waiting)
    add_results(draft, waiting, results)
    _resume(draft, submission)
    send_answers(draft, caller.address, waiting, results)
    words = None
    if submission.body:
        words = write(submission, draft, caller, [agent_of(waiting.agent)], "request")
    if is_run:
        run_approved(draft, waiting, words)
    elif words is None:
        announce_results(draft, waiting, results)
    else:
        draft.send(words, [waiting.agent])
        draft.note_resumption(waiting.agent)
    if words is not None:
        _note_question(draft, submission, [waiting.agent], resumes=True)
