"""How long the deletion of a caller with many tasks takes, and what of it is left in SQLite's files.

    python -m bench.deletions 100000

Run it by hand: `python -m bench` leaves it out. It prints deletions per second while nothing else happens, the share of
the time that they take beside turns, and how often a text that nothing else has stands in the files before and after.
"""

import asyncio
import sys
import time
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory

from bench import swarms
from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.files import SQLiteFiles
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.search import Search, Searched

NAME = "original-task"

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO tasks (instance, task_id, status, due, delivering, dead, bytes)
SELECT instance, 'copy-' || n, status, due, delivering, dead, bytes FROM numbers, tasks WHERE task_id = :name;
"""
COPY_COMMITS = """
INSERT INTO commits
SELECT (copy.id << 32) | (one.id & 0xFFFFFFFF), agent, n, ended, delivered, read_mailbox, read_seq,
       CAST(replace(CAST(state AS TEXT), :name, copy.task_id) AS BLOB), events, history, response
FROM tasks AS copy, commits AS one
WHERE copy.task_id LIKE 'copy-%' AND one.id >> 32 = (SELECT id FROM tasks WHERE task_id = :name);
"""


async def measure(count: int, folder: Path) -> None:
    """Delete a caller with so many tasks: the first part while nothing else happens, the rest beside turns."""
    path, marker = folder / "mail.db", token_urlsafe(30)
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

        await turn(ann, f"{marker} {swarms.BODY}", NAME)
        for statement in (COPY, COPY_COMMITS):
            database.connection.execute(statement, {"count": count, "name": NAME})
        while (await store.search(str(ann), Search(("nothing",)), limit=1)).searched is Searched.SOME_TEXTS:
            pass  # the index is written for a time before each search
        print(f"{count} tasks, {sizes(folder)}, {occurrences(folder, marker)} texts")
        await runtime.deletions.begin(str(ann), "admin:root@bench")
        alone = await turns(5)
        begin = time.perf_counter()
        work = asyncio.create_task(runtime.deletions.work())
        beside = await turns(20)
        deleted = await tasks_deleted(documents, ann)
        rate = deleted / (time.perf_counter() - begin)
        print(
            f"beside turns: {rate:.0f} deletions/s; turns/s {alone:.0f} without them, {beside:.0f} with them"
        )
        begin, busy = time.perf_counter(), time.process_time()
        await work
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        rest = await tasks_deleted(documents, ann) - deleted
        rate, each = rest / seconds, busy / rest * 1e6
        print(
            f"alone: {rest} deletions in {seconds:.1f} s, {rate:.0f}/s, {each:.0f} us of CPU each, all overwritten"
        )
        print(f"left: {sizes(folder)}; {occurrences(folder, marker)} texts")


async def tasks_deleted(documents: ServerDocuments, caller: Principal) -> int:
    """Return how many tasks of a caller are deleted."""
    deletion = await documents.caller_deletion(str(caller))
    return 0 if deletion is None else deletion.tasks


def sizes(folder: Path) -> str:
    """Return the sizes of the database and of its index, with their logs."""
    found = {
        name: sum((folder / f"{name}{end}").stat().st_size for end in ("", "-wal"))
        for name in ("mail.db", "mail.db-search")
    }
    return ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in found.items())


def occurrences(folder: Path, text: str) -> int:
    """Count a text in all files."""
    return sum(file.read_bytes().count(text.encode()) for file in folder.iterdir())


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        asyncio.run(measure(int(sys.argv[1]), Path(scratch)))
