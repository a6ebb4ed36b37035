"""Breakpoints: a task pauses at tools that its user runs, and resumes with their results. Pure functions.

It also pauses at calls of actions that a person must approve (`mail.core.decisions.approvals`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json

from mail.core.decisions.reviewers import ask_reviewers, new_id, who_decides
from mail.core.protocol.address import MAILAddress, create_agent_address
from mail.core.protocol.calls import AgentToolCall, ToolFormat, tool_result
from mail.core.protocol.compose import compose_message
from mail.core.protocol.question_text import shortened
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import Extra
from mail.core.task.mailboxes import agent_of
from mail.core.task.swarm import ActionCore, History, UserQuestion
from mail.core.task.task import Task, TaskStatus, Transition
from mail.core.task.turn_state import Breakpoint, Decision, OpenUserQuestion, PausedCall
from mail.errors import BadBreakpointResult, NotPaused, QuestionOpen, Subject

NO_ITEMS: Mapping[str, str] = MappingProxyType({})

ANSWERED = "SUCCESS: the user has answered; the answer comes as a message"

MAX_ARGUMENTS = 500
"""Characters of a waiting call's arguments in an error's text."""


def pause(
    draft: Draft,
    agent: str,
    calls: Sequence[AgentToolCall],
    questions: Mapping[str, UserQuestion],
    held: Mapping[str, ActionCore | None],
    judgement: Mapping[str, str] = NO_ITEMS,
) -> None:
    """Pause the task until the user returns the results of these breakpoint tool calls of an agent.

    `questions` to the user, by the ids of the calls that ask them, are sent too. `held` has the ids of calls that
    wait for an approval instead, with their actions, which say who decides until when; None for the owner at any time.
    `judgement` has what guards ask about them.
    """
    asked = {call_id: _ask_owner(draft, agent, question) for call_id, question in questions.items()}
    paused = tuple(_paused(draft, call, held, asked, judgement) for call in calls)
    reached = Breakpoint(
        agent=agent,
        tool_format=calls[0].tool_format,
        calls=paused,
        id=new_id(draft.clock) if any(call.is_held for call in paused) else "",
    )
    ask_reviewers(draft, reached, paused)
    item_ids = {call.tool_call_id: str(item["id"]) for call in calls if (item := _item(call)).get("id")}
    pause_at(draft, reached, item_ids)


def pause_at(draft: Draft, reached: Breakpoint, item_ids: Mapping[str, str] = NO_ITEMS) -> None:
    """Pause the task at a breakpoint; its answer has the calls, with the ids of their Responses items if known."""
    draft.generation = replace(draft.generation, breakpoint=reached)
    draft.move(Transition.PAUSE)
    waiting = [call for call in reached.calls if call.approval is None]
    body = json.dumps(
        [_describe_paused(call, reached.tool_format, item_ids.get(call.call_id)) for call in waiting]
    )
    draft.finish(create_agent_address(reached.agent), Subject.BREAKPOINT_TOOL_CALL, body)


def _paused(
    draft: Draft,
    call: AgentToolCall,
    held: Mapping[str, ActionCore | None],
    asked: Mapping[str, OpenUserQuestion],
    judgement: Mapping[str, str],
) -> PausedCall:
    """Return a call as it waits, with who decides on it until when: if it is held, or its tool has reviewers.

    In a task of another swarm the question goes to that swarm, as its people know nobody here.
    """
    call_id, is_ours = call.tool_call_id, draft.before.parent_swarm is None
    is_held = call_id in held
    action = held[call_id] if is_held else draft.swarm.asked_by(call.tool_name) if is_ours else None
    seconds = None if action is None else action.approval_timeout
    return PausedCall(
        call_id=call_id,
        name=call.tool_name,
        arguments=call.tool_args,
        asks=asked.get(call_id),
        question=judgement.get(call_id, ""),
        needs_approval=is_held,
        reviewers=None if action is None else action.reviewers,
        approve_within=seconds,
        approve_by=None if seconds is None else draft.time_in(seconds),
    )


def _ask_owner(draft: Draft, agent: str, question: UserQuestion) -> OpenUserQuestion:
    """Send a question to the owner, who finds it in the timeline."""
    request_id = draft.clock.new_id()
    message = compose_message(
        "request",
        task_id=draft.task_id,
        sender=create_agent_address(agent),
        recipients=[draft.owner_address],
        subject=question.tool.subject,
        body=question.tool.body,
        clock=draft.clock,
        request_id=request_id,
        routing_info=question.routing_info,
    )
    draft.send(message, ())
    return OpenUserQuestion(
        request_id=request_id,
        answer_subjects=question.answer_subjects,
        routing_info=question.routing_info,
    )


def _item(call: AgentToolCall) -> Mapping[str, Any]:
    """Return the item of a call in the Responses API; empty in the other one."""
    return next((item for item in call.responses if item.get("call_id") == call.tool_call_id), {})


def _describe_paused(call: PausedCall, tool_format: ToolFormat, item_id: str | None) -> dict[str, Any]:
    """Return a paused call as clients receive it, in the format of its API (SPEC, section 8)."""
    arguments = call.arguments_text
    more: dict[str, Any] = {"needs_approval": True} if call.needs_approval else {}
    if call.reviewers is not None:
        more["reviewers"] = list(call.reviewers.by)
    if tool_format == "completions":
        return {"arguments": arguments, "name": call.name, "id": call.call_id, **more}
    return {
        "arguments": arguments,
        "call_id": call.call_id,
        "name": call.name,
        "type": "function_call",
        "id": item_id or call.call_id,
        "status": "completed",
        **more,
    }


def is_answer(waiting: Breakpoint | None, subject: str) -> bool:
    """Return whether a message with this subject answers a question to the user, for which the task waits."""
    asked = () if waiting is None else [call.asks for call in waiting.calls if call.asks is not None]
    return any(question.is_answered_by(subject) for question in asked)


def waiting_breakpoint(draft: Draft) -> Breakpoint:
    """Return the breakpoint at which the task waits. Raises NotPaused."""
    waiting = draft.before.generation.breakpoint
    if waiting is None or draft.status is not TaskStatus.PAUSED:
        status = "has failed" if draft.status is TaskStatus.FAILED else f"is {draft.status.value}"
        raise NotPaused(
            f"task {draft.task_id!r} {status}; no call waits for a result: send the task a message instead"
        )
    return waiting


def add_results(draft: Draft, waiting: Breakpoint, results: Mapping[str, str]) -> None:
    """Add results, by call id, to the history of the waiting agent, and those of breakpoint tools to the timeline."""
    history: History = []
    for call in waiting.calls:
        content = results.get(call.call_id)
        if content is None:
            continue
        if not call.needs_result:
            history.append(tool_result(waiting.tool_format, call.call_id, content))
            continue
        if call.asks is not None and not content.strip():
            raise BadBreakpointResult("body must not be empty: it is the answer to a question")
        draft.emit_result(EventKind.BREAKPOINT_ACTION_COMPLETE, content, Extra(agent=waiting.agent))
        result = content if call.asks is None else ANSWERED
        history.append(tool_result(waiting.tool_format, call.call_id, result))
    if history:
        draft.remember(waiting.agent, history)


def send_answers(
    draft: Draft, sender: MAILAddress, waiting: Breakpoint, results: Mapping[str, str] = NO_ITEMS
) -> None:
    """Send the answers to the questions of the waiting agent, whether they come now or have come before."""
    for call in waiting.calls:
        content = results.get(call.call_id) if call.approval is None else call.approval.answer
        if call.asks is not None and content:
            answer = compose_message(
                "response",
                task_id=draft.task_id,
                sender=sender,
                recipients=[create_agent_address(agent_of(waiting.agent))],
                subject=call.asks.answer_subjects[0],
                body=content,
                clock=draft.clock,
                request_id=call.asks.request_id,
                routing_info=call.asks.routing_info,
            )
            draft.send(answer, [waiting.agent])


def unrun_results(waiting: Breakpoint) -> dict[str, str]:
    """Return the results of the rejected and answered calls, by id."""
    return {
        call.call_id: unrun_result(call, call.approval)
        for call in waiting.calls
        if call.approval is not None and not call.approval.is_approved
    }


def unrun_result(call: PausedCall, approval: Decision) -> str:
    """Return what the agent reads of a call that does not run: the answer to its question, or why it has none."""
    if approval.answer:
        return approval.answer if call.asks is None else ANSWERED
    did = "run" if call.needs_approval else "answered"
    if not approval.by:
        return f"ERROR: it was not {did}: {approval.reason}"
    reason = f": {approval.reason}" if approval.reason else ""
    return f"ERROR: a person has rejected this call, and it was not {did}{reason}"


def announce_results(draft: Draft, waiting: Breakpoint, results: Mapping[str, str]) -> None:
    """Wake the waiting agent with the results of its tools, unless all its calls were questions."""
    lines = [f"{call.name}: {results[call.call_id]}" for call in waiting.calls if call.asks is None]
    if lines:
        draft.announce(waiting.agent, Subject.ACTION_COMPLETE, "\n".join(lines))
        draft.note_resumption(waiting.agent)


def require_no_question(task: Task) -> None:
    """Raise QuestionOpen if the task waits at a breakpoint, with what it asks and how to answer."""
    waiting = task.generation.breakpoint
    if waiting is None or task.status is not TaskStatus.PAUSED:
        return
    asked = "; ".join(map(_describe_question, waiting.calls))
    ways = ways_to_answer(
        waiting.calls,
        decisions="decisions in approvals",
        results="the result in kwargs.breakpoint_tool_call_result",
    )
    raise QuestionOpen(
        f"task {task.task_id!r} waits for an answer, which this message is not: agent {waiting.agent!r} called "
        f"{asked}. Answer with resume_from 'breakpoint_tool_call' and {ways}; or, to send the message and drop the "
        "question, set drop_question to true",
        waiting.calls,
    )


def ways_to_answer(calls: Sequence[PausedCall], *, decisions: str, results: str) -> str:
    """Return how to answer these calls: with `decisions` on those that wait for them, and `results` of the others."""
    kinds = {call.is_held for call in calls}
    return " and ".join(way for needs, way in ((True, decisions), (False, results)) if needs in kinds)


def _describe_question(call: PausedCall) -> str:
    shown = shortened(json.dumps(call.arguments, ensure_ascii=False), MAX_ARGUMENTS)
    subject = "" if call.asks is None else f", answered also by the subject {call.asks.answer_subjects[0]!r}"
    approval = ", which needs approval" if call.needs_approval else ""
    if call.reviewers is not None:
        approval += f", for {' or '.join(call.reviewers.by)} to decide"
    return f"{call.name} with {shown} (call_id {call.call_id!r}{subject}{approval})"


def abandon_breakpoint(draft: Draft) -> None:
    """Give the waiting calls the answers that they have, or an error: providers require a result for each."""
    waiting = draft.before.generation.breakpoint
    if waiting is None:
        return
    note = "ERROR: the user sent a new message instead of this tool's result"
    not_run = "ERROR: it was not run: the user sent a new message instead of a decision on this call"
    results = {call.call_id: not_run if call.needs_approval else note for call in waiting.calls}
    results |= unrun_results(waiting)
    draft.remember(
        waiting.agent,
        [tool_result(waiting.tool_format, call_id, result) for call_id, result in results.items()],
    )
    send_answers(draft, draft.owner_address, waiting)


def read_results(given: Any, waiting: tuple[PausedCall, ...]) -> dict[str, str]:
    """Match the user's results with the waiting calls; return the content by call id.

    `given` is a JSON string, an object `{"content"}`, a list `[{"call_id", "content"}]`, or plain text
    (SPEC, section 8). Raises BadBreakpointResult unless every waiting call gets exactly one result. Calls that wait for
    a decision get none.
    """
    calls = tuple(call for call in waiting if call.needs_result)
    if not calls:
        raise BadBreakpointResult(
            f"these calls wait for a decision, not for a result: {_ids(waiting)}; "
            f"{who_decides(waiting) or 'give approvals'}"
        )
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
        call_id = item.get("call_id", item.get("id"))
        # A single result is for the single waiting call, even with a stale id or none, as clients send it. An answer
        # to a question is exempt: its sender has read that question.
        if len(calls) == 1 and (call_id is None or calls[0].asks is None):
            call_id = calls[0].call_id
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
        return from_json(given, allow_inf_nan=False)  # unlike json.loads, refuses values that can't be stored
    except (ValueError, TypeError):  # TypeError: text that UTF-8 can't encode
        return given


def _text(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadBreakpointResult(f"a result contains text that UTF-8 can't encode: {error}") from error
    return text


def _ids(calls: tuple[PausedCall, ...]) -> str:
    return _join({call.call_id: "" for call in calls})


def _join(results: dict[str, str]) -> str:
    return ", ".join(repr(call_id) for call_id in results) or "no call"
