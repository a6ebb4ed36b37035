"""Documents in PostgreSQL."""

from mail.adapters.postgres.pool import Postgres
from mail.adapters.shared.documents import SQLDocuments


class PostgresDocuments(SQLDocuments):
    """`mail.core.task.ports.Documents` on a `Postgres` whose tables are there."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres.fetch, schema="mail.", parameter="%({})s")
