"""Limits on how much callers may keep busy. Agents are limited by the steps of their task instead."""

from mail.core.protocol.values import value
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.mailboxes import peer_of
from mail.core.task.ports import CallerUsage
from mail.core.task.task import Task
from mail.errors import MailboxFull, StorageFull, TaskFull, TooManyTasks


@value
class CallerLimits:
    """The limits of a runtime's callers; None for no limit.

    Attributes:
        running_tasks: how many tasks of one instance may run at the same time.
        mailbox_depth: how many messages may wait in a mailbox when a caller adds one.
        task_bytes: how much a task may store; a turn that would store more ends the task (`mail.core.decisions.turn`).
        caller_bytes: how much all tasks of one instance may store, before it may add more.
        waiting_tasks: how many of them may be asleep, before it may start another one.
    """

    running_tasks: int | None = None
    mailbox_depth: int | None = None
    task_bytes: int | None = None
    caller_bytes: int | None = None
    waiting_tasks: int | None = None

    def check_size(self, before: Task | None, change: TaskChange) -> None:
        """Raise TaskFull if the change lets a task run that stores too much; it may always be cancelled."""
        limit, task = self.task_bytes, change.task
        if (
            limit is None
            or task.stored_bytes <= limit
            or not (before is None or task.is_running or change.timers)
        ):
            return
        if not (change.deliveries or change.histories or change.inherits or change.timers):
            return
        if before is None:
            raise TaskFull(
                f"a task can store at most {limit} bytes; this one would start with {task.stored_bytes}; send less"
            )
        raise TaskFull(
            f"task {task.task_id!r} has stored {before.stored_bytes} bytes, and may store {limit}; "
            "send a shorter message, or start a new task"
        )

    def check_usage(self, usage: CallerUsage, instance: str, *, starts: bool) -> None:
        """Raise StorageFull if an instance may add nothing, and TooManyTasks if it `starts` a task and may not."""
        if starts and self.waiting_tasks is not None and usage.asleep >= self.waiting_tasks:
            raise TooManyTasks(
                f"{usage.asleep} of your tasks wait for results that come later, of {self.waiting_tasks} that may; "
                "wait until some have ended, or cancel some"
            )
        if self.caller_bytes is not None and usage.bytes >= self.caller_bytes:
            raise StorageFull(
                f"the tasks of {instance} store {usage.bytes} bytes, of {self.caller_bytes} that they may store; "
                "delete some, such as with: mail task delete ID"
            )

    def check_depth(self, before: Task | None, change: TaskChange) -> None:
        """Raise MailboxFull if the change adds a caller's message to a full mailbox.

        The check is exact: the commit succeeds only on the state that is checked here. A message that resumes a
        stopped task is always accepted, because nothing else would ever empty its mailboxes.
        """
        limit = self.mailbox_depth
        if limit is None or before is None or change.task.generation.number != before.generation.number:
            return
        for entry in change.deliveries:
            sender = entry.message.sender.address_type
            is_for_peers = peer_of(entry.mailbox) is not None and sender == "agent"
            if sender == "system" or is_for_peers:
                continue
            if sum(before.pending.get(entry.mailbox, ())) >= limit:
                raise MailboxFull(
                    f"{limit} messages or more wait for {entry.mailbox!r} in task {before.task_id!r}; try again later"
                )


def is_new_work(before: Task | None, change: TaskChange) -> bool:
    """Return whether a change from outside the turns adds work to what a caller stores.

    The end of a task does not, nor does a peer's answer to an open request or the result of a call: neither would be
    sent again.
    """
    is_answer = before is not None and before.is_running and len(change.task.requests) < len(before.requests)
    is_answer = is_answer or any(isinstance(each, LaterCall) for each in change.waits)
    is_mail = change.task.is_running and bool(change.deliveries) and not is_answer
    return is_mail or bool(change.timers) or bool(change.histories) or change.inherits is not None


NO_CALLER_LIMITS = CallerLimits()
