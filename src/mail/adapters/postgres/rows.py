"""Rows of text in PostgreSQL."""

from collections.abc import Sequence

from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.shared.rows import SQLRows
from mail.core.task.rows import Write


class _Refused(Exception):
    """The condition of a change is false."""


class PostgresRows(SQLRows):
    """`mail.core.task.rows.Rows` on a `Postgres` whose tables are there."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres.fetch, schema="mail.", parameter="%({})s", each="json_array_elements")
        self._postgres = postgres

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

        return await self._postgres.run(work)

    async def close(self) -> None:
        await self._postgres.close()
