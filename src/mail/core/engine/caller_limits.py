"""The check of the limits of callers while a change is committed."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from mail.core.decisions.caller_limits import CallerLimits, is_new_work
from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task
from mail.errors import TooManyTasks

_UNGUARDED: AbstractAsyncContextManager[None] = nullcontext()

COUNTED_EVERY = 32
COUNTED_BYTES = 1024 * 1024
"""What this process commits for a caller until it asks the store again how much the caller stores."""

KNOWN_CALLERS = 4096


class _Usage:
    """What was committed for a caller since the store said that there is room."""

    def __init__(self) -> None:
        self.commits = 0
        self.bytes = 0

    def is_due(self, added: int) -> bool:
        """Count a commit, and return whether to ask the store before it."""
        self.commits += 1
        self.bytes += added
        return self.commits >= COUNTED_EVERY or self.bytes >= COUNTED_BYTES


class LimitGuard:
    """Enforces the limits of callers while changes from outside the turns are committed.

    Tasks that this process is about to start count as running. Other processes may exceed the limit by the number
    of tasks that they start at the same time. What a caller stores is asked for before the first commit for a caller
    here, and then from time to time, so that few messages cost a request to the store; while the storage is full,
    before each commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._starting: defaultdict[str, list[object]] = defaultdict(list)
        self._usage: dict[str, _Usage] = {}

    def enforce(
        self, limits: CallerLimits, before: Task | None, change: TaskChange
    ) -> AbstractAsyncContextManager[None]:
        """Surround the commit of a change.

        Raises MailboxFull, TaskFull, StorageFull, or TooManyTasks if one more would run.
        """
        limits.check_depth(before, change)
        limits.check_size(before, change)
        instance, limit = change.task.instance, limits.running_tasks
        if not change.task.is_running or (before is not None and before.is_running):
            limit = None
        is_due = False
        if limits.caller_bytes is not None and is_new_work(before, change):
            usage = self._usage.get(instance)
            added = change.task.stored_bytes - (0 if before is None else before.stored_bytes)
            is_due = usage is None or usage.is_due(added)
        return self._guard(limits, instance, limit, is_due) if is_due or limit is not None else _UNGUARDED

    def freed(self, instance: str) -> None:
        """Ask the store before the next commit for a caller, who has deleted a task."""
        self._usage.pop(instance, None)

    @asynccontextmanager
    async def _guard(
        self, limits: CallerLimits, instance: str, limit: int | None, is_due: bool
    ) -> AsyncGenerator[None]:
        """Check what a caller stores, and how many tasks run if one is started; it counts as running meanwhile."""
        if is_due:
            self._usage.pop(instance, None)  # until the store says that there is room
            limits.check_stored(await self._store.stored_bytes(instance), instance)
            if len(self._usage) >= KNOWN_CALLERS:
                del self._usage[next(iter(self._usage))]
            self._usage[instance] = _Usage()
        if limit is None:
            yield
            return
        start, starts = object(), self._starting[instance]
        starts.append(start)
        try:
            running = await self._store.count_running(instance, upto=limit)
            if running + starts.index(start) >= limit:
                raise TooManyTasks(
                    f"{limit} of your tasks are running, which is the limit; wait until one has ended"
                )
            yield
        finally:
            starts.remove(start)
            if not starts:
                del self._starting[instance]
