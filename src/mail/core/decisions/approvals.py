"""Approvals: a person approves, edits or rejects a call of an action before the engine runs it. Pure functions.

So are answers of reviewers: to calls of breakpoint tools that the engine doesn't run.

1. A turn that calls such an action pauses its task (`mail.core.decisions.breakpoints`). Its other actions have run.
2. People decide on the waiting calls, together or one by one: the task's owner, or the reviewers that the action names
   (`mail.core.decisions.reviewers`). After a decision on some of them, the task pauses again with the rest. Calls on
   which nobody decides in time are escalated to others, or rejected, or approved, as the action says.
3. When all are decided and none is approved, the agent reads the results at once. Else the engine first runs the
   approved calls, as actions of a turn that calls no model and reads no message, and stores their results. A message
   of the system wakes the agent's mailbox for both turns: mail that comes later can't overtake it, so that a turn that
   is repeated after a crash finds its checkpoint.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from mail.core.decisions.breakpoints import (
    add_results,
    announce_results,
    pause_at,
    send_answers,
    unrun_result,
    unrun_results,
)
from mail.core.decisions.callbacks import close, let_wait
from mail.core.decisions.cancel import MAX_REASON, discard, is_discarded
from mail.core.decisions.guards import decided, in_words, refused
from mail.core.decisions.reviewers import ask_reviewers, find_call, may_decide, who_decides
from mail.core.protocol.address import Principal
from mail.core.protocol.calls import AgentToolCall, tool_result
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import Value
from mail.core.task.approvals import DecisionName, LinkHolder
from mail.core.task.change import TaskChange, Turn
from mail.core.task.costs import NO_MODELS, NO_USAGE
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import ActionExtra, DecisionExtra, PauseExtra
from mail.core.task.files import NO_FILES
from mail.core.task.size import MAX_HELD, decision_size, decisions_size
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import Transition
from mail.core.task.turn_state import Breakpoint, Checkpoint, Decision, PausedCall, Receipt
from mail.errors import (
    AlreadyDecided,
    ApprovalNotFound,
    ArgumentsDiffer,
    BadApproval,
    BadBreakpointResult,
    Forbidden,
    Subject,
)


class GivenApproval(Value):
    """A person's decision on a call that waits for approval, or their answer to its question.

    Attributes:
        call_id: the call; None for the one that waits, or for those that `all` means.
        all: whether to decide all calls that still wait for a decision.
        arguments: those to run the call with, in place of the model's.
        reason: the agent reads it if the call is rejected.
        answer: the answer to the question that the call asks.
        arguments_sha256: the SHA-256 of the arguments that the person has seen (`PausedCall.digest`); None to decide
            on the call whatever its arguments are.
    """

    decision: DecisionName
    call_id: str | None = None
    all: bool = False
    arguments: dict[str, Any] | None = None
    reason: str = Field(default="", max_length=MAX_REASON)
    answer: str = ""
    arguments_sha256: str | None = None


def decide(
    draft: Draft, caller: Principal | LinkHolder, waiting: Breakpoint, given: Sequence[GivenApproval]
) -> Breakpoint:
    """Return the breakpoint with a person's decisions.

    Raises BadApproval if one is not for a waiting call, AlreadyDecided if it comes after another one on its call,
    ArgumentsDiffer if its call has other arguments than the person has seen, and Forbidden if others decide on it.
    """
    held = [call for call in waiting.calls if call.is_held]
    free = {
        call.call_id
        for call in held
        if call.is_undecided and (call.reviewers is None or may_decide(draft.before, call, caller))
    }
    if given and not held:
        raise BadApproval(
            "the waiting calls are of breakpoint tools; give kwargs.breakpoint_tool_call_result"
        )
    approvals: dict[str, Decision] = {}
    for each in given:
        chosen = [
            call
            for call in held
            if (call.call_id in free if each.call_id is None else call.call_id == each.call_id)
        ]
        if not chosen and each.call_id is None:
            chosen = [call for call in held if call.is_undecided]  # for the error
            if not chosen:
                raise BadApproval("all calls that need approval are decided")
        if not chosen:
            ids = ", ".join(repr(call.call_id) for call in held)
            raise BadApproval(
                f"call_id {each.call_id!r} names no call that waits for approval; these wait: {ids}"
            )
        if each.call_id is not None and each.all:
            raise BadApproval("give a decision a call_id, or all, but not both")
        if len(chosen) > 1 and each.arguments is not None:
            raise BadApproval("several calls wait; name the call_id of the one with these arguments")
        if len(chosen) > 1 and not each.all:
            ids = ", ".join(f"{call.name} (call_id {call.call_id!r})" for call in chosen)
            raise BadApproval(
                f"{len(chosen)} calls wait for approval: {ids}; give the call_id of one, or set all"
            )
        if len(chosen) > 1 and each.arguments_sha256 is not None:
            raise BadApproval("several calls wait; name the call_id of the one with this arguments_sha256")
        for call in chosen:
            if call.approval is not None:
                raise AlreadyDecided(
                    f"call_id {call.call_id!r}: {_describe(call, call.approval)}; this stands"
                )
            if call.call_id not in free:
                names = " and ".join(call.reviewers.by) if call.reviewers else ""
                raise Forbidden(f"call_id {call.call_id!r}: {names} may decide on it, {caller} may not")
            if each.arguments_sha256 not in (None, call.digest):
                raise ArgumentsDiffer(
                    f"call_id {call.call_id!r}: the call has other arguments than those with this arguments_sha256; "
                    f"its arguments_text is {call.arguments_text}"
                )
            if call.call_id in approvals:
                raise BadApproval(f"call_id {call.call_id!r} has two decisions")
            approvals[call.call_id] = _approval(draft.swarm, caller, waiting.agent, each, call)
    return _with_approvals(draft, waiting, _checked(waiting, approvals))


def _approval(
    swarm: SwarmCore, caller: Principal | LinkHolder, agent: str, given: GivenApproval, call: PausedCall
) -> Decision:
    """Return the decision on one call. Raises BadApproval for arguments that the action does not take."""
    is_answer = given.decision == "answer"
    if is_answer is call.needs_approval and given.decision != "reject":
        ways = "approve, edit" if call.needs_approval else "answer"
        raise BadApproval(f"a decision on the call {call.call_id!r} is one of: {ways}, reject")
    if is_answer != bool(given.answer.strip()):
        raise BadApproval(
            f"to answer the call {call.call_id!r}, give decision 'answer' and an answer with a text"
        )
    is_approved = given.decision in ("approve", "edit")
    if given.arguments is None:
        if given.decision == "edit":
            raise BadApproval(f"to edit the call {call.call_id!r}, give its new arguments")
    elif not is_approved:
        raise BadApproval(f"the call {call.call_id!r} will not run; leave out its arguments")
    elif problem := _find_problem(swarm, agent, call.name, given.arguments):
        raise BadApproval(f"{call.name} does not take these arguments: {problem}")
    return Decision(
        is_approved=is_approved,
        by=str(caller),
        reason=given.reason,
        arguments=given.arguments,
        answer=given.answer,
    )


def _checked(waiting: Breakpoint, given: Mapping[str, Decision]) -> Mapping[str, Decision]:
    """Return decisions that the task can keep, with those before, until it resumes. Raises BadApproval for longer ones.

    Those without a text of their own always have room.
    """
    size = sum(decision_size(each) for each in given.values() if each.answer or each.arguments is not None)
    if size and (size := size + decisions_size(waiting)) > MAX_HELD:
        raise BadApproval(
            f"the answers and the arguments of a turn's decisions may have {MAX_HELD} bytes together, not {size}; "
            "shorten them"
        )
    return given


def _find_problem(swarm: SwarmCore, agent: str, name: str, arguments: Mapping[str, Any]) -> str:
    action = swarm.actions.get(name) or swarm.known_tool(agent, name)
    return "" if action is None else action.find_problem(arguments)


def _with_approvals(draft: Draft, waiting: Breakpoint, approvals: Mapping[str, Decision]) -> Breakpoint:
    """Return the breakpoint with these decisions, by call id, and add an event for each."""
    calls = tuple(
        replace(call, approval=approvals[call.call_id]) if call.call_id in approvals else call
        for call in waiting.calls
    )
    for call in calls:
        if call.call_id in approvals:
            approval = approvals[call.call_id]
            draft.emit_result(
                EventKind.BREAKPOINT_ACTION_COMPLETE,
                _describe(call, approval),
                DecisionExtra(
                    agent=waiting.agent,
                    tool_call_id=call.call_id,
                    decision=decision_name(approval),
                    by=approval.by or None,
                    reason=approval.reason,
                    arguments=approval.arguments,
                    answer=approval.answer or None,
                ),
            )
    return replace(waiting, calls=calls)


def decision_name(approval: Decision) -> DecisionName:
    """Return the decision as people give it."""
    if approval.answer:
        return "answer"
    if not approval.is_approved:
        return "reject"
    return "approve" if approval.arguments is None else "edit"


def _describe(call: PausedCall, approval: Decision) -> str:
    by = f" by {approval.by}" if approval.by else ""
    reason = f": {approval.reason}" if approval.reason else ""
    if approval.answer:
        return f"{call.name} was answered{by}: {approval.answer}"
    if not approval.is_approved:
        return f"{call.name} was rejected{by}{reason}"
    if approval.arguments is None:
        return f"{call.name} was approved{by}{reason}"
    return f"{call.name} was approved{by} with other arguments, {json.dumps(approval.arguments)}{reason}"


def keep_results(
    draft: Draft, caller: Principal, waiting: Breakpoint, results: Mapping[str, str]
) -> Breakpoint:
    """Return the breakpoint with the owner's results, by call id, which its agent reads once all calls have ended.

    Raises BadApproval for one that is too long to wait, and BadBreakpointResult for an empty one.
    """
    if not all(content.strip() for content in results.values()):
        raise BadBreakpointResult("while other calls wait for decisions, a result must have a text")
    kept = {
        call_id: Decision(is_approved=False, by=str(caller), answer=content)
        for call_id, content in results.items()
    }
    return _with_approvals(draft, waiting, _checked(waiting, kept))


def keep_waiting(draft: Draft, waiting: Breakpoint, *, has_more: bool) -> None:
    """Pause the task again with the calls that still wait.

    Raises BadApproval if the caller gives more than decisions, which could be lost.
    """
    if has_more or waiting == draft.before.generation.breakpoint:
        undecided = [call for call in waiting.calls if call.is_undecided]
        if own := ", ".join(repr(call.call_id) for call in undecided if call.reviewers is None):
            raise BadApproval(f"calls wait for approval; give approvals with a decision on {own}")
        if undecided:
            raise BadApproval(f"{who_decides(undecided)} first; send the rest then")
        raise BadBreakpointResult("kwargs.breakpoint_tool_call_result is missing")
    continue_run(draft)
    for call in waiting.calls:
        if call.approval is None:
            draft.emit(
                EventKind.BREAKPOINT_TOOL_CALL,
                f"agent {waiting.agent} still waits for {call.name} with args: {call.arguments}",
                PauseExtra(
                    agent=waiting.agent, tool_call_id=call.call_id, needs_approval=call.needs_approval
                ),
            )
    pause_at(draft, waiting)


def continue_run(draft: Draft) -> None:
    """Resume a task's run with the tools, notes and output schema that its owner gave it."""
    draft.move(Transition.RESUME)
    before = draft.generation
    draft.generation = before.next(
        continues=True,
        client_tools=before.client_tools and before.client_tools.optional(),
        notes=before.notes,
        output_schema=before.output_schema,
    )


def has_approved(waiting: Breakpoint) -> bool:
    """Return whether a call is approved, so that the engine must run it."""
    return any(call.approval is not None and call.approval.is_approved for call in waiting.calls)


def run_approved(draft: Draft, waiting: Breakpoint, words: MAILMessage | None = None) -> None:
    """Have the engine run the approved calls of a task that resumes, and then wake the agent with all results.

    The agent reads the `words` that the person has sent with the decision together with the results.
    """
    lines = [_describe(call, call.approval) for call in waiting.calls if call.approval is not None]
    draft.announce(waiting.agent, Subject.ACTION_COMPLETE, "\n".join(lines))
    woken_by = None
    if words is not None:
        woken_by = draft.last_seq
        draft.send(words, [waiting.agent])
    draft.note_resumption(waiting.agent, to_come=1)
    calls = tuple(call for call in waiting.calls if call.approval is not None)
    draft.approved_calls = (*draft.approved_calls, replace(waiting, calls=calls, woken_by=woken_by))


def expire_approvals(draft: Draft, now: float) -> TaskChange | None:
    """Escalate or decide on the calls of a paused task that nobody has decided on in time; None if there are none."""
    waiting = draft.generation.breakpoint
    if waiting is None or waiting.approve_by is None or waiting.approve_by > now:
        return None
    late = [call for call in waiting.calls if _is_late(call, now)]
    escalated = {call.call_id: _escalate(draft, call) for call in late if _has_others(call)}
    waiting = replace(waiting, calls=tuple(escalated.get(call.call_id, call) for call in waiting.calls))
    ask_reviewers(draft, waiting, escalated.values())
    decisions = {call.call_id: _without_people(call) for call in late if call.call_id not in escalated}
    if not decisions:
        draft.generation = replace(draft.generation, breakpoint=waiting)
        return draft.seal()
    _carry_on(draft, _with_approvals(draft, waiting, decisions))
    return draft.seal()


def _is_late(call: PausedCall, now: float) -> bool:
    return call.is_undecided and call.approve_by is not None and call.approve_by <= now


def is_too_late(call: PausedCall, now: float) -> bool:
    """Return whether the time for a decision is over, though no sweep has found the call yet."""
    return _is_late(call, now) and not _has_others(call)


def _has_others(call: PausedCall) -> bool:
    """Return whether a call can be escalated."""
    return call.reviewers is not None and bool(call.reviewers.escalate_to)


def _escalate(draft: Draft, call: PausedCall) -> PausedCall:
    assert call.reviewers is not None
    assert call.approve_within is not None
    return replace(call, reviewers=call.reviewers.escalated(), approve_by=draft.time_in(call.approve_within))


def _without_people(call: PausedCall) -> Decision:
    """Return what becomes of a call on which nobody has decided."""
    if not call.needs_approval:
        return Decision(is_approved=False, reason=f"nobody answered within {call.approve_within:g} seconds")
    is_approved = call.reviewers is not None and call.reviewers.otherwise == "approve"
    did = "decided on" if is_approved else "approved"
    return Decision(is_approved=is_approved, reason=f"nobody {did} it within {call.approve_within:g} seconds")


def review(draft: Draft, who: Principal | LinkHolder, approval_id: str, given: GivenApproval) -> TaskChange:
    """Decide on the call with this approval; `given` need not name it.

    Raises ApprovalNotFound if it doesn't wait for this decision any more, and as `decide`.
    """
    call, waiting = find_call(draft.before, approval_id), draft.before.paused_at
    if call is None or waiting is None or is_too_late(call, draft.time_in(0.0)):
        raise ApprovalNotFound
    named = given.model_copy(update={"call_id": call.call_id, "all": False})
    _carry_on(draft, decide(draft, who, waiting, [named]))
    return draft.seal()


def _carry_on(draft: Draft, waiting: Breakpoint) -> None:
    """Resume a task after decisions that its owner has not sent, if none is missing; else it keeps waiting."""
    if any(call.approval is None for call in waiting.calls):
        keep_waiting(draft, waiting, has_more=False)
        return
    continue_run(draft)
    draft.limits = draft.limits.without_time()
    send_answers(draft, draft.owner_address, waiting)
    if has_approved(waiting):
        run_approved(draft, waiting)
    else:
        results = unrun_results(waiting)
        add_results(draft, waiting, results)
        announce_results(draft, waiting, results)


# ------------------------------------------------------------------------------------- the turn that runs them


def approved_checkpoint(waiting: Breakpoint) -> Checkpoint:
    """Return the checkpoint from which a turn runs the approved calls."""
    calls = tuple(
        AgentToolCall(
            tool_name=call.name,
            tool_args=call.arguments if call.approval.arguments is None else call.approval.arguments,
            tool_call_id=call.call_id,
            completion={"role": "assistant"},  # never shown: the history has the call
        )
        for call in waiting.calls
        if call.approval is not None and call.approval.is_approved
    )
    return Checkpoint(text=None, calls=calls, receipts=(None,) * len(calls), approved=True)


def is_progress(checkpoint: Checkpoint, waiting: Breakpoint) -> bool:
    """Return whether the checkpoint is that of an interrupted turn with these approved calls."""
    return checkpoint.approved and checkpoint.calls == approved_checkpoint(waiting).calls


def settle_approved(draft: Draft, turn: Turn, reached: Checkpoint | None, failure: str) -> TaskChange | None:
    """Store the results of decided calls, as far as the turn has come; the agent reads the message of the turn later.

    `failure` is why the turn came no further, if it failed. None if the results are stored already.
    """
    if is_discarded(draft.before, turn):
        return discard(draft, turn, NO_USAGE, NO_MODELS)
    waiting = draft.before.approved_calls_of(turn.mailbox)
    if waiting is None:
        return None
    draft.files = NO_FILES if reached is None else reached.files
    draft.end_turn(turn, consume=turn.entry.seq == waiting.woken_by)
    receipts, refusals = dict[str, Receipt | None](), dict[str, str]()
    if reached is not None:
        ids = (call.tool_call_id for call in reached.calls)
        receipts = dict(zip(ids, reached.receipts, strict=True))
        refusals = _refusals(draft, waiting.agent, reached)
    history: History = []
    for call in waiting.calls:
        assert call.approval is not None
        if call.call_id in refusals:
            result = f"ERROR: {refusals[call.call_id]}"
        elif call.approval.is_approved:
            result = _report(draft, turn, call, receipts.get(call.call_id), failure)
        else:
            result = unrun_result(call, call.approval)
        history.append(tool_result(waiting.tool_format, call.call_id, result))
    draft.approved_calls = tuple(each for each in draft.approved_calls if each is not waiting)
    versions = draft.generation.versions_with(draft.swarm.digest)
    draft.generation = replace(draft.generation, versions=versions)
    gone = None if failure else _gone(draft.swarm, waiting, receipts)
    if gone is not None and draft.is_running:
        draft.fail(f"{gone} The task was ended.")
    draft.remember(waiting.agent, history)
    return draft.seal()


def _refusals(draft: Draft, agent: str, reached: Checkpoint) -> dict[str, str]:
    """Add events of what guards have decided, and return the results of the calls that these refuse, by id."""
    for extra in decided(reached):
        draft.emit(EventKind.GUARD_DECISION, in_words(extra, agent), replace(extra, agent=agent))
    found = ((call, reached.refusal(index)) for index, call in enumerate(reached.calls))
    return {call.tool_call_id: refused(verdict.reason) for call, verdict in found if verdict is not None}


def _gone(swarm: SwarmCore, waiting: Breakpoint, receipts: Mapping[str, Receipt | None]) -> str | None:
    """Return which agent or action an approved call no longer has, in words; None if it has both."""
    agent = swarm.agent(waiting.agent) if swarm.has(waiting.agent) else None
    for call in waiting.calls:
        if call.approval is None or not call.approval.is_approved or receipts.get(call.call_id) is not None:
            continue
        of = f"the call of {call.name} by agent {waiting.agent!r} was approved, but the swarm no longer has this"
        if agent is None:
            return f"{of} agent."
        if agent.tool_source is None and not swarm.runs_as_action(agent, call.name):
            return f"{of} action of it."
    return None


def _report(draft: Draft, turn: Turn, call: PausedCall, receipt: Receipt | None, failure: str) -> str:
    """Add the events of an approved call, and return its result."""
    agent = turn.mailbox
    edited = call.approval.arguments if call.approval is not None else None
    arguments = call.arguments if edited is None else edited
    draft.emit(
        EventKind.ACTION_CALL,
        f"agent {agent} executing action tool: {call.name} with args: {arguments}",
        ActionExtra(agent=agent),
    )
    if receipt is not None and receipt.callback is not None:
        about = (call.name, call.call_id)
        if receipt.state is Receipt.State.WAITING:
            return let_wait(draft, agent, *about, receipt.callback, arguments)
        close(draft, agent, *about, receipt)
    is_done, content = _outcome(receipt, failure)
    kind = EventKind.ACTION_COMPLETE if is_done else EventKind.ACTION_ERROR
    draft.emit_result(kind, content, ActionExtra(agent=agent))
    if edited is not None:
        content = f"a person has changed the arguments to {json.dumps(edited)}. Result: {content}"
    return f"{'SUCCESS' if is_done else 'ERROR'}: {content}"


def _outcome(receipt: Receipt | None, failure: str) -> tuple[bool, str]:
    """Return whether an approved call has succeeded, and its result or error."""
    if receipt is None:
        return False, f"it was not run: {failure or 'the swarm no longer has this action'}"
    if receipt.state is Receipt.State.STARTED:
        return (
            False,
            f"the outcome is unknown: {failure}. Check whether it took effect before you call it again.",
        )
    return receipt.state is Receipt.State.DONE, receipt.content
