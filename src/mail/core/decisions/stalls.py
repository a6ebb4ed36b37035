"""Stalls: a running task in which nothing would happen by itself gets a nudge, and then ends. Pure functions."""

from dataclasses import replace

from mail.core.task.draft import Draft
from mail.core.task.mailboxes import agent_of
from mail.errors import Subject


def prevent_stall(draft: Draft) -> None:
    """Ensure that a running task has mail, or awaits another swarm, the result of an open call, or a timer.

    If not, notify the entrypoint the first time in a generation; the second time, end the task with an error.
    """
    if can_wait(draft) or not draft.is_running:
        return
    task = draft.before
    unanswered = "; ".join(
        f"{agent_of(request.sender) or 'the user'} waits for {agent_of(request.recipient)}"
        for request in draft.requests
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


def can_wait(draft: Draft) -> bool:
    """Return whether anything will happen in the task by itself."""
    return draft.has_mail or draft.waits.due is not None or _waits_for_peers(draft)


def _waits_for_peers(draft: Draft) -> bool:
    """Return whether another swarm must answer, or has received all answers from a task that it began."""
    if any(request.recipient_swarm for request in draft.requests):
        return True
    if any(peer.poll_at for peer in draft.peers.values()):
        return True
    return draft.before.parent_swarm is not None and not any(
        request.sender_swarm for request in draft.requests
    )
