"""The deletion of a task: by a person, with everything of its caller, or because of its age."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from mail.core.task.change import Past, TaskChange
from mail.core.task.deletion import LegalHold
from mail.core.task.draft import Draft
from mail.core.task.idempotency import REMEMBERED_SECONDS
from mail.core.task.mailboxes import peer_of
from mail.core.task.members import member_of
from mail.core.task.task import ENDED, Task
from mail.errors import TaskBusy, TaskHeld


def check_deletable(task: Task, leased: Collection[str], hold: LegalHold | None = None) -> None:
    """Raise TaskHeld for a `hold`, and TaskBusy unless a task has stopped and other swarms know that.

    `leased` are mailboxes with running turns. Mail that waits for webhooks is deleted with the task.
    """
    if hold is not None:
        whose = "" if hold.task_id else f" with everything of {hold.caller}"
        raise TaskHeld(
            f"task {task.task_id!r} is on hold{whose} since {hold.since}; an admin can lift the hold"
        )
    if task.is_running:
        raise TaskBusy(f"task {task.task_id!r} is running; cancel it, then delete it")
    if leased:
        raise TaskBusy(f"task {task.task_id!r} has a turn that has not ended; try again in a moment")
    peers = ", ".join(
        sorted({member_of(peer) or peer for mailbox in task.pending if (peer := peer_of(mailbox))})
    )
    if peers:
        raise TaskBusy(
            f"mail of task {task.task_id!r} waits for {peers}; delete the task when it is delivered"
        )


def is_outdated(task: Task, before: str) -> bool:
    """Return whether nothing has happened in a task since `before` (ISO 8601, UTC), nor will by itself.

    One that is paused waits for a person.
    """
    return task.status in ENDED and task.deadline is None and task.updated < before and task.schedule is None


def may_be_leased(task: Task, now: float, seconds: float) -> bool:
    """Return whether a mailbox of a task may have a lease: not if it has been quiet for longer than a turn takes."""
    is_recent = datetime.fromisoformat(task.updated).timestamp() + seconds > now
    return is_recent or task.status not in ENDED or task.has_outbound_mail


def drop_past(draft: Draft) -> TaskChange:
    """Drop what nobody needs to continue a task: its events and states, old answers, and histories behind a cut.

    The task keeps what its agents read when a message resumes it, its last answer, and unread mail. From then on it
    counts as many bytes as its histories.
    """
    draft.stored_bytes = draft.history_bytes
    portions = {agent: each.cut.begin for agent, each in draft.contexts.items() if each.cut.begin > 1}
    return replace(draft.seal(), dropped=Past(portions, draft.generation.number))


def has_outside_mail(task: Task) -> bool:
    """Return whether mail of a task may be stored outside of it: of members, or by the server's own webhook."""
    is_own = any(not hook.url.startswith("http") for hook in task.webhooks.values())
    return is_own or any(member_of(peer) is not None for peer in task.peers)


def may_be_named(task: Task, now: float) -> bool:
    """Return whether an idempotency key that has not expired may name a task."""
    return datetime.fromisoformat(task.updated).timestamp() + REMEMBERED_SECONDS > now
