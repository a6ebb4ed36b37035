"""The deletion of a task."""

from collections.abc import Collection

from mail.core.task.mailboxes import peer_of
from mail.core.task.task import Task
from mail.errors import TaskBusy


def check_deletable(task: Task, leased: Collection[str]) -> None:
    """Raise TaskBusy unless a task has stopped and other swarms know that; `leased` are mailboxes with running turns.

    Mail that waits for webhooks is deleted with the task.
    """
    if task.is_running:
        raise TaskBusy(f"task {task.task_id!r} is running; cancel it, then delete it")
    if leased:
        raise TaskBusy(f"task {task.task_id!r} has a turn that has not ended; try again in a moment")
    peers = ", ".join(sorted({peer for mailbox in task.pending if (peer := peer_of(mailbox))}))
    if peers:
        raise TaskBusy(
            f"mail of task {task.task_id!r} waits for {peers}; delete the task when it is delivered"
        )
