"""Limits on how much callers may keep busy. Agents are limited by the steps of their task instead."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mail.core.task.change import TaskChange
from mail.core.task.mailboxes import peer_of
from mail.core.task.ports import Store
from mail.core.task.task import Task
from mail.errors import MailboxFull, TaskFull, TooManyTasks


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of a runtime's callers; None for no limit.

    Attributes:
        running_tasks: how many tasks of one instance may run at the same time.
        mailbox_depth: how many messages may wait in a mailbox when a caller adds one.
        task_bytes: how much a task may store; a turn that would store more ends the task (`mail.core.decisions.turn`).
    """

    running_tasks: int | None = None
    mailbox_depth: int | None = None
    task_bytes: int | None = None

    def check_size(self, before: Task | None, change: TaskChange) -> None:
        """Raise TaskFull if the change lets a task run that stores too much; it may always be cancelled."""
        limit, task = self.task_bytes, change.task
        if limit is None or task.stored_bytes <= limit or not (before is None or task.is_running):
            return
        if not (change.deliveries or change.histories):
            return
        if before is None:
            raise TaskFull(
                f"a task may store {limit} bytes, and this one would begin with {task.stored_bytes}; send less"
            )
        raise TaskFull(
            f"task {task.task_id!r} has stored {before.stored_bytes} bytes, and may store {limit}; "
            "send a shorter message, or begin a new task"
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


NO_QUOTAS = Quotas()


class QuotaGuard:
    """Enforces quotas while changes from outside the turns are committed.

    Tasks that this process is about to start count as running. Other processes may exceed the limit by the number
    of tasks that they start at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._starting: defaultdict[str, list[object]] = defaultdict(list)

    @asynccontextmanager
    async def enforce(self, quotas: Quotas, before: Task | None, change: TaskChange) -> AsyncIterator[None]:
        """Surround the commit of a change. Raises MailboxFull, TaskFull, or TooManyTasks if one more would run."""
        quotas.check_depth(before, change)
        quotas.check_size(before, change)
        limit, instance = quotas.running_tasks, change.key.instance
        if limit is None or not change.task.is_running or (before is not None and before.is_running):
            yield
            return
        ticket = object()
        tickets = self._starting[instance]
        tickets.append(ticket)
        try:
            running = await self._store.count_running(instance, upto=limit)
            if running + tickets.index(ticket) >= limit:
                raise TooManyTasks(
                    f"{limit} of your tasks are running, which is the limit; wait until one has ended"
                )
            yield
        finally:
            tickets.remove(ticket)
            if not tickets:
                self._starting.pop(instance, None)
