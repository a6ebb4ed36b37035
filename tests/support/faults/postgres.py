"""PostgreSQL: a point before and after each round trip."""

from collections.abc import Awaitable, Callable
from functools import partial

from mail.adapters.postgres.pool import Connection, Postgres
from support.faults.points import Points


class FaultyPostgres(Postgres):
    """A database whose client passes a point before it sends something, and one when it has the answer."""

    def __init__(self, url: str, points: Points) -> None:
        super().__init__(url)
        self._points = points

    async def run[T](self, work: Callable[[Connection, bool], Awaitable[T]]) -> T:
        name = work.__qualname__.split(".")[-3]
        return await self._points.around(f"postgres.{name}", partial(super().run, work))
