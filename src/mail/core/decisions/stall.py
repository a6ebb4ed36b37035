"""What keeps a task from hanging: it is told once that nothing will happen any more, and then ended. Pure."""

from dataclasses import replace

from mail.core.task.draft import Draft
from mail.errors import Subject


def prevent_stall(draft: Draft) -> None:
    """See to it that a task that runs has mail, or that another swarm is to act.

    Otherwise the entrypoint is told, the first time in a generation; the second time the task ends with an error.
    """
    if not draft.is_running or draft.has_mail or _waits_for_peers(draft):
        return
    task = draft.before
    unanswered = "; ".join(
        f"{request.sender or 'the user'} waits for {request.recipient}" for request in draft.requests
    )
    if draft.generation.nudges:
        draft.fail(f"The task stalled: no agent has mail. Unanswered: {unanswered or 'nothing'}.")
        return
    draft.generation = replace(draft.generation, nudges=draft.generation.nudges + 1)
    draft.tell(
        task.entrypoint,
        Subject.RUNTIME_ERROR,
        "No agent of this task has any mail left, so nothing will happen by itself. Unanswered requests: "
        f"{unanswered or 'none'}. Write to an agent, or call task_complete.",
    )


def _waits_for_peers(draft: Draft) -> bool:
    """Whether another swarm owes an answer, or has got all of its own from a task that it has asked for."""
    if any(request.recipient_swarm for request in draft.requests):
        return True
    return draft.before.parent_swarm is not None and not any(
        request.sender_swarm for request in draft.requests
    )
