"""Timers: what their mail does when it is due, and how they are cancelled. Pure functions."""

from mail.core.decisions.cancel import end
from mail.core.decisions.stalls import can_wait, prevent_stall
from mail.core.decisions.submit import Submission, enter, write
from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import TimerExtra
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import ENDED, Task
from mail.core.task.timers import Timer
from mail.core.task.waits import Wait
from mail.errors import MAILError, Subject, TimerNotFound


def is_open(task: Task, timer: Timer) -> bool:
    """Return whether a timer still waits: the end of its task cancels a reminder, and a cancellation any timer."""
    if timer.is_of_caller:
        return task.cancellation is None or timer.seq > task.cancellation.seq
    return timer.epoch == task.waits.epoch and task.status not in ENDED


def remind(draft: Draft, timer: Timer) -> None:
    """Send the mail of a reminder."""
    draft.end_timer(timer)
    is_here = draft.swarm.has(timer.mailbox) or goes_out(timer.mailbox)
    draft.announce(timer.mailbox if is_here else draft.entrypoint, Subject.REMINDER, timer.text)


def post(draft: Draft, timer: Timer) -> Draft:
    """Post a caller's message, as the task is now; a message that the task refuses becomes a dead letter."""
    submission = Submission.model_validate_json(timer.submission)
    caller = Principal.parse(timer.caller)
    try:
        posted = enter(draft.before, draft.swarm, caller, submission, draft.clock)
        posted.end_timer(timer)
    except MAILError as error:
        draft.end_timer(timer)
        reader = submission.entrypoint or draft.entrypoint
        reason = f"it could not be delivered when it was due: {error.detail}"
        message = submission.message or write(submission, draft, caller, [reader])
        draft.dead_letter(reader, reason, 1, message=message, message_seq=None)
        if draft.is_running and not can_wait(draft):
            draft.fail(f"The message of {caller.id} {reason}.")
        return draft
    return posted


def cancel_timer(draft: Draft, timer: Wait | None, timer_id: str, by: Principal) -> TaskChange:
    """Cancel a timer of a task; `timer` is its record. Raises TimerNotFound if it no longer waits."""
    task = draft.before
    if not isinstance(timer, Timer) or not is_open(task, timer):
        raise TimerNotFound(
            f"task {task.task_id!r} has no timer {timer_id!r}; it may have fired or been cancelled"
        )
    drop(draft, timer, f"{by.id} has cancelled")
    if draft.is_running and not can_wait(draft) and not task.histories:
        end(draft, by, "no message is left that it could begin with")
    prevent_stall(draft)
    return draft.seal()


def drop(draft: Draft, timer: Timer, who: str) -> None:
    """Delete a timer without its mail, and note `who` has cancelled it."""
    draft.end_timer(timer)
    what = "a message" if timer.is_of_caller else f"a reminder of {timer.mailbox}"
    extra = TimerExtra(agent="" if timer.is_of_caller else timer.mailbox, timer_id=timer.id, due=timer.due)
    draft.emit(EventKind.TIMER_CANCELLED, f"{who} {what}: {timer.text}", extra)
