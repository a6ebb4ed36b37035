"""PostgreSQL: a point before and after each round trip, and one before the begin of each turn that a commit
has opened.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from mail.adapters.postgres.ahead import Ahead, Opened
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.core.task.task import TaskKey
from mail.testing.faults import Points


class FaultyPostgres(Postgres):
    """A database whose client passes a point before it sends something, and one when it has the answer."""

    def __init__(self, url: str, points: Points) -> None:
        super().__init__(url)
        self._points = points

    async def run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        name = work.__qualname__.split(".")[-3]
        return await self._points.around(f"postgres.{name}", partial(super().run, work))


class FaultyAhead(Ahead):
    """Turns that commits open; between its commit and its begin, each passes a point."""

    def __init__(self, notifier: Notifier, points: Points) -> None:
        super().__init__(notifier)
        self._points = points

    def begin(self, key: TaskKey, mailbox: str) -> Opened | None:
        if self.covers(key, mailbox):
            self._points.hit("between commit and begin")
        return super().begin(key, mailbox)
