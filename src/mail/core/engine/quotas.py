"""The check of callers' quotas while a change is committed."""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mail.core.decisions.quotas import Quotas
from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task
from mail.errors import TooManyTasks


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
