"""What waits in a task, read from its records."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from mail.core.decisions.waits import is_open
from mail.core.task.ports import FIRST, WaitRecords
from mail.core.task.task import Task, TaskKey
from mail.core.task.waits import Wait

PAGE = 41
"""How many records are read at once: each may be as large as a message."""


async def open_waits(store: WaitRecords, task: Task) -> AsyncGenerator[Wait]:
    """Yield the open calls and timers of a task, by the time when they are due."""
    if task.waits.due is None:
        return
    async for wait in stored_waits(store, task.key):
        if is_open(task, wait):
            yield wait


async def first_waits(store: WaitRecords, task: Task, limit: int) -> list[Wait]:
    """Return the first open calls and timers of a task, by the time when they are due."""
    found: list[Wait] = []
    async with aclosing(open_waits(store, task)) as waits:
        async for wait in waits:
            found.append(wait)
            if len(found) == limit:
                break
    return found


async def stored_waits(store: WaitRecords, key: TaskKey) -> AsyncGenerator[Wait]:
    """Yield what is stored of a task that waits, those included that the end of the task has cancelled."""
    after, is_last = FIRST, False
    while not is_last:
        waits = await store.list_waits(key, after=after, limit=PAGE)
        for wait in waits:
            yield wait
        is_last = len(waits) < PAGE
        after = (waits[-1].due, waits[-1].id) if waits else after
