"""What a turn and a submission cost on SQLite, in counts, which are the same on a loaded machine."""

from collections import Counter
from pathlib import Path

import pytest

from mail.adapters.local.queue import LocalQueue
from mail.adapters.shared.codec import decode_events
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.events import Event, EventKind, encode_events, read_extra
from mail.core.task.task import TaskKey
from mail.errors import VersionConflict
from mail.testing.agents import build_swarm, complete
from mail.testing.changes import Maker
from mail.testing.contracts import committed

ANN = Principal(role="user", id="ann", swarm="cost")
WAL_FRAME_HEADER = 24
"""Bytes before each page in the write-ahead log."""

SWARM = build_swarm({"chief": lambda _: [complete("done")]}, name="cost")


async def test_a_new_task_takes_no_look_for_an_old_one(tmp_path: Path) -> None:
    with SQLiteDatabase(tmp_path / "mail.db") as database:
        runtime = Runtime(SWARM, SQLiteStore(database), LocalQueue(), SYSTEM_CLOCK)
        statements: Counter[str] = Counter()
        database.connection.set_trace_callback(lambda sql: statements.update([sql.split()[0]]))
        await runtime.submit(ANN, Submission(body="hello"))
        assert statements == {"BEGIN": 1, "INSERT": 2, "COMMIT": 1}


async def test_a_task_without_a_deadline_writes_few_pages(tmp_path: Path) -> None:
    """Each index that a task is in costs a page when the task begins, and most cost another when it ends."""
    path = tmp_path / "mail.db"
    with SQLiteDatabase(path) as database:
        store, queue = SQLiteStore(database), LocalQueue()
        runtime = Runtime(SWARM, store, queue, SYSTEM_CLOCK)
        await runtime.submit(ANN, Submission(body="hello"))
        (page_size,) = database.connection.execute("PRAGMA page_size").fetchone()
        before = path.with_name("mail.db-wal").stat().st_size
        await runtime.submit(ANN, Submission(body="hello"))
        written = path.with_name("mail.db-wal").stat().st_size - before
        assert written <= 5 * (page_size + WAL_FRAME_HEADER)


async def test_a_second_task_of_the_same_key_is_refused_with_the_first(tmp_path: Path) -> None:
    """The store doesn't look for it, and another process may have begun it, or the cache may have dropped it."""
    key, make = TaskKey(str(ANN), "t"), Maker()
    with SQLiteDatabase(tmp_path / "mail.db") as database:
        first = await committed(SQLiteStore(database), make.begin(key))
        store = SQLiteStore(database)
        with pytest.raises(VersionConflict) as refusal:
            await store.commit(make.begin(key))
        assert refusal.value.current == first.task
        assert not database.connection.in_transaction
        assert database.execute("SELECT count(*) FROM commits") == [(1,)]


def test_events_are_stored_in_the_form_that_they_always_had() -> None:
    message = Maker().begin(TaskKey(str(ANN), "t")).deliveries[0].message
    extra = {"tool_args": {"n": float("nan"), "text": "ü"}}
    events = (
        Event(1, EventKind.NEW_MESSAGE, "now", "t", message=message),
        Event(2, EventKind.TOOL_CALL, "now", "t", read_extra(EventKind.TOOL_CALL, extra)),
    )
    stored = encode_events(events)
    assert stored == (
        b'[[1,"new_message","now","t",{},'
        + message.model_dump_json().encode()
        + '],[2,"tool_call","now","t",{"tool_args":{"n":null,"text":"ü"}},null]]'.encode()
    )
    assert decode_events(stored)[0] == events[0]
