"""The check of the limits of callers while a change is committed."""

from collections import defaultdict
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task
from mail.errors import TooManyTasks

_STARTS_NONE: AbstractAsyncContextManager[None] = nullcontext()


class LimitGuard:
    """Enforces the limits of callers while changes from outside the turns are committed.

    Tasks that this process is about to start count as running. Other processes may exceed the limit by the number
    of tasks that they start at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._starting: defaultdict[str, list[object]] = defaultdict(list)

    def enforce(
        self, limits: CallerLimits, before: Task | None, change: TaskChange
    ) -> AbstractAsyncContextManager[None]:
        """Surround the commit of a change. Raises MailboxFull, TaskFull, or TooManyTasks if one more would run."""
        limits.check_depth(before, change)
        limits.check_size(before, change)
        limit = limits.running_tasks
        if limit is None or not change.task.is_running or (before is not None and before.is_running):
            return _STARTS_NONE
        return _Start(self._store, self._starting, change.task.instance, limit)


class _Start(AbstractAsyncContextManager[None]):
    """The start of a task, which counts as running before it is committed."""

    def __init__(
        self, store: Store, starting: defaultdict[str, list[object]], instance: str, limit: int
    ) -> None:
        self._store = store
        self._starting = starting
        self._instance = instance
        self._limit = limit

    async def __aenter__(self) -> None:
        starts = self._starting[self._instance]
        starts.append(self)
        try:
            running = await self._store.count_running(self._instance, upto=self._limit)
            if running + starts.index(self) >= self._limit:
                raise TooManyTasks(
                    f"{self._limit} of your tasks are running, which is the limit; wait until one has ended"
                )
        except BaseException:
            self._end()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        starts = self._starting[self._instance]
        starts.remove(self)
        if not starts:
            del self._starting[self._instance]
