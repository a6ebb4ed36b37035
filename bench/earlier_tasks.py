"""One more task of a caller who has had 20,000: on every store it costs as much as one of a caller who has had few.

SQL stores are timed: submissions to a store with the earlier tasks, in turns with submissions to one without. What
DynamoDB reads is counted, on moto. The earlier tasks are copies of one that has really run; on SQLite as many as the
store keeps in memory have really run in this process.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from math import ceil
from statistics import median
from typing import Any

from bench import swarms
from bench.aws_meter import EVENTUAL_FACTOR, READ_UNIT
from bench.engine import CALLER, FLAT, ROOT, scratch
from bench.report import Result, Row, Skipped
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import META, Item, item_size, partition, string
from mail.adapters.aws.table import DynamoDBTable
from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.ports import Store
from mail.core.task.task import TaskKey

EARLIER = 20_000
IN_MEMORY = 1_200
"""Tasks that have really run: more than an SQLite store remembers."""

SAMPLES = 150
CALLER_LIMITS = CallerLimits(running_tasks=100)
"""As a server has by default: each new task asks how many run."""

INDEX_UNITS = 20
"""Read units of the index that a new task may use on DynamoDB: it reads one page of some 500 rows, however many there
are.
"""

COPY_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
INSERT INTO tasks (instance, task_id, status, deadline, delivering, dead)
SELECT instance, 'copy-' || n, status, deadline, delivering, dead FROM numbers, tasks WHERE id = 1;
INSERT INTO commits
SELECT copy.id << 32 | (one.id & 0xFFFFFFFF), agent, n, ended, delivered, read_mailbox, read_seq,
       state, events, history, response
FROM tasks AS copy, commits AS one WHERE copy.task_id LIKE 'copy-%' AND one.id >> 32 = 1;
ANALYZE;
"""

COPY_POSTGRES = """
INSERT INTO mail.tasks (id, instance, task_id, status, due, delivering, dead, updated, seq, version, state)
SELECT gen_random_uuid(), instance, 'copy-' || n, status, due, delivering, dead, updated, seq, version, state
FROM generate_series(1, {count}) AS numbers (n), (SELECT * FROM mail.tasks LIMIT 1) AS one;
INSERT INTO mail.commits
SELECT copy.id, one.seq, agent, n, ended, delivered, read, one.state, events, history, response
FROM mail.tasks AS copy, mail.commits AS one
WHERE copy.task_id LIKE 'copy-%' AND one.task = (SELECT id FROM mail.tasks WHERE task_id NOT LIKE 'copy-%' LIMIT 1);
ANALYZE;
"""


def measure() -> list[Result]:
    """On every store that can be had here."""
    sys.path.append(str(ROOT / "tests"))  # `support` starts PostgreSQL and moto
    results: list[Result] = []
    for name, part in (("SQLite", _sqlite), ("PostgreSQL", _postgres), ("DynamoDB", _dynamodb)):
        try:
            results += asyncio.run(part())
        except (ImportError, MissingEngine) as error:
            results.append(Skipped("earlier-tasks", f"{name}: {error}"))
    return results


class MissingEngine(Exception):
    """A database is not installed."""


class Client:
    """Submits tasks to a store, and runs them, one by one."""

    def __init__(self, store: Store) -> None:
        self._runtime = Runtime(
            swarms.single(), store, LocalQueue(), SYSTEM_CLOCK, caller_limits=CALLER_LIMITS
        )

    async def submit(self) -> tuple[TaskKey, float]:
        """Submit a task; return its key, and how many seconds that took."""
        begin = time.perf_counter()
        submitted = await self._runtime.submit(CALLER, Submission(body=swarms.BODY))
        return submitted.key, time.perf_counter() - begin

    async def task(self) -> float:
        """Submit a task and run it; return how many seconds the submission took."""
        key, seconds = await self.submit()
        await self._runtime.run_turn(key, "supervisor")
        return seconds


async def _sqlite() -> list[Row]:
    with scratch() as folder, ExitStack() as open_files:
        few, many = (
            open_files.enter_context(SQLiteDatabase(folder / name)) for name in ("few.db", "many.db")
        )

        async def fill(client: Client) -> None:
            for _ in range(IN_MEMORY):
                await client.task()
            many.connection.executescript(COPY_SQLITE.format(count=EARLIER - IN_MEMORY))

        return await _compare("SQLite", Client(SQLiteStore(few)), Client(SQLiteStore(many)), fill)


async def _postgres() -> list[Row]:
    from psycopg.sql import SQL
    from support.engines.postgres import PostgresAdapter, execute, has_postgres

    if not has_postgres():
        raise MissingEngine("it is not installed; run: python3 scripts/dev.py postgres")
    few, many = PostgresAdapter(), PostgresAdapter()
    for each in (few, many):
        await each.open()

    async def fill(client: Client) -> None:
        await client.task()
        await asyncio.to_thread(execute, many.url, SQL(COPY_POSTGRES).format(count=EARLIER))

    try:
        return await _compare("PostgreSQL", Client(few.store), Client(many.store), fill)
    finally:
        for each in (few, many):
            await each.leave()


async def _compare(
    name: str, few: Client, many: Client, fill: Callable[[Client], Awaitable[None]]
) -> list[Row]:
    """Time submissions to both stores, in turns, once `fill` has filled one of them."""
    await fill(many)
    for client in (few, many):
        await client.task()
    pairs = [(await few.task(), await many.task()) for _ in range(SAMPLES)]
    first, later = (median(pair[which] for pair in pairs) * 1e6 for which in (0, 1))
    return [
        Row(
            "earlier-tasks",
            f"{name}: one more task after {EARLIER:,}",
            later,
            "µs",
            FLAT,
            ratio=later / first,
            note=f"floor: after few, {first:.0f} µs",
        )
    ]


async def _dynamodb() -> list[Row]:
    from support.engines.dynamodb import DynamoDBAdapter

    rows = []
    for earlier in (0, EARLIER):
        adapter = DynamoDBAdapter("moto")
        await adapter.open()
        client, reads = Client(adapter.store), IndexReads()
        key, _ = await client.submit()
        await _copy(adapter.client, adapter.table, key, earlier)
        adapter.client.botocore.meta.events.register("after-call.dynamodb.Query", reads.note)
        await client.submit()
        adapter.client.botocore.meta.events.unregister("after-call.dynamodb.Query", reads.note)
        await adapter.close()
        name = f"DynamoDB: read units of the index for one more task after {earlier:,}"
        note = f"{reads.queries} query of {reads.rows} rows"
        rows.append(Row("earlier-tasks", name, reads.units, "RRU", budget=INDEX_UNITS, exact=True, note=note))
    return rows


class IndexReads:
    """Counts what queries of the index of tasks read: a query pays for rows that its filter drops, too."""

    def __init__(self) -> None:
        self.queries = self.rows = 0
        self.units = 0.0

    def note(self, parsed: dict[str, Any], **_: Any) -> None:
        """Count a response of botocore."""
        self.queries += 1
        self.rows += parsed["ScannedCount"]
        size = parsed["ScannedCount"] * item_size(parsed["Items"][0])  # all rows are about as long
        self.units += ceil(size / READ_UNIT) * EVENTUAL_FACTOR


async def _copy(client: AwsClient, table: str, key: TaskKey, count: int) -> None:
    """Write so many finished tasks, earlier ones, with the same caller."""
    names = {"PK": string(partition(key)), "SK": string(META)}
    item: Item = (await client.call("get_item", TableName=table, Key=names))["Item"]
    for attribute in ("running", "due"):
        del item[attribute]
    await DynamoDBTable(client, table).put_many(
        [
            {
                **item,
                "PK": string(partition(TaskKey(key.instance, f"copy-{number}"))),
                "started": string(f"2020-01-01T00:00:00+00:00#copy-{number}"),
                "status": string("completed"),
            }
            for number in range(count)
        ]
    )
