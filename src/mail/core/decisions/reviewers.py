"""Reviewers: calls whose approval, or answer, is asked of others than the task's owner. Pure functions.

The request is an event of the task, once for a call and once more when it is escalated. If the action names a webhook,
it is one of the task's, and gets these events in a form of their own, which says nothing else of the task.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock, format_time
from mail.core.task.approvals import LinkHolder
from mail.core.task.draft import Draft
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import ReviewExtra
from mail.core.task.task import Task
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.core.task.webhooks import TaskWebhook

LINK_PATH = "/approvals/"
"""The path of the approvals of a server; an id follows and, in a link, a token."""

_TIME_DIGITS = 12


def new_id(clock: Clock) -> str:
    """Return an id of a breakpoint that begins with the time, so that they are ordered by it."""
    return f"{int(clock.now().timestamp() * 1000):0{_TIME_DIGITS}x}-{clock.new_id()}"


def ask_reviewers(draft: Draft, reached: Breakpoint, calls: Iterable[PausedCall]) -> None:
    """Ask the reviewers of calls for a decision: by an event, which also goes to the webhooks of their actions."""
    for call in calls:
        rule = call.reviewers
        if rule is None:
            continue
        agent, who = reached.agent, " and ".join(rule.by)
        may = (
            f"decide whether agent {agent} calls"
            if call.needs_approval
            else f"answer what agent {agent} asks with"
        )
        draft.emit(
            EventKind.APPROVAL_REQUESTED,
            f"{who} may {may} {call.name}",
            ReviewExtra(
                agent=agent,
                tool_call_id=call.call_id,
                approval_id=reached.approval_id(call),
                reviewers=rule.by,
                decide_by=call.approve_by,
                hook=rule.hook_id,
            ),
        )
        if rule.webhook and rule.hook_id not in draft.webhooks:
            seq = draft.before.seq
            hook = TaskWebhook(
                url=rule.webhook, secret_ref=rule.secret, asks=rule.hook_id, after=seq, upto=seq
            )
            draft.webhooks = {**draft.webhooks, rule.hook_id: hook}


def find_call(task: Task, approval_id: str) -> PausedCall | None:
    """Return the call with this approval, if it waits for a decision."""
    if (paused_at := task.paused_at) is None:
        return None
    undecided = (call for call in paused_at.calls if call.is_undecided)
    return next((call for call in undecided if paused_at.approval_id(call) == approval_id), None)


def may_decide(task: Task, call: PausedCall, who: Principal | LinkHolder) -> bool:
    """Return whether somebody may decide on a call of a task: its owner, or its reviewers if it has some."""
    if isinstance(who, LinkHolder):
        is_its_own = find_call(task, who.approval_id) is call
        return call.reviewers is not None and call.reviewers.has_links and is_its_own
    if call.reviewers is None:
        return str(who) == task.instance
    return call.reviewers.lets(who, Principal.parse(task.owner))


def who_decides(calls: Iterable[PausedCall]) -> str:
    """Return which reviewers must decide on which of these calls, in words; empty if none has reviewers."""
    return " and ".join(
        f"{' or '.join(call.reviewers.by)} must decide on call_id {call.call_id!r}"
        for call in calls
        if call.is_undecided and call.reviewers is not None
    )


def show_call(task: Task, paused_at: Breakpoint, call: PausedCall) -> dict[str, Any]:
    """Return a call as those read it who may decide on it: nothing else of the task."""
    asked = int(paused_at.id[:_TIME_DIGITS], 16) / 1000
    return {
        "id": paused_at.approval_id(call),
        "agent": paused_at.agent,
        "name": call.name,
        "arguments": call.arguments,
        "arguments_text": call.arguments_text,
        "arguments_sha256": call.digest,
        "needs_approval": call.needs_approval,
        "question": call.arguments[name] if (name := call.question_argument) else call.question,
        "asked": datetime.fromtimestamp(asked, UTC).isoformat(),
        "decide_by": None if call.approve_by is None else format_time(call.approve_by),
        "requested_by": task.owner,
        "reviewers": [] if call.reviewers is None else list(call.reviewers.by),
    }


def request_body(task: Task, event: Event, link: str) -> bytes:
    """Return what a webhook of reviewers receives; a call that was decided on meanwhile is shown no more."""
    about = event.extra
    assert isinstance(about, ReviewExtra)
    call, paused_at = find_call(task, about.approval_id), task.paused_at
    return to_json(
        {
            "type": event.kind,
            "timestamp": event.timestamp,
            "id": about.approval_id,
            "approval": show_call(task, paused_at, call) if call and paused_at else None,
            "link": link if call is not None and link else None,
        }
    )
