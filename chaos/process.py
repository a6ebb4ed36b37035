"""A server that can be killed at any fault point.

It lives in this operating system's process, but nothing of it outlives its death: all of its coroutines are cancelled,
and whatever they try to do on their way out — give a lease back, put a token back — raises `Dead` before it gets
anywhere. What it had sent before, a database may still carry out.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

from mail.testing.faults import Plan, Points

PROCESS: ContextVar["Process | None"] = ContextVar("PROCESS", default=None)


class ConnectionLost(Exception):
    """The server died before it had answered."""


class Process:
    """What runs on behalf of one server.

    Attributes:
        name: which life of which server it is, such as `north-1.3`.
        points: those that it passes, one of which may be its last.
        where: the point at which it died.
    """

    def __init__(self, name: str, plan: Plan, on_death: Callable[["Process"], None]) -> None:
        self.name = name
        self.points = Points(plan, self._die)
        self.where = ""
        self._on_death = on_death

    @property
    def is_dead(self) -> bool:
        """Whether nothing that it does has an effect any more."""
        return self.points.is_dead

    def _die(self, where: str) -> None:
        """End it, at once and without a word."""
        self.where = where
        self.points.is_dead = True
        for task in sorted(asyncio.all_tasks(), key=_number):
            if task.get_context().get(PROCESS) is self:
                task.cancel()
        self._on_death(self)

    def spawn[T](self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as a part of the process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    async def call[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Have the process do something for somebody outside. Raises ConnectionLost where it dies meanwhile."""
        if self.is_dead:
            work.close()
            raise ConnectionLost(self.name)
        task = self.spawn(work)
        task.add_done_callback(_forget)
        try:
            return await asyncio.shield(task)  # who was asked does not notice that nobody waits any more
        except asyncio.CancelledError:
            if self.is_dead and not _is_cancelled():
                raise ConnectionLost(self.name) from None
            raise


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


def _number(task: asyncio.Task[Any]) -> int:
    """Tasks are numbered as they are made, unlike what sets of them are sorted by."""
    number = task.get_name().rpartition("-")[2]
    return int(number) if number.isdigit() else 0
