"""What the embedded store promises beyond the contract: its file, who owns it, and what happens when it is in
trouble.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.engines.adapters import loaded, searched

import mail.adapters.sqlite.database
import mail.adapters.sqlite.store
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.commit import write_change
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.watch import read_waiting
from mail.core.task.documents import IN_MEMORY, StoredToken
from mail.core.task.ports import Busy
from mail.core.task.search import Search
from mail.core.task.task import TaskKey, Transition
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.errors import ConfigurationError, StoreUnavailable, VersionConflict
from mail.testing.changes import ANN, BOB, NOW, Mail, Maker, checkpoint
from mail.testing.contracts import committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")
TOKEN = StoredToken(digest="a" * 64, role="user", id="alice", created="2026-01-31T08:00:00+00:00")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock, as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


class TestOwnership:
    def test_one_process_owns_the_file(self, path: Path) -> None:
        with SQLiteDatabase(path), pytest.raises(ConfigurationError) as refusal:
            SQLiteDatabase(path)
        assert str(path) in refusal.value.detail

    def test_the_claim_ends_when_it_is_closed(self, path: Path) -> None:
        for _ in range(3):
            with SQLiteDatabase(path):
                pass

    def test_a_claim_that_was_refused_leaves_the_owners_alone(self, path: Path) -> None:
        with SQLiteDatabase(path):
            for _ in range(2):
                with pytest.raises(ConfigurationError):
                    SQLiteDatabase(path)

    def test_no_other_user_can_take_the_claim(self, path: Path) -> None:
        """A shared lock needs a descriptor for reading only, so that the file must not be readable."""
        lock = path.with_name("mail.db.lock")
        lock.touch(mode=0o644)
        with SQLiteDatabase(path):
            assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.glob("mail.db.lock*")} == {
                "mail.db.lock": 0o600,
                "mail.db.lock-journal": 0o600,
            }

    async def test_others_may_add_tokens_meanwhile(self, path: Path) -> None:
        with SQLiteDatabase(path) as owner, SQLiteDatabase(path, own=False) as visitor:
            await ServerDocuments(SQLiteDocuments(visitor)).add_token(TOKEN)
            assert await ServerDocuments(SQLiteDocuments(owner)).find_token(TOKEN.digest) == TOKEN

    def test_databases_in_memory_are_nobodys(self) -> None:
        with SQLiteDatabase(IN_MEMORY), SQLiteDatabase(IN_MEMORY):
            pass

    def test_names_with_special_characters(self, tmp_path: Path) -> None:
        for name in ("a b.db", "ü?x=1#y.db", "file:x.db"):
            with SQLiteDatabase(tmp_path / name):
                assert (tmp_path / name).exists()


class TestOpening:
    def test_missing_folders_are_made(self, tmp_path: Path) -> None:
        with SQLiteDatabase(tmp_path / "some" / "where" / "mail.db"):
            pass

    def test_a_file_that_is_no_database(self, path: Path) -> None:
        path.write_bytes(b"not a database, by any means" * 100)
        with pytest.raises(ConfigurationError) as refusal:
            SQLiteDatabase(path)
        assert str(path) in refusal.value.detail

    def test_a_file_of_another_version(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 4711")
        connection.close()
        with pytest.raises(ConfigurationError) as refusal:
            SQLiteDatabase(path)
        assert "4711" in refusal.value.detail

    def test_a_file_of_an_earlier_version_is_migrated(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To a version that is made up, as there is no second one yet."""
        SQLiteDatabase(path).close()
        monkeypatch.setattr(mail.adapters.sqlite.database, "SCHEMA_VERSION", 3)
        steps = {1: "CREATE TABLE notes (id);", 2: "ALTER TABLE notes RENAME COLUMN id TO number;"}
        monkeypatch.setattr(mail.adapters.sqlite.database, "MIGRATIONS", steps)
        for _ in range(2):  # the second finds nothing to do
            with SQLiteDatabase(path) as migrated:
                assert migrated.execute("SELECT number FROM notes") == []
                assert migrated.execute("PRAGMA user_version") == [(3,)]
        copy = path.with_name(f"{path.stem}-schema-1.db")
        assert copy.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy)) as earlier:
            assert earlier.execute("PRAGMA user_version").fetchone() == (1,)
            assert not earlier.execute("SELECT 1 FROM sqlite_schema WHERE name = 'notes'").fetchall()
        monkeypatch.setattr(mail.adapters.sqlite.database, "SCHEMA_VERSION", 4)
        with pytest.raises(ConfigurationError, match="schema version 3, this program needs 4"):
            SQLiteDatabase(path)

    def test_a_file_can_give_space_back(self, path: Path) -> None:
        with SQLiteDatabase(path) as opened:
            opened.execute("INSERT INTO settings VALUES ('large', ?)", ("x" * 1_000_000,))
            opened.execute("DELETE FROM settings WHERE name = 'large'")
            opened.execute("PRAGMA incremental_vacuum")
            opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert path.stat().st_size < 500_000

    def test_after_a_failure_the_claim_is_free(self, path: Path) -> None:
        path.write_bytes(b"x" * 5000)
        for _ in range(2):
            with pytest.raises(ConfigurationError):
                SQLiteDatabase(path)
        path.unlink()
        with SQLiteDatabase(path):
            pass

    @pytest.mark.parametrize(("mode", "number"), [("normal", 1), ("full", 2)])
    def test_durability_is_what_was_asked_for(self, path: Path, mode: str, number: int) -> None:
        with SQLiteDatabase(path, synchronous=mode) as database:  # type: ignore[arg-type]
            assert database.connection.execute("PRAGMA synchronous").fetchone() == (number,)
            assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_counting_running_tasks_looks_at_no_ended_ones(path: Path) -> None:
    """Each new task is counted, so that it must not cost more the longer a caller has been here."""
    with SQLiteDatabase(path) as database:
        rows = [("user:a@s", str(n), "running" if n < 3 else "completed") for n in range(2_000)]
        database.connection.executemany(
            "INSERT INTO tasks (instance, task_id, status) VALUES (?, ?, ?)", rows
        )
        steps: list[None] = []
        database.connection.set_progress_handler(lambda: steps.append(None), 1)
        assert await SQLiteStore(database).count_running("user:a@s", upto=100) == 3
        assert len(steps) < 100


class TestTrouble:
    """A write that the file refuses has not happened, in memory as little as on disk."""

    async def test_a_full_disk(self, path: Path, make: Maker) -> None:
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(KEY))
            turn = await open_turn(store, KEY, "alpha", make)
            before = await everything(store, KEY)
            (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
            (most,) = database.connection.execute("PRAGMA max_page_count").fetchone()
            database.connection.execute(f"PRAGMA max_page_count = {pages}")
            large = [{"content": "x" * 100_000}]
            with pytest.raises(StoreUnavailable, match="the disk of the database is full"):
                await store.commit(make.change(turn.task, Mail("beta"), turn=turn, history=large))
            with pytest.raises(StoreUnavailable):
                await store.save_checkpoint(turn, checkpoint("x" * 100_000))
            with pytest.raises(StoreUnavailable):
                await store.commit(make.begin(TaskKey(ANN, "other"), Mail("alpha", body="x" * 100_000)))
            assert await everything(store, KEY) == before
            assert await store.load(TaskKey(ANN, "other")) is None
            database.connection.execute(f"PRAGMA max_page_count = {most}")
            change = await committed(store, make.change(turn.task, Mail("beta"), turn=turn, history=large))
        with SQLiteDatabase(path) as database:
            assert await SQLiteStore(database).load(KEY) == change.task

    async def test_writes_wait_for_the_lock_without_the_event_loop(self, path: Path, make: Maker) -> None:
        """They are made as they came, and decided again if another one comes first."""
        with SQLiteDatabase(path) as database:
            store, documents = SQLiteStore(database), ServerDocuments(SQLiteDocuments(database))
            begun = await committed(store, make.begin(KEY))
            changes = [make.change(begun.task, Mail("beta", body=str(n))) for n in range(20)]
            with locked(path):
                writes = [asyncio.create_task(store.commit(change)) for change in changes]
                writes.append(asyncio.create_task(documents.add_token(TOKEN)))
                for _ in range(20):
                    assert await documents.find_token(TOKEN.digest) is None
                    await asyncio.sleep(0.005)
                assert not any(write.done() for write in writes)
            first, *others, last = await asyncio.gather(*writes, return_exceptions=True)
            assert (first, last) == (None, None)
            assert all(isinstance(error, VersionConflict) for error in others)
            assert await store.load(KEY) == changes[0].task
            assert await documents.find_token(TOKEN.digest) == TOKEN

    async def test_long_writes_of_its_own_are_not_blamed_on_others(self, path: Path) -> None:
        with SQLiteDatabase(path) as database:
            begun, end = asyncio.Event(), asyncio.Event()

            async def write() -> None:
                begun.set()
                await end.wait()

            long = asyncio.create_task(database.write_in_turn(write))
            await begun.wait()
            with pytest.raises(StoreUnavailable, match="busy with other writes of this server"):
                await database.write(lambda: None, lock_timeout=0.01)
            end.set()
            await long

    async def test_a_deletion_whose_caller_goes_away_is_finished(self, path: Path, make: Maker) -> None:
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            begun = await committed(store, make.begin(KEY, LARGE))
            deletion = asyncio.create_task(store.delete(begun.task))
            await asyncio.sleep(0)
            deletion.cancel()
            with pytest.raises(asyncio.CancelledError):
                await deletion
            assert await store.load(KEY) == await SQLiteStore(database).load(KEY)

    async def test_documents_on_a_full_disk(self, path: Path) -> None:
        with SQLiteDatabase(path) as database:
            documents = ServerDocuments(SQLiteDocuments(database))
            (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
            database.connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StoreUnavailable):
                await documents.set_health("x" * 100_000)
            assert await documents.health() is None


async def test_a_turn_that_is_over_leaves_no_checkpoint_behind(path: Path, make: Maker) -> None:
    with SQLiteDatabase(path) as database:
        store = SQLiteStore(database)
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        for name in ("alpha", "beta"):
            turn = await open_turn(store, KEY, name, make)
            await store.save_checkpoint(turn, checkpoint("x" * 1000))
            await store.commit(make.change(turn.task, turn=turn))
            assert database.connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)


class TestMemory:
    """The store keeps some tasks in memory; how many must not matter."""

    async def test_tasks_that_fell_out_of_memory_are_read_again(
        self, monkeypatch: pytest.MonkeyPatch, make: Maker
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "CACHED_TASKS", 2)
        keys = [TaskKey(ANN, f"task-{n}") for n in range(10)]
        with SQLiteDatabase(IN_MEMORY) as database:
            store = SQLiteStore(database)
            for key in keys:
                await store.commit(make.begin(key, Mail("alpha"), Mail("beta", body=key.task_id)))
            for key in keys:
                turn = await open_turn(store, key, "beta", make)
                assert turn.entry.message.message.body == key.task_id
                await store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
            assert len(store._cache) <= 3

    async def test_a_task_in_the_middle_of_a_turn_is_not_forgotten(
        self, monkeypatch: pytest.MonkeyPatch, make: Maker
    ) -> None:
        """Its leases are nowhere else."""
        monkeypatch.setattr(mail.adapters.sqlite.store, "CACHED_TASKS", 1)
        with SQLiteDatabase(IN_MEMORY) as database:
            store = SQLiteStore(database)
            turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("beta"))
            await store.save_checkpoint(turn, checkpoint("kept"))
            for n in range(10):
                await store.commit(make.begin(TaskKey(ANN, f"other-{n}")))
                await open_turn(store, TaskKey(ANN, f"other-{n}"), "alpha", make)
            assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
            await store.commit(make.change(turn.task, turn=turn))

    async def test_a_task_changes_while_its_mail_is_looked_for(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "SCANNED_AT_ONCE", 2)
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta", body="old")))
            for _ in range(10):
                turn = await open_turn(store, KEY, "alpha", make)
                last = await committed(store, make.change(turn.task, Mail("alpha"), turn=turn))
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            loading = asyncio.create_task(store.load(KEY))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not loading.done()
            change = await committed(store, make.change(last.task, Mail("gamma")))
            assert await loading == change.task
            assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["beta", "alpha", "gamma"]
            snapshot = await store.read_snapshot(KEY, last.task.seq)
            waiting = [entry async for entry in read_waiting(store, snapshot)]
            assert [(entry.mailbox, entry.message.message.body == "old") for entry in waiting] == [
                ("beta", True),
                ("alpha", False),
            ]


class TestBytesInMemory:
    async def test_texts_in_memory_are_bounded_by_their_size(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "CACHED_BYTES", 20_000)
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            for n in range(12):
                await store.commit(make.begin(TaskKey(ANN, f"task-{n}"), Mail("alpha", body=f"{n}" * 5_000)))
                assert store._cached_bytes == sum(cached.size for cached in store._cache.values()) <= 20_000
            assert store._cached_bytes > 0
            for n in range(12):
                key = TaskKey(ANN, f"task-{n}")
                turn = await open_turn(store, key, "alpha", make)
                assert turn.entry.message.message.body == f"{n}" * 5_000
                await store.save_checkpoint(turn, checkpoint("x" * 15_000))
                ended = make.change(turn.task, turn=turn, transition=Transition.COMPLETE)
                await store.commit(ended)
                assert await store.read_response(key, 1) == ended.response
                assert store._cached_bytes == sum(cached.size for cached in store._cache.values()) <= 20_000

    async def test_a_text_larger_than_all_of_memory_is_read_from_the_file(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "CACHED_BYTES", 50_000)
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(KEY, Mail("alpha", body="x" * 100_000)))
            assert store._cached_bytes == 0
            turn = await open_turn(store, KEY, "alpha", make)
            assert turn.entry.message.message.body == "x" * 100_000
            await store.save_checkpoint(turn, checkpoint("x" * 100_000))
            assert store._cached_bytes == 0

    async def test_tasks_that_are_paused_at_long_calls_are_bounded_by_their_size(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "CACHED_BYTES", 50_000)
        call = PausedCall(call_id="call-1", name="pay", arguments={"text": "x" * 20_000})
        reached = Breakpoint(agent="alpha", tool_format="completions", calls=(call,))
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            keys = [TaskKey(ANN, f"task-{n}") for n in range(6)]
            for key in keys:
                await store.commit(make.begin(key))
                turn = await open_turn(store, key, "alpha", make)
                paused = make.change(turn.task, turn=turn, transition=Transition.PAUSE)
                generation = replace(paused.task.generation, breakpoint=reached)
                await store.commit(replace(paused, task=replace(paused.task, generation=generation)))
            for key in keys:
                task = await loaded(store, key)
                assert task.generation.breakpoint == reached
                assert store._cached_bytes == sum(cached.size for cached in store._cache.values()) <= 50_000
                assert len(store._cache) <= 2
            await store.commit(make.change(task, transition=Transition.RESUME))
            resumed = await loaded(store, keys[-1])
            assert resumed.is_running

    async def test_the_log_is_moved_into_the_file_by_a_thread(self, path: Path, make: Maker) -> None:
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            (pages,) = database.connection.execute("PRAGMA wal_autocheckpoint").fetchone()
            assert pages > 10_000
            for n in range(5):
                await store.commit(make.begin(TaskKey(ANN, f"task-{n}"), Mail("alpha", body="x" * 1_000_000)))
            assert store._log._move is not None
            await store._log._move
            assert path.stat().st_size > 4_000_000

    async def test_a_large_commit_waits_while_the_log_is_moved(self, path: Path, make: Maker) -> None:
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            store._log._move = moving = asyncio.get_running_loop().create_future()
            await store.commit(make.begin(TaskKey(ANN, "short"), Mail("alpha", body="x" * 1_000)))
            long = make.begin(TaskKey(ANN, "long"), Mail("alpha", body="x" * 2_000_000))
            large = asyncio.create_task(store.commit(long))
            await asyncio.sleep(0.02)
            assert not large.done()
            moving.set_result(None)
            await large
            assert await store.load(TaskKey(ANN, "long")) is not None


LARGE = Mail("beta", body="x" * 1_500_000)


class Gate:
    """Holds the writes of threads, before or after them, until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def around(self, write: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
        def held(*args: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                return write(*args)
            row = write(*args) if after else None
            self._reached.set()
            assert self._open.wait(60)
            return row if after else write(*args)

        return held

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 10)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Gate:
    return Gate()


class TestLargeCommits:
    """A thread writes them, so that the event loop is free."""

    async def test_others_read_meanwhile_and_write_afterwards(
        self, path: Path, make: Maker, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "write_change", gate.around(write_change))
        with SQLiteDatabase(path) as database:
            store, documents = SQLiteStore(database), ServerDocuments(SQLiteDocuments(database))
            begun = await committed(store, make.begin(KEY))
            before = await everything(store, KEY)
            change, late = make.change(begun.task, LARGE), make.change(begun.task, Mail("gamma"))
            large = asyncio.create_task(store.commit(change))
            await gate.reached()
            others = [
                asyncio.create_task(store.commit(late)),
                asyncio.create_task(store.commit(make.begin(TaskKey(ANN, "other")))),
                asyncio.create_task(documents.add_token(TOKEN)),
            ]
            assert await everything(store, KEY) == before
            assert await documents.find_token(TOKEN.digest) is None
            assert not any(task.done() for task in (large, *others))
            gate.open()
            await large
            conflict, *rest = await asyncio.gather(*others, return_exceptions=True)
            assert isinstance(conflict, VersionConflict)
            assert (conflict.current, rest) == (change.task, [None, None])
            assert await everything(store, KEY) == await everything(SQLiteStore(database), KEY)

    @pytest.mark.parametrize("is_refused", [False, True], ids=["written", "refused"])
    async def test_a_cancelled_one_is_whole_or_absent(
        self, path: Path, make: Maker, gate: Gate, monkeypatch: pytest.MonkeyPatch, is_refused: bool
    ) -> None:
        """Its caller is cancelled when that is known, and so can't release the lease before."""
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(KEY))
            turn = await open_turn(store, KEY, "alpha", make)
            if is_refused:
                database.connection.execute(
                    "CREATE TRIGGER full BEFORE INSERT ON commits BEGIN SELECT RAISE(ABORT, 'no room'); END"
                )
            monkeypatch.setattr(mail.adapters.sqlite.store, "write_change", gate.around(write_change))
            change = make.change(turn.task, LARGE, turn=turn)
            large = asyncio.create_task(store.commit(change))
            await gate.reached()
            for _ in range(2):
                large.cancel()
                await asyncio.sleep(0)
            expired = NOW + 1_000
            assert await store.open_turn(KEY, "alpha", make.lease(), now=expired, history_after=0) == Busy()
            assert not large.done()
            gate.open()
            await asyncio.wait([large])
            assert large.cancelled()
            assert await store.load(KEY) == (turn.task if is_refused else change.task)
            assert await everything(store, KEY) == await everything(SQLiteStore(database), KEY)
            assert bool(await store.read_leases(KEY, now=NOW)) == is_refused

    async def test_a_new_task_that_is_read_before_its_commit_returns(
        self, path: Path, make: Maker, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.store, "write_change", gate.around(write_change, after=True))
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            change = make.begin(KEY, LARGE)
            large = asyncio.create_task(store.commit(change))
            await gate.reached()
            turn = await open_turn(store, KEY, "beta", make)
            gate.open()
            await large
            await store.commit(make.change(turn.task, turn=turn))
            assert await everything(store, KEY) == await everything(SQLiteStore(database), KEY)

    async def test_a_second_task_of_the_same_key_is_refused(self, path: Path, make: Maker) -> None:
        with SQLiteDatabase(path) as database:
            first = await committed(SQLiteStore(database), make.begin(KEY, LARGE))
            with pytest.raises(VersionConflict) as refusal:
                await SQLiteStore(database).commit(make.begin(KEY, LARGE))
            assert refusal.value.current == first.task

    @pytest.mark.parametrize("mail_sent", [Mail("beta"), LARGE], ids=["short", "large"])
    async def test_it_waits_for_somebody_elses_lock(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch, mail_sent: Mail
    ) -> None:
        monkeypatch.setattr(mail.adapters.sqlite.database, "LOCK_TIMEOUT", 0.1)
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            begun = await committed(store, make.begin(KEY))
            change = make.change(begun.task, mail_sent)
            with locked(path):
                with pytest.raises(StoreUnavailable, match="Another process has locked the database"):
                    await store.commit(change)
                assert await store.load(KEY) == begun.task
            await store.commit(change)
            assert await store.load(KEY) == change.task


class TestDeletion:
    async def test_failed_attempts_are_not_those_of_the_next_task(self, path: Path, make: Maker) -> None:
        """SQLite gives its row to the next task."""
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(KEY))
            turn = await open_turn(store, KEY, "alpha", make)
            await store.release(turn, left=turn.lease.ended(4, turn.entry.seq))
            await store.delete(turn.task)
            await store.commit(make.begin(KEY))
            store.close()
        with SQLiteDatabase(path) as database:
            assert (await open_turn(SQLiteStore(database), KEY, "alpha", make)).replaced is None

    @pytest.mark.parametrize("is_small", [True, False])
    async def test_no_byte_of_the_text_is_left(
        self, path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch, is_small: bool
    ) -> None:
        """Rows of many tasks share pages, from which SQLite moves some; the process ends after the deletion."""
        marker, random = "5vN2rQ8xTz0LkWc7", Random(7)
        keys = [TaskKey(ANN if n % 4 else BOB, f"task-{n}") for n in range(60)]

        def text(key: TaskKey) -> Mail:
            body = f"{marker if key.instance == ANN else 'x' * 16} {random.randbytes(random.choice((100, 900))).hex()}"
            return Mail("alpha", body=body)

        def left() -> int:
            """Count it in all files: the index for searches has it in lower case."""
            return sum(
                file.read_bytes().lower().count(marker.lower().encode()) for file in path.parent.iterdir()
            )

        if not is_small:
            monkeypatch.setattr("mail.adapters.sqlite.store.REWRITTEN_AT_ONCE", 0)
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            tasks = {key: (await committed(store, make.begin(key, text(key)))).task for key in keys}
            for _ in range(300):
                key = random.choice(keys)
                tasks[key] = (await committed(store, make.change(tasks[key], text(key)))).task
            assert len((await searched(store, ANN, Search((marker.lower(),)))).tasks) == 45
            assert left() > 400
            ((pages,),) = database.execute("PRAGMA page_count")
            doomed = [task for key, task in tasks.items() if key.instance == ANN]
            await asyncio.gather(*map(store.delete, doomed))
            assert database.execute("PRAGMA freelist_count") == [(0,)], "a long list takes SQLite long"
            store.close()
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            while await store.scrub(is_quiet=False):  # on a busy machine, one call doesn't get to the end
                pass
            assert left() <= (0 if is_small else 20), "SQLite's own copies of some rows"
            await store.scrub(is_quiet=True)
            assert left() == 0
            assert database.execute("PRAGMA page_count")[0][0] < pages / 2
            assert len((await store.list_tasks(BOB)).tasks) == 15

    async def test_a_file_that_can_give_no_space_back(self, path: Path, make: Maker) -> None:
        with closing(sqlite3.connect(path)) as made:
            made.execute("CREATE TABLE other (x)")
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            begun = await committed(store, make.begin(KEY, Mail("alpha", body="x" * 100_000)))
            await store.delete(begun.task)
            assert not await store.scrub(is_quiet=False), "it would be repeated for ever"
            assert await store.load(KEY) is None
