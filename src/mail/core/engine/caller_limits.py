"""The check of the limits of callers while a change is committed."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from math import inf

from mail.core.decisions.caller_limits import CallerLimits, is_new_work
from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task
from mail.errors import TooManyTasks

_UNGUARDED: AbstractAsyncContextManager[None] = nullcontext()

COUNTED_EVERY = 32
COUNTED_BYTES = 1024 * 1024
"""What this process commits for a caller until it asks the store again what the caller's tasks take up."""

KNOWN_CALLERS = 4096


class _Usage:
    """What was committed for a caller since the store said that there is room for so many tasks that wait."""

    def __init__(self, room: float) -> None:
        self.commits = 0
        self.bytes = 0
        self.room = room

    def is_due(self, added: int, *, starts: bool) -> bool:
        """Count a commit, which may start a task, and return whether to ask the store before it."""
        self.commits += 1
        self.bytes += added
        self.room -= starts
        return self.commits >= COUNTED_EVERY or self.bytes >= COUNTED_BYTES or self.room < 0


class LimitGuard:
    """Enforces the limits of callers while changes from outside the turns are committed.

    Tasks that this process is about to start count as running. Other processes may exceed the limit by the number
    of tasks that they start at the same time. What a caller's tasks take up is asked for before the first commit for a
    caller here, and then from time to time, so that few messages cost a request to the store; while there is no room,
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
        starts = change.task.is_running and (before is None or not before.is_running)
        if not starts:
            limit = None
        is_due = False
        if (limits.caller_bytes or limits.waiting_tasks) is not None and is_new_work(before, change):
            usage = self._usage.get(instance)
            added = change.task.stored_bytes - (0 if before is None else before.stored_bytes)
            is_due = usage is None or usage.is_due(added, starts=starts)
        return (
            self._guard(limits, instance, limit, is_due, starts)
            if is_due or limit is not None
            else _UNGUARDED
        )

    def freed(self, instance: str) -> None:
        """Ask the store before the next commit for a caller, who has deleted a task."""
        self._usage.pop(instance, None)

    @asynccontextmanager
    async def _guard(
        self, limits: CallerLimits, instance: str, limit: int | None, is_due: bool, is_start: bool
    ) -> AsyncGenerator[None]:
        """Check what a caller's tasks take up, and how many run if one starts; it counts as running meanwhile."""
        if is_due:
            self._usage.pop(instance, None)  # until the store says that there is room
            usage = await self._store.usage_of(instance)
            limits.check_usage(usage, instance, starts=is_start)
            if len(self._usage) >= KNOWN_CALLERS:
                del self._usage[next(iter(self._usage))]
            room = inf if limits.waiting_tasks is None else limits.waiting_tasks - usage.asleep
            self._usage[instance] = _Usage(room - is_start)
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
