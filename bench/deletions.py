"""How long the deletion of a caller with many tasks takes, and what of it is left in SQLite's files.

    python -m bench.deletions           # 10,000 tasks with a letter each
    python -m bench.deletions 1000000 100  # a million, with letters of 100 characters: 6 GB of disk

Run it by hand: `python -m bench` leaves it out. It prints deletions per second while nothing else happens and what CPU
each takes, the share of the time for which they keep others from writing beside turns, and how often a text that
nothing else has stands in the files before and after. The tasks are copies of one that was run, made by SQL.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from bench import swarms
from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.files import SQLiteFiles
from mail.adapters.sqlite.search import rebuild
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK

NAME = "original-task"

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
INSERT INTO tasks (instance, task_id, status, due, delivering, dead, bytes)
SELECT instance, 'copy-' || n, status, due, delivering, dead, bytes FROM numbers, tasks WHERE task_id = :name;
"""
COPY_COMMITS = """
INSERT INTO commits
SELECT (copy.id << 32) | (one.id & 0xFFFFFFFF), agent, n, ended, delivered, read_mailbox, read_seq,
       CAST(replace(CAST(state AS TEXT), :name, copy.task_id) AS BLOB), events, history, response
FROM tasks AS copy, commits AS one
WHERE copy.id > :before AND one.id >> 32 = (SELECT id FROM tasks WHERE task_id = :name);
"""


COPIED_AT_ONCE, READ_AT_ONCE = 10_000, 16 * 1024 * 1024


class Meter:
    """Counts the seconds for which deletions keep others from writing: this bench's turns write on the event loop."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self.seconds = 0.0
        self._in_thread = database.in_thread
        database.in_thread = self.in_thread  # type: ignore[method-assign]

    def in_thread[T](self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Do what the database does, and count its time."""
        begun, writing = time.perf_counter(), self._in_thread(work)
        writing.add_done_callback(lambda _: self._add(begun))
        return writing

    def _add(self, begun: float) -> None:
        self.seconds += time.perf_counter() - begun


def copy(database: SQLiteDatabase, count: int) -> None:
    """Copy the first task so many times."""
    sql = database.connection
    for first in range(1, count + 1, COPIED_AT_ONCE):
        ((before,),) = sql.execute("SELECT max(id) FROM tasks")
        last = min(count, first + COPIED_AT_ONCE - 1)
        values = {"first": first, "last": last, "before": before, "name": NAME}
        for statement in (COPY, COPY_COMMITS, "PRAGMA wal_checkpoint(TRUNCATE)"):
            sql.execute(statement, values).fetchall()


async def measure(count: int, letter: str, folder: Path) -> None:
    """Delete a caller with so many tasks: the first part beside turns, the rest while nothing else happens."""
    path, marker = folder / "mail.db", token_hex(20)
    swarm = swarms.single()
    ann, bob = (Principal(role="user", id=name, swarm=swarm.name) for name in ("ann", "bob"))
    with SQLiteDatabase(path) as database:
        documents, store = ServerDocuments(SQLiteDocuments(database)), SQLiteStore(database)
        runtime = Runtime(
            swarm,
            store,
            LocalQueue(),
            SYSTEM_CLOCK,
            documents=documents,
            files=SQLiteFiles(database),
        )

        async def turn(caller: Principal, body: str, task_id: str | None = None) -> None:
            submitted = await runtime.submit(
                caller, Submission(body=body, task_id=task_id, begins=task_id is not None)
            )
            await runtime.run_turn(submitted.key, "supervisor")

        async def turns(seconds: float) -> float:
            """Run turns one after the other; return how many a second."""
            begin, done = time.perf_counter(), 0
            while time.perf_counter() < begin + seconds:
                await turn(bob, swarms.BODY)
                done += 1
                await asyncio.sleep(0)
            return done / (time.perf_counter() - begin)

        await turn(ann, f"{marker} {letter}", NAME)
        copy(database, count)
        rebuild(str(path))
        print(f"{count} tasks, {sizes(folder)}, {occurrences(folder, marker)} texts")
        await runtime.deletions.begin(str(ann), "admin:root@bench")
        alone = await turns(5)
        begin = time.perf_counter()
        meter, work = Meter(database), asyncio.create_task(runtime.deletions.work())
        beside = await turns(20)
        deleted = await tasks_deleted(documents, ann)
        seconds = time.perf_counter() - begin
        print(
            f"beside turns: {deleted / seconds:.0f} deletions/s, {meter.seconds / seconds:.1%} of the writer's time;"
            f" turns/s {alone:.0f} without them, {beside:.0f} with them"
        )
        begin, busy, meter.seconds = time.perf_counter(), time.process_time(), 0.0
        await work
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        rest = await tasks_deleted(documents, ann) - deleted
        rate, each = rest / seconds, busy / rest * 1e6
        print(
            f"alone: {rest} deletions in {seconds:.1f} s, {rate:.0f}/s, {each:.0f} us of CPU each, all overwritten,"
            f" for which others could not write {meter.seconds / seconds:.0%} of the time"
        )
        print(f"left: {sizes(folder)}; {occurrences(folder, marker)} texts")


async def tasks_deleted(documents: ServerDocuments, caller: Principal) -> int:
    """Return how many tasks of a caller are deleted."""
    deletion = await documents.caller_deletion(str(caller))
    return 0 if deletion is None else deletion.tasks


def sizes(folder: Path) -> str:
    """Return the sizes of the database and of its index, with their logs."""
    found = {
        name: sum(file.stat().st_size for file in folder.iterdir() if file.name in (name, f"{name}-wal"))
        for name in ("mail.db", "mail.db-search")
    }
    return ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in found.items())


def occurrences(folder: Path, text: str) -> int:
    """Count a text in all files: one of no case, as the index for searches is in lower case."""
    found, sought = 0, text.encode()
    for path in folder.iterdir():
        with path.open("rb") as file:
            end = b""
            while piece := file.read(READ_AT_ONCE):
                found += (end + piece).count(sought)
                end = piece[1 - len(sought) :]
    return found


if __name__ == "__main__":
    given = list(map(int, sys.argv[1:]))
    tasks, characters = given + [10_000, len(swarms.BODY)][len(given) :]
    with TemporaryDirectory() as scratch:
        asyncio.run(measure(tasks, swarms.BODY[:characters], Path(scratch)))
