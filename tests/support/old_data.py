"""Databases that an earlier version has written (`tests/fixtures`), opened by the present code."""

import json
import shutil
import uuid
from collections.abc import Callable
from itertools import batched
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from mail.adapters.postgres.schema import prepare
from support.adapters import SQLiteAdapter, StoreAdapter
from support.dynamodb import ENGINES, DynamoDBAdapter
from support.postgres import PostgresAdapter, drop_database, execute, has_postgres, postgres_server

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "678eebb"


class OldPostgres(PostgresAdapter):
    """A database restored from the dump."""

    async def open(self) -> None:
        name = f"mail_{uuid.uuid4().hex}"
        server = postgres_server().url()
        execute(server, SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name)))
        self.url = f"{server.rpartition('/')[0]}/{name}"
        with psycopg.connect(self.url) as connection:
            connection.execute((FOLDER / "postgres.sql").read_bytes())
        prepare(self.url)
        await self.reopen()

    async def close(self) -> None:
        await self._leave()
        drop_database(self.url)


class OldDynamoDB(DynamoDBAdapter):
    """A table with the items."""

    async def open(self) -> None:
        await super().open()
        for items in batched(json.loads((FOLDER / "dynamodb.json").read_text()), 25):
            requests = {self.table: [{"PutRequest": {"Item": item}} for item in items]}
            await self.client.call("batch_write_item", RequestItems=requests)


def _old_sqlite(folder: Path) -> StoreAdapter:
    return SQLiteAdapter(shutil.copy(FOLDER / "mail.db", folder))


OLD_DATA: dict[str, Callable[[Path], StoreAdapter]] = {
    "sqlite": _old_sqlite,
    **({"postgres": lambda _: OldPostgres()} if has_postgres() else {}),
    **{f"dynamodb-{engine}": lambda _, engine=engine: OldDynamoDB(engine) for engine in ENGINES},
}
