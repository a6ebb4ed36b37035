"""How a person's message begins a task, joins it, or resumes it. Pure functions.

| the task is | the message comes as | then |
| --- | --- | --- |
| unknown | new | it begins |
| running | new, or user_response | more mail for the entrypoint; if the answer comes first, another one follows |
| paused | breakpoint_tool_call | the waiting agent gets the tool results |
| paused, completed, failed | new, or user_response | a new generation: the stash becomes deliverable again |
"""

import json
from enum import StrEnum
from typing import Any

from pydantic import Field
from pydantic_core import from_json

from mail.core.address import EVERYONE, MAILAddress, Principal, create_agent_address
from mail.core.agents import History, SwarmCore
from mail.core.calls import tool_result
from mail.core.change import TaskChange
from mail.core.draft import Draft
from mail.core.events import EventKind
from mail.core.limits import TURNS_PER_STEP, Limits
from mail.core.message import MAILBroadcast, MAILInterrupt, MAILPayload, MAILRequest, MAILResponse, TaskId
from mail.core.record import Record
from mail.core.stamp import Stamp
from mail.core.tasks import Breakpoint, PausedCall, Question, Task, TaskStatus, Transition
from mail.errors import BadBreakpointResult, BadRequest, NotPaused, Subject, TaskNotFound, UnknownEntrypoint

TITLE_LENGTH = 80


class ResumeFrom(StrEnum):
    """From where a stopped task goes on (SPEC, section 8)."""

    USER_RESPONSE = "user_response"
    BREAKPOINT_TOOL_CALL = "breakpoint_tool_call"


class Submission(Record):
    """What a person sends to a swarm.

    Attributes:
        steps: the step limit of this generation; None for the swarm's own.
        timeout: seconds after which this generation ends with an error; None for no such limit.
        breakpoint_tool_call_result: the results of breakpoint tools, when resuming from there.
    """

    body: str = ""
    subject: str = "New Message"
    msg_type: str = Field(default="request", pattern=r"^(request|response|broadcast|interrupt)$")
    entrypoint: str | None = None
    task_id: TaskId | None = None
    resume_from: ResumeFrom | None = None
    steps: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout: float | None = Field(default=None, gt=0, le=10_000_000, allow_inf_nan=False)
    breakpoint_tool_call_result: Any = None


def admit(
    task: Task | None, swarm: SwarmCore, caller: Principal, submission: Submission, stamp: Stamp
) -> TaskChange:
    """Decide what a submission does to the caller's task; `task` is None where there is none with its id.

    Raises BadRequest or one of its children, or TaskNotFound; then nothing is to be stored.
    """
    if submission.entrypoint is not None:
        agent = swarm.agents.get(submission.entrypoint)
        if agent is None or not agent.enable_entrypoint:
            choices = ", ".join(name for name, core in swarm.agents.items() if core.enable_entrypoint)
            raise UnknownEntrypoint(f"entrypoint {submission.entrypoint!r} is none of: {choices}")
    resumes_breakpoint = submission.resume_from is ResumeFrom.BREAKPOINT_TOOL_CALL
    if not submission.body and not resumes_breakpoint:
        raise BadRequest("body must not be empty")
    if task is None:
        if submission.resume_from is not None:
            raise TaskNotFound(f"there is no task {submission.task_id!r} to resume")
        return _begin(swarm, caller, submission, stamp)
    draft = Draft(task, swarm, stamp)
    if resumes_breakpoint:
        _resume_at_breakpoint(draft, submission)
    else:
        if not task.is_running:
            _abandon_breakpoint(draft)
            _resume(draft, submission)
        else:
            _join_running(draft, submission)
        _deliver(draft, caller, submission)
    return draft.seal()


def _join_running(draft: Draft, submission: Submission) -> None:
    """More mail for a running task: whoever sent it is to get an answer that was given after it was read."""
    task = draft.before
    draft.updates["limits"] = _adjusted_limits(task.limits, submission, draft.stamp)
    if submission.msg_type != "broadcast":
        question = Question(mailbox=submission.entrypoint or task.entrypoint, seq=task.seq + 1)
        draft.updates["questions"] = (*task.questions, question)


def _begin(swarm: SwarmCore, caller: Principal, submission: Submission, stamp: Stamp) -> TaskChange:
    owner = str(caller)
    task = Task(
        instance=owner,
        task_id=submission.task_id or stamp.new_id(),
        status=TaskStatus.RUNNING,
        owner=owner,
        contributors=(owner,),
        entrypoint=submission.entrypoint or swarm.entrypoint,
        title=_title(submission),
        started=stamp.now().isoformat(),
        limits=_limits(swarm, submission, stamp),
    )
    draft = Draft(task, swarm, stamp, is_new=True)
    _deliver(draft, caller, submission)
    return draft.seal()


def _title(submission: Submission) -> str:
    default = Submission.model_fields["subject"].default
    text = submission.body if submission.subject == default else submission.subject
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1]}…"


def _limits(swarm: SwarmCore, submission: Submission, stamp: Stamp) -> Limits:
    steps = swarm.task_message_limit
    return _adjusted_limits(Limits(steps=steps, turns=steps * TURNS_PER_STEP), submission, stamp)


def _adjusted_limits(limits: Limits, submission: Submission, stamp: Stamp) -> Limits:
    """The limits with what the submission says of them; more mail for a running task leaves the rest alone."""
    changes: dict[str, Any] = {}
    if submission.steps is not None:
        changes |= {"steps": submission.steps, "turns": submission.steps * TURNS_PER_STEP}
    if submission.timeout is not None:
        changes["deadline"] = stamp.now().timestamp() + submission.timeout
    return limits.model_copy(update=changes) if changes else limits


def _resume(draft: Draft, submission: Submission) -> None:
    draft.move(Transition.RESUME)
    draft.updates |= {
        **draft.before.next_generation(),
        "entrypoint": submission.entrypoint or draft.before.entrypoint,
        "limits": _limits(draft.swarm, submission, draft.stamp),
    }


def _deliver(draft: Draft, caller: Principal, submission: Submission) -> None:
    """Send the person's words to the entrypoint, or to every agent where they are a broadcast."""
    sender = caller.address
    target = submission.entrypoint or draft.before.entrypoint
    payload = _payload(draft, sender, target, submission)
    mailboxes = list(draft.swarm.agents) if isinstance(payload, MAILBroadcast) else [target]
    draft.send(draft.envelope(submission.msg_type, payload), mailboxes)  # type: ignore[arg-type]


def _payload(draft: Draft, sender: MAILAddress, target: str, submission: Submission) -> MAILPayload:
    common: dict[str, Any] = {
        "task_id": draft.task_id,
        "sender": sender,
        "subject": submission.subject,
        "body": submission.body,
    }
    recipient = create_agent_address(target)
    match submission.msg_type:
        case "broadcast":
            everyone = (create_agent_address(EVERYONE),)
            return MAILBroadcast(broadcast_id=draft.stamp.new_id(), recipients=everyone, **common)
        case "interrupt":
            return MAILInterrupt(interrupt_id=draft.stamp.new_id(), recipients=(recipient,), **common)
        case "response":
            return MAILResponse(request_id=draft.stamp.new_id(), recipient=recipient, **common)
        case _:
            return MAILRequest(request_id=draft.stamp.new_id(), recipient=recipient, **common)


def _resume_at_breakpoint(draft: Draft, submission: Submission) -> None:
    """Give the waiting agent its tool results and wake it; words sent along go with them."""
    waiting = draft.before.breakpoint
    if waiting is None or draft.status is not TaskStatus.PAUSED:
        raise NotPaused(f"task {draft.task_id!r} is {draft.status.value}; it waits for no tool result")
    results = read_results(submission.breakpoint_tool_call_result, waiting.calls)
    history: History = []
    for call in waiting.calls:
        content = results[call.call_id]
        draft.emit(
            EventKind.BREAKPOINT_ACTION_COMPLETE,
            f"breakpoint action complete (caller = {waiting.agent}):\n{content}",
        )
        history.append(tool_result(waiting.tool_format, call.call_id, content))
    draft.remember(waiting.agent, history)
    _resume(draft, submission)
    lines = [f"{call.name}: {results[call.call_id]}" for call in waiting.calls]
    if submission.body:
        lines.append(f"The user adds: {submission.body}")
    draft.announce(waiting.agent, Subject.ACTION_COMPLETE, "\n".join(lines))


def _abandon_breakpoint(draft: Draft) -> None:
    """Providers refuse a history in which a tool call has no result; so it gets one."""
    waiting: Breakpoint | None = draft.before.breakpoint
    if waiting is None:
        return
    note = "ERROR: the user sent a new message instead of this tool's result"
    draft.remember(
        waiting.agent, [tool_result(waiting.tool_format, call.call_id, note) for call in waiting.calls]
    )


def read_results(given: Any, calls: tuple[PausedCall, ...]) -> dict[str, str]:
    """Match what the user gave with the calls that wait: call id to content.

    `given` is a JSON string, an object `{"content"}`, a list `[{"call_id", "content"}]`, or plain text
    (SPEC, section 8). Raises BadBreakpointResult unless every waiting call gets exactly one result.
    """
    value = _parse(given)
    if isinstance(value, list) and all(isinstance(item, dict) and "content" in item for item in value):
        results = _read_list(value, calls)
    elif len(calls) > 1:
        raise BadBreakpointResult(
            f'{len(calls)} tool calls wait; give a list of {{"call_id": …, "content": …}} for: {_ids(calls)}'
        )
    elif isinstance(value, dict) and "content" in value:
        results = _read_list([value], calls)
    else:
        results = {
            calls[0].call_id: _text(given if isinstance(given, str) and not isinstance(value, str) else value)
        }
    if results.keys() != {call.call_id for call in calls}:
        raise BadBreakpointResult(f"results are for {_join(results)}, but these calls wait: {_ids(calls)}")
    return results


def _read_list(items: list[dict[str, Any]], calls: tuple[PausedCall, ...]) -> dict[str, str]:
    results: dict[str, str] = {}
    for item in items:
        # Where only one call waits, its result can't be meant for another: clients send stale or no ids with it.
        call_id = calls[0].call_id if len(calls) == 1 else item.get("call_id", item.get("id"))
        if call_id is None:
            raise BadBreakpointResult(f"a result lacks its call_id, one of: {_ids(calls)}")
        if str(call_id) in results:
            raise BadBreakpointResult(f"call_id {call_id!r} has two results")
        results[str(call_id)] = _text(item["content"])
    return results


def _parse(given: Any) -> Any:
    if given is None:
        raise BadBreakpointResult("kwargs.breakpoint_tool_call_result is missing")
    if not isinstance(given, str):
        return given
    try:
        return from_json(given, allow_inf_nan=False)  # unlike json.loads, refuses what can't be stored
    except (ValueError, TypeError):  # TypeError: text that has no form in UTF-8
        return given


def _text(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadBreakpointResult(f"a result holds text that has no form in UTF-8: {error}") from error
    return text


def _ids(calls: tuple[PausedCall, ...]) -> str:
    return _join({call.call_id: "" for call in calls})


def _join(results: dict[str, str]) -> str:
    return ", ".join(repr(call_id) for call_id in results) or "no call"
