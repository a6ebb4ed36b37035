"""Calls of actions that finish later: when they wait, and what their results change. Pure functions.

    turn: the action returns LATER ──► its call waits; a turn in which every call waits wakes nobody
    result, failure, or no sign of life in time ──► mail to the agent, in the same commit as the end of the call

A result may come before the turn of its call is committed: it is mail already, and the turn finds it noted. The end of
a task cancels its open calls, and its reminders: the records that wait under an earlier epoch are then the mail of a
mailbox of their own (`CANCELLED_CALLS`). Its turns call `on_cancel` of the actions that have it, and delete the rest.
They also ask servers for the results of the calls that these work on (`Polled`). If guards judge the results of an
agent, one that comes is stored with its call, and these turns have it judged before anybody sees it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mail.core.decisions.backoff import POLL_SECONDS
from mail.core.decisions.guards import in_words
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import format_time
from mail.core.protocol.values import fill, value
from mail.core.task.callbacks import (
    LONGEST_WAIT,
    MAX_JUDGED,
    Callback,
    CallResult,
    CallState,
    LaterCall,
    Polled,
)
from mail.core.task.change import TaskChange
from mail.core.task.costs import Usage
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import ActionExtra, GuardExtra, WaitExtra
from mail.core.task.leases import Claim
from mail.core.task.size import text_size
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import ENDED, Task
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.core.task.waits import MOST_ENDED, Wait, Waits
from mail.core.task.webhooks import RETRY_SECONDS
from mail.errors import CallbackClosed, CallNotFound, PayloadTooLarge, Subject

_UNDER_WAY = (Receipt.State.STARTED, Receipt.State.WAITING)

Answers = Mapping[str, CallResult | Polled | str]
"""What servers say of calls that they work on, by the digests of the calls; or why one could not be asked."""

ENDED_MEANWHILE = "the task ended before this call could wait for its result, which nobody will read"


def takes_result(task: Task, call: LaterCall) -> bool:
    """Return whether a call still takes a result."""
    if call.has_ended or task.status in ENDED:
        return False
    if call.state is CallState.WAITING:
        return call.epoch == task.waits.epoch
    return task.cancellation is None or call.seq > task.cancellation.seq


def check_open(task: Task, call: LaterCall) -> None:
    """Raise CallbackClosed if a call takes neither a result nor a heartbeat any more."""
    if call.state is CallState.EXPIRED:
        raise CallbackClosed(f"it is too late: {call.name} has failed, as {_why_late(call)}")
    if call.received is not None:
        raise CallbackClosed(f"{call.name} has its result already; this stands")
    if call.has_ended and call.state is not CallState.DROPPED:
        raise CallbackClosed(f"{call.name} has {call.state.value} already, with another result; this stands")
    if not takes_result(task, call):
        raise CallbackClosed(
            f"task {task.task_id!r} no longer waits for {call.name}: the call or the task has ended"
        )


def let_wait(
    draft: Draft, agent: str, name: str, call_id: str, callback: Callback, arguments: Mapping[str, Any]
) -> str:
    """Let a call wait, unless its result has come already; return what its agent reads in place of a result."""
    made = _record(draft, agent, name, call_id, callback, arguments)
    is_early = _take_early(draft, made)
    cancellation = draft.cancellation
    is_cancelled = draft.has_ended or (cancellation is not None and callback.seq <= cancellation.seq)
    if is_cancelled and (callback.is_judged or not is_early):
        _drop(draft, made)
        return f"ERROR: {ENDED_MEANWHILE}"
    if is_early and callback.is_judged:  # its record has the result
        draft.waits = replace(draft.waits.added(made), poll_at=0.0)
    elif not is_early:
        extra = WaitExtra(agent=agent, tool_call_id=call_id, tool_name=name, finish_by=callback.finish_by)
        draft.emit(EventKind.ACTION_WAITING, f"agent {agent} will get the result of {name} later", extra)
        draft.keep_wait(made)
        draft.waits = draft.waits.added(made)
    return (
        f"UNDER WAY: {name} has begun, and its result comes to you as a message, by {format_time(made.finish_by)} at "
        "the latest. Do other work, or await it; don't call it again for this."
    )


def drop_calls(draft: Draft, agent: str, checkpoint: Checkpoint) -> None:
    """Cancel the calls of a turn that is discarded, so that their actions learn it."""
    for call, receipt in zip(checkpoint.calls, checkpoint.receipts, strict=True):
        if receipt is None or receipt.callback is None or receipt.state not in _UNDER_WAY:
            continue
        made = _record(draft, agent, call.tool_name, call.tool_call_id, receipt.callback, call.tool_args)
        if receipt.callback.is_judged or (made.key and (made.digest, made.message) not in draft.waits.early):
            _drop(draft, made)


def close(draft: Draft, agent: str, name: str, call_id: str, receipt: Receipt) -> None:
    """End the record of a call that might have finished later, and has ended within its turn."""
    assert receipt.callback is not None
    failed = receipt.state is Receipt.State.FAILED
    made = _record(draft, agent, name, call_id, receipt.callback, {})
    if not _take_early(draft, made) or made.is_judged:
        draft.keep_wait(_ended(made, CallResult(receipt.content, has_failed=failed)))


def finish(draft: Draft, call: LaterCall, result: CallResult) -> TaskChange | None:
    """End a call with its result, which its agent reads as mail; None if it has ended with the same one.

    Raises CallbackClosed if it takes no result any more.
    """
    if result.digest in (call.result, call.received and call.received.digest):
        return None
    check_open(draft.before, call)
    if not call.is_judged:
        _finish(draft, call, result)
        return draft.seal()
    if (size := text_size(result.text)) > MAX_JUDGED:
        raise PayloadTooLarge(f"guards judge this result: it has {size} bytes, and may have {MAX_JUDGED}")
    received = replace(call, state=CallState.WAITING, epoch=draft.waits.epoch, received=result)
    draft.keep_wait(replace(received, heartbeat=None, finish_by=draft.time_in(LONGEST_WAIT)))
    if call.state is CallState.WAITING:
        draft.waits = replace(draft.waits, poll_at=0.0)
    else:
        draft.waits = _noted(draft.waits, call)
    return draft.seal()


def _noted(waits: Waits, call: LaterCall) -> Waits:
    """Note that a call has its result before its turn is committed."""
    return replace(waits, early=(*waits.early, (call.digest, call.message)))


def _finish(draft: Draft, call: LaterCall, result: CallResult) -> None:
    ended, calls = _ended(call, result), draft.waits
    draft.keep_wait(ended)
    if call.state is CallState.WAITING:
        draft.waits = calls.removed(ended)
    else:
        draft.waits = _noted(calls, ended)
    if result.has_failed:
        _announce_failures(draft, [(call, result.text)])
    else:
        draft.files = {**draft.files, **result.files}
        draft.stored_bytes += result.stored_bytes
        _emit(draft, EventKind.ACTION_COMPLETE, call, result.text)
        if not _end_if_gone(draft, call):
            text = f"{_name(draft.swarm, call)}: {result.text}"
            draft.announce(_reader(draft, call), Subject.ACTION_COMPLETE, text)


def has_result(task: Task, call: LaterCall) -> bool:
    """Return whether the result of a call comes to the mailbox of calls: it is asked for, or has to be judged."""
    is_here = call.received is not None and (call.digest, call.message) not in task.waits.early
    return (is_here or call.polled is not None) and takes_result(task, call)


def due_to_poll(calls: Iterable[LaterCall], now: float) -> list[LaterCall]:
    """Return those of these calls whose results are to be judged or asked for now, in the order of their times."""
    return sorted(
        (call for call in calls if _poll_at(call) <= now), key=lambda call: (_poll_at(call), call.digest)
    )


def _poll_at(call: LaterCall) -> float:
    return 0.0 if call.received is not None or call.polled is None else call.polled.at


def _note_answers(draft: Draft, calls: Iterable[LaterCall], answers: Answers) -> None:
    """End the calls that have their results, and note when servers are asked about the others."""
    left: list[float] = []
    for call in calls:
        polled, answer = call.polled, answers.get(call.digest)
        if polled is None:
            if isinstance(answer, CallResult):
                _finish(draft, call, answer)
            else:
                left.append(0.0)
            continue
        if isinstance(answer, str) and polled.failures >= len(RETRY_SECONDS):
            answer = CallResult(f"its result can't be read: {answer}", has_failed=True)
        match answer:
            case CallResult():
                _finish(draft, call, answer)
                continue
            case Polled():
                pause = max(answer.pause, POLL_SECONDS[min(polled.polls, len(POLL_SECONDS) - 1)])
                polled = replace(answer, at=draft.time_in(pause), polls=polled.polls + 1, failures=0)
                heard = call.heard_of(draft.time_in(0.0), answer.progress or None)
                polled = replace(polled, progress="") if call.is_judged else polled
                draft.keep_wait(replace(heard, polled=polled))
            case str():
                at = draft.time_in(RETRY_SECONDS[polled.failures])
                polled = replace(polled, at=at, failures=polled.failures + 1)
                draft.keep_wait(replace(call, polled=polled))
        left.append(polled.at)
    draft.waits = replace(draft.waits, poll_at=min(left, default=None))


def cancel_call(draft: Draft, call: Wait | None, call_id: str, by: Principal) -> TaskChange:
    """Cancel a call that waits, so that its agent reads an error and its action learns it; `call` is its record.

    Raises CallNotFound if it no longer waits.
    """
    if (
        not isinstance(call, LaterCall)
        or call.state is not CallState.WAITING
        or not takes_result(draft.before, call)
    ):
        raise CallNotFound(f"no call {call_id!r} waits in task {draft.task_id!r}; it may have ended")
    draft.waits = draft.waits.removed(call)
    _drop(draft, call)
    _announce_failures(draft, [(call, f"{by.id} has cancelled it")])
    return draft.seal()


def expire_calls(draft: Draft, late: Sequence[LaterCall]) -> None:
    """Fail calls of a task that are due, so that their agents read it."""
    by_agent: defaultdict[str, list[tuple[LaterCall, str]]] = defaultdict(list)
    for call in late:
        draft.keep_wait(call.ended(CallState.EXPIRED))
        draft.waits = draft.waits.removed(call)
        by_agent[call.agent].append((call, _why_late(call)))
    for failures in by_agent.values():
        _announce_failures(draft, failures)


def is_cancelled(task: Task, call: LaterCall) -> bool:
    """Return whether the action of a waiting call must learn that it is cancelled."""
    return bool(call.key) and call.epoch < task.waits.epoch and task.waits.cancel_at is not None


def in_order(calls: Iterable[LaterCall]) -> list[LaterCall]:
    """Return cancelled calls in the order in which their actions are to learn it."""
    return sorted(calls, key=lambda call: (_cancel_at(call), call.digest))


def due_to_cancel(calls: Iterable[LaterCall], now: float) -> list[LaterCall]:
    """Return those of these calls whose actions are to learn it now, and not after a pause."""
    return [call for call in calls if _cancel_at(call) <= now]


@value(kw_only=True)
class CallsRound:
    """The calls of a task that a turn of their mailbox has read, and what has become of those that were due.

    Attributes:
        cancelled: the first of the cancelled calls whose actions have `on_cancel`.
        polled: the calls that wait for results which servers have.
        rest: some of the other calls and timers that were cancelled, which are deleted.
        problems: why `on_cancel` has failed, by the digests of the calls for which it was called; empty if it has not.
        answers: what servers have said of the calls about which they were asked, and results that were judged.
        decisions: what guards have decided on these, by the digests of the calls.
        spent: what guards have spent on that, by agent, in total and by model.
        is_final: whether `on_cancel` isn't called again after it has failed.
    """

    cancelled: Sequence[LaterCall] = ()
    polled: Sequence[LaterCall] = ()
    rest: Sequence[Wait] = ()
    problems: Mapping[str, str] = MappingProxyType({})
    answers: Answers = MappingProxyType({})
    decisions: Mapping[str, Sequence[GuardExtra]] = MappingProxyType({})
    spent: Mapping[str, tuple[Usage, Mapping[str, Usage]]] = MappingProxyType({})
    is_final: bool = False


def settle_calls(draft: Draft, claim: Claim, calls: CallsRound) -> TaskChange:
    """End a claim on the mailbox of calls. A failed `on_cancel` is called again after a pause, unless `is_final`."""
    task = draft.before
    draft.end_claim(claim)
    for wait in calls.rest[:MOST_ENDED]:
        if isinstance(wait, LaterCall):
            draft.keep_wait(wait.ended(CallState.DROPPED))
        else:
            draft.end_timer(wait, is_open=False)
    left = [_cancel_at(call) for call in calls.cancelled if call.digest not in calls.problems]
    left += [0.0] * (len(calls.rest) > MOST_ENDED)
    for call in calls.cancelled:
        problem = calls.problems.get(call.digest)
        if problem == "":
            _emit(draft, EventKind.ACTION_CANCELLED, call, call.name)
            draft.keep_wait(call.ended(CallState.DROPPED))
        elif problem is not None:
            failed = replace(call, attempts=call.attempts + 1, heard=draft.time_in(0.0))
            if calls.is_final or call.attempts >= len(RETRY_SECONDS):
                why = f"on_cancel of {call.name} has failed {_times(failed.attempts)}, and is given up: {problem}"
                _emit(draft, EventKind.ACTION_ERROR, call, why)
                failed = failed.ended(CallState.DROPPED)
            else:
                left.append(_cancel_at(failed))
            draft.keep_wait(failed)
    if task.waits.cancel_at == 0.0 and task.version != claim.task.version:
        left.append(0.0)  # others may have been cancelled since
    draft.waits = replace(task.waits, cancel_at=min(left, default=None))
    for call in calls.polled:
        for decision in calls.decisions.get(call.digest, ()):
            about = replace(decision, agent=call.agent, tool_name=call.name, tool_call_id=call.call_id)
            draft.emit(EventKind.GUARD_DECISION, in_words(about, call.agent), about)
    for agent, (usage, models) in calls.spent.items():
        draft.charge(agent, usage, models)
    _note_answers(draft, calls.polled, calls.answers)
    return draft.seal()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _cancel_at(call: LaterCall) -> float:
    return call.heard + RETRY_SECONDS[call.attempts - 1] if call.attempts else 0.0


def _drop(draft: Draft, call: LaterCall) -> None:
    """Cancel a call that has not waited yet."""
    if not call.key:
        draft.keep_wait(replace(call, state=CallState.DROPPED))
        return
    draft.keep_wait(replace(call, epoch=draft.waits.epoch - 1))
    draft.waits = replace(draft.waits, cancel_at=0.0)


def _record(
    draft: Draft, agent: str, name: str, call_id: str, callback: Callback, arguments: Mapping[str, Any]
) -> LaterCall:
    """Return the record of a call that waits from now on."""
    polled = callback.polled
    if polled is not None:
        polled = replace(polled, at=draft.time_in(max(polled.pause, POLL_SECONDS[0])))
    made = begun(callback, agent, name, call_id, arguments, draft.time_in(0.0))
    return replace(made, state=CallState.WAITING, epoch=draft.waits.epoch, polled=polled)


def begun(
    callback: Callback, agent: str, name: str, call_id: str, arguments: Mapping[str, Any], now: float
) -> LaterCall:
    """Return the record of a call that begins, so that its result may come from now on."""
    kept = arguments if callback.key and callback.polled is None else {}
    about = {"agent": agent, "name": name, "call_id": call_id, "arguments": kept, "since": now, "heard": now}
    return LaterCall(**fill(LaterCall, callback, state=CallState.STARTED, **about))


def _take_early(draft: Draft, call: LaterCall) -> bool:
    """Return whether a call has ended before its turn is committed, and forget that."""
    noted, calls = (call.digest, call.message), draft.waits
    if noted not in calls.early:
        return False
    draft.waits = replace(calls, early=tuple(each for each in calls.early if each != noted))
    return True


def _ended(call: LaterCall, result: CallResult) -> LaterCall:
    given = call.received or result  # which may come again
    return call.ended(CallState.FAILED if result.has_failed else CallState.FINISHED, given.digest)


def _announce_failures(draft: Draft, failures: Sequence[tuple[LaterCall, str]]) -> None:
    """Have the agent of some calls read why they have failed."""
    for call, why in failures:
        _emit(draft, EventKind.ACTION_ERROR, call, why)
    if _end_if_gone(draft, failures[0][0]):
        return
    lines = [f"{_name(draft.swarm, call)}: ERROR: {why}" for call, why in failures]
    draft.tell(_reader(draft, failures[0][0]), Subject.ACTION_ERROR, "\n".join(lines))


def _emit(draft: Draft, kind: EventKind, call: LaterCall, text: str) -> None:
    draft.emit_result(kind, text, ActionExtra(agent=call.agent, tool_call_id=call.call_id))


def _end_if_gone(draft: Draft, call: LaterCall) -> bool:
    """End a running task as failed if the swarm no longer has the agent of a call that has ended; return whether."""
    if draft.swarm.has(call.agent) or not draft.is_running:
        return False
    draft.fail(
        f"{call.name}, which agent {call.agent!r} had called, has ended, but the swarm no longer has this agent. "
        "The task was ended."
    )
    return True


def _reader(draft: Draft, call: LaterCall) -> str:
    """Return who reads how a call has ended: its agent, or the entrypoint if the swarm no longer has that agent."""
    return call.agent if draft.swarm.has(call.agent) else draft.entrypoint


def _name(swarm: SwarmCore, call: LaterCall) -> str:
    """Return the action of a call that has ended, and what the swarm no longer has of it."""
    if not swarm.has(call.agent):
        return f"{call.name} of agent {call.agent!r}, which the swarm no longer has"
    agent = swarm.agent(call.agent)
    if agent.tool_source is None and not swarm.runs_as_action(agent, call.name):
        return f"{call.name}, an action that you no longer have"
    return call.name


def _why_late(call: LaterCall) -> str:
    if call.due == call.finish_by:
        return f"its result had not come by {format_time(call.finish_by)}"
    return f"nothing had been heard of it for {call.heartbeat:g} seconds"
