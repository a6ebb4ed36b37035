"""Rows of text in PostgreSQL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mail.adapters.postgres.notifier import Notifier, rows_topic
from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.postgres.schema import DIALECT
from mail.adapters.shared.rows import SQLRows
from mail.core.task.rows import Wait, Write, places_of_new


class _Refused(Exception):
    """The condition of a change is false."""


class PostgresRows(SQLRows):
    """`mail.core.task.rows.Rows` on a `Postgres` whose tables are there."""

    def __init__(self, postgres: Postgres, notifier: Notifier) -> None:
        super().__init__(postgres.fetch, DIALECT)
        self._postgres = postgres
        self._notifier = notifier

    @contextmanager
    def watched(self, place: str) -> Iterator[Wait]:
        with self._notifier.subscribe(rows_topic(place)) as subscription:
            yield subscription.wait

    async def write(self, writes: Sequence[Write]) -> bool:
        async def work(connection: Connection, _: bool) -> bool:
            try:
                async with connection.transaction(), connection.cursor() as cursor:
                    for statement, values, is_conditional in self.batches(writes):
                        await cursor.executemany(statement, values)
                        if is_conditional and cursor.rowcount != len(values):
                            raise _Refused
            except _Refused:
                return False
            return True

        is_done = await self._postgres.run(work)
        for place in places_of_new(writes) if is_done else ():
            self._notifier.notify(rows_topic(place))
        return is_done

    async def close(self) -> None:
        await self._postgres.close()
