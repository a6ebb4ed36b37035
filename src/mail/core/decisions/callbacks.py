"""Calls of actions that finish later: when they wait, and what their results change. Pure functions.

    turn: the action returns LATER ──► its call waits; a turn in which every call waits wakes nobody
    result, failure, or no sign of life in time ──► mail to the agent, in the same commit as the end of the call

A result may come before the turn of its call is committed: it is mail already, and the turn finds it noted. The end of
a task cancels its open calls.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from mail.core.protocol.clock import Clock, format_time
from mail.core.task.callbacks import Callback, CallResult, CallState, LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import ActionExtra, WaitExtra
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import ENDED, Task
from mail.core.task.turn_state import Receipt
from mail.errors import CallbackClosed, Subject

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
    if call.has_ended and call.state is not CallState.DROPPED:
        raise CallbackClosed(f"{call.name} has {call.state.value} already, with another result; this stands")
    if not takes_result(task, call):
        raise CallbackClosed(f"task {task.task_id!r} no longer waits for {call.name}: it has ended since")


def let_wait(draft: Draft, agent: str, name: str, call_id: str, callback: Callback, seq: int) -> str:
    """Let a call wait, unless its result has come already; return what its agent reads in place of a result."""
    made = _record(draft, agent, name, call_id, callback, seq)
    if draft.has_ended:
        draft.keep_wait(replace(made, state=CallState.DROPPED))
        return f"ERROR: {ENDED_MEANWHILE}"
    if not _take_early(draft, made):
        extra = WaitExtra(agent=agent, tool_call_id=call_id, tool_name=name, finish_by=callback.finish_by)
        draft.emit(EventKind.ACTION_WAITING, f"agent {agent} will get the result of {name} later", extra)
        draft.keep_wait(made)
        draft.waits = draft.waits.added(made)
    return (
        f"UNDER WAY: {name} has begun, and its result comes to you as a message, by {format_time(made.finish_by)} at "
        "the latest. Do other work, or await it; don't call it again for this."
    )


def close(draft: Draft, agent: str, name: str, call_id: str, receipt: Receipt, seq: int) -> None:
    """End the record of a call that might have finished later, and has ended within its turn."""
    assert receipt.callback is not None
    failed = receipt.state is Receipt.State.FAILED
    made = _record(draft, agent, name, call_id, receipt.callback, seq)
    if not _take_early(draft, made):
        draft.keep_wait(_ended(made, CallResult(receipt.content, has_failed=failed)))


def finish(
    task: Task, swarm: SwarmCore, call: LaterCall, result: CallResult, clock: Clock
) -> TaskChange | None:
    """End a call with its result, which its agent reads as mail; None if it has ended with the same one.

    Raises CallbackClosed if it takes no result any more.
    """
    if call.has_ended and call.result == result.digest:
        return None
    check_open(task, call)
    draft = Draft(task, swarm, clock)
    ended, calls = _ended(call, result), task.waits
    draft.keep_wait(ended)
    if call.state is CallState.WAITING:
        draft.waits = calls.removed(ended)
    else:
        draft.waits = replace(calls, early=(*calls.early, (ended.agent, ended.digest)))
    if result.has_failed:
        _announce_failures(draft, call.agent, [(call, result.text)])
    else:
        draft.emit(
            EventKind.ACTION_COMPLETE,
            f"action complete (caller = {call.agent}):\n{result.text}",
            _extra(call),
        )
        draft.announce(_reader(draft, call), Subject.ACTION_COMPLETE, f"{call.name}: {result.text}")
    return draft.seal()


def expire_calls(draft: Draft, late: Sequence[LaterCall]) -> None:
    """Fail calls of a task that are due, so that their agents read it."""
    by_agent: defaultdict[str, list[tuple[LaterCall, str]]] = defaultdict(list)
    for call in late:
        draft.keep_wait(replace(call, state=CallState.EXPIRED))
        draft.waits = draft.waits.removed(call)
        by_agent[call.agent].append((call, _why_late(call)))
    for agent, failures in by_agent.items():
        _announce_failures(draft, agent, failures)


def _record(draft: Draft, agent: str, name: str, call_id: str, callback: Callback, seq: int) -> LaterCall:
    return LaterCall(
        digest=callback.digest,
        agent=agent,
        name=name,
        call_id=call_id,
        state=CallState.WAITING,
        seq=seq,
        finish_by=callback.finish_by,
        heartbeat=callback.heartbeat,
        heard=draft.time_in(0.0),
        epoch=draft.waits.epoch,
    )


def _take_early(draft: Draft, call: LaterCall) -> bool:
    """Return whether a call has ended before its turn is committed, and forget that."""
    noted, calls = (call.agent, call.digest), draft.waits
    if noted not in calls.early:
        return False
    draft.waits = replace(calls, early=tuple(each for each in calls.early if each != noted))
    return True


def _ended(call: LaterCall, result: CallResult) -> LaterCall:
    state = CallState.FAILED if result.has_failed else CallState.FINISHED
    return replace(call, state=state, result=result.digest)


def _announce_failures(draft: Draft, agent: str, failures: Sequence[tuple[LaterCall, str]]) -> None:
    for call, why in failures:
        draft.emit(EventKind.ACTION_ERROR, f"action error (caller = {agent}):\n{why}", _extra(call))
    lines = [f"{call.name}: ERROR: {why}" for call, why in failures]
    draft.tell(_reader(draft, failures[0][0]), Subject.ACTION_ERROR, "\n".join(lines))


def _extra(call: LaterCall) -> ActionExtra:
    return ActionExtra(agent=call.agent, tool_call_id=call.call_id)


def _reader(draft: Draft, call: LaterCall) -> str:
    """Return who reads how a call has ended: its agent, or the entrypoint if the swarm no longer has that agent."""
    return call.agent if draft.swarm.has(call.agent) else draft.entrypoint


def _why_late(call: LaterCall) -> str:
    if call.due == call.finish_by:
        return f"its result had not come by {format_time(call.finish_by)}"
    return f"nothing had been heard of it for {call.heartbeat:g} seconds"
