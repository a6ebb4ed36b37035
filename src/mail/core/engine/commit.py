"""The decide–commit–retry loop: every decision on a task is committed here, and taken again after a conflict."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.errors import TaskNotFound, VersionConflict

Guard = Callable[[Task | None, TaskChange], AbstractAsyncContextManager[None]]
"""Surrounds one attempt to commit a change of a task; it raises to refuse the change."""


async def load_task(store: Store, key: TaskKey) -> Task:
    """Load a task. Raises TaskNotFound."""
    task = await store.load(key)
    if task is None:
        raise TaskNotFound(f"there is no task {key.task_id!r}")
    return task


class Committer:
    """Commits what pure functions decide, as often as another commit comes first.

    Attributes:
        conflicts: the number of commits that came too late and were decided again.
    """

    def __init__(self, store: Store, write: Callable[[TaskChange], Awaitable[None]] | None = None) -> None:
        """Let `write` commit a change; by default the store does, once."""
        self._store = store
        self._write = write
        self.conflicts = 0

    async def commit[T: Task | None, C: TaskChange | None](
        self,
        decide: Callable[[T | Task], C],
        task: T,
        *,
        reload: Callable[[], Awaitable[T]] | None = None,
        guard: Guard | None = None,
    ) -> C:
        """Commit what `decide` makes of the task, and return it; None if it decides to change nothing.

        `task` is None for a task that does not exist yet. After a conflict the decision is taken again on what
        `reload` returns; by default on the state that came with the conflict, or on the stored one. Raises what
        `decide` and `guard` raise; then nothing is stored.
        """
        current: T | Task = task
        write = self._write or self._store.commit
        while True:
            change = decide(current)
            if change is None:
                return change
            try:
                if guard is None:
                    await write(change)
                else:
                    async with guard(current, change):
                        await write(change)
            except VersionConflict as conflict:
                self.conflicts += 1
                if reload is not None:
                    current = await reload()
                else:
                    current = conflict.current or await load_task(self._store, change.key)
            else:
                return change
