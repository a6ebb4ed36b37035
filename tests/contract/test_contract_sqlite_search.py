"""The index of an SQLite file, which is a file of its own."""

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import thread
from contextlib import closing
from itertools import islice
from pathlib import Path
from secrets import token_urlsafe

import pytest
from support.engines.adapters import searched
from support.processes.http_server import eventually

from mail.adapters.shared.search import OVERLAP, PADDING, PART, parts_of
from mail.adapters.sqlite.backups import back_up, restore
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.search import LAST_ROW, Files, index_of, rebuild
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.task.search import Search
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, StoreUnavailable
from mail.testing.changes import ANN, BOB, Mail, Maker
from mail.testing.contracts import committed

NEEDLE = Search(("needle",))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "mail.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    with SQLiteDatabase(path) as database:
        store = SQLiteStore(database)
        yield store
        store.close()


async def fill(store: SQLiteStore, make: Maker, tasks: int = 1, body: str = "a needle") -> None:
    for n in range(tasks):
        await store.commit(make.begin(TaskKey(ANN, f"task-{n}"), Mail("alpha", body=f"{body} {n}")))


async def count(store: SQLiteStore, search: Search = NEEDLE) -> int:
    return len((await searched(store, ANN, search)).tasks)


def indexed(path: str) -> int:
    """The tasks in an index."""
    with closing(sqlite3.connect(index_of(path))) as index:
        try:
            ((found,),) = index.execute("SELECT count(*) FROM tasks")
        except sqlite3.OperationalError:  # it is being made
            return 0
    return int(found)


def size(path: str) -> int:
    """The bytes of an index, without its log."""
    with closing(sqlite3.connect(index_of(path))) as index:
        ((pages, page),) = index.execute(
            "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size"
        )
    return int(pages * page)


async def test_it_is_written_although_nobody_searches(
    path: str, store: SQLiteStore, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.shared.search.PAUSE_SECONDS", 0.0)
    await fill(store, make, 3)

    await eventually(lambda: indexed(path) == 3)


async def test_a_commit_writes_nothing_into_it(path: str, store: SQLiteStore, make: Maker) -> None:
    await fill(store, make)
    assert not Path(index_of(path)).exists()


class TestPlans:
    """A rare word leads to its tasks; the others are listed by their last change until a page is full."""

    @pytest.fixture
    async def files(self, path: str, store: SQLiteStore, make: Maker) -> Files:
        await fill(store, make, 40)
        await store.commit(make.begin(TaskKey(BOB, "task-1"), Mail("alpha", body="a needle")))
        await count(store)
        return Files(path)

    def plan(self, files: Files, search: Search) -> str:
        statement, values = files.statement(ANN, search, 21, "9@2026-01-01T00:00:00+00:00")
        with closing(files):
            return "\n".join(
                str(row[3]) for row in files.index.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            )

    @pytest.mark.parametrize("words", [(), ("needle",), ("ne",), ("needle", "test")])
    def test_many(self, files: Files, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
        monkeypatch.setattr("mail.adapters.sqlite.search.FEW", 10)
        plan = self.plan(files, Search(words))
        assert plan.startswith("SEARCH tasks USING INDEX tasks_as_updated (instance=? AND updated")
        assert "TEMP B-TREE FOR ORDER BY" not in plan
        assert plan.count("SCAN texts VIRTUAL TABLE INDEX 0:><") == len(words), "by row, not the whole table"

    @pytest.mark.parametrize("words", [("needle",), ("beta", "needle"), ("e",)])
    def test_few(self, files: Files, words: tuple[str, ...]) -> None:
        plan = self.plan(files, Search(words))
        assert "SCAN texts VIRTUAL TABLE INDEX 0:M" in plan
        assert "SEARCH tasks USING INTEGER PRIMARY KEY (rowid=?)" in plan

    def test_both_find_the_same(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        few = files.find(ANN, NEEDLE, 30, None)
        monkeypatch.setattr("mail.adapters.sqlite.search.FEW", 10)
        assert files.find(ANN, NEEDLE, 30, None) == few
        assert len(few) == 30


async def test_a_search_that_takes_too_long_ends(
    store: SQLiteStore, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, make, 3)
    assert await count(store) == 3
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, '' FROM n WHERE x < 0"
    )
    with monkeypatch.context() as patch:
        patch.setattr("mail.adapters.sqlite.search.LONGEST_SEARCH", 0.05)
        patch.setattr(Files, "statement", lambda *_: (endless, ()))
        with pytest.raises(BadRequest, match="search for a rarer text"):
            await count(store)
    assert await count(store) == 3


async def test_damage_within_it_is_noticed_and_it_is_made_again(
    path: str, store: SQLiteStore, make: Maker
) -> None:
    """For this, FTS5 has an error of its own."""
    await fill(store, make, 3)
    assert await count(store) == 3
    with closing(sqlite3.connect(index_of(path))) as index, index:
        index.execute("DELETE FROM texts_data WHERE id > 10")
    with pytest.raises(StoreUnavailable):
        await count(store)
    assert await count(store) == 3


async def test_damage_of_the_database_is_not_that_of_the_index(
    path: str, tmp_path: Path, store: SQLiteStore, make: Maker
) -> None:
    await fill(store, make, 3)
    (tmp_path / "broken.db").write_bytes(b"no database at all " * 100)
    with (
        closing(Files(path)) as files,
        closing(sqlite3.connect(tmp_path / "broken.db")) as files.database,
        pytest.raises(StoreUnavailable),
    ):
        files.compare(LAST_ROW)


async def test_it_is_closed_without_a_lock_of_all_threads(store: SQLiteStore, make: Maker) -> None:
    """Garbage collection may close it while its thread has that lock, as when it gives work to another executor."""
    await fill(store, make)
    assert await count(store) == 1
    with thread._global_shutdown_lock:
        store.close()


async def test_it_can_be_made_again_while_a_server_runs(path: str, store: SQLiteStore, make: Maker) -> None:
    await fill(store, make, 3)
    assert await count(store) == 3
    with closing(sqlite3.connect(index_of(path))) as index, index:
        index.execute("DELETE FROM tasks")
    assert await count(store) == 0
    assert rebuild(path) == 3
    assert await count(store) == 3
    await fill(store, make, 0)
    await store.commit(make.begin(TaskKey(ANN, "more"), Mail("alpha", body="needle")))
    assert await count(store) == 4


@pytest.mark.parametrize("damage", [b"", b"no database at all " * 100])
async def test_a_damaged_one_is_made_again(path: str, make: Maker, damage: bytes) -> None:
    for _ in range(2):
        with SQLiteDatabase(path) as database:
            store = SQLiteStore(database)
            await store.commit(make.begin(TaskKey(ANN, make.clock.new_id()), Mail("alpha", body="needle")))
            await count(store)
            store.close()
        Path(index_of(path)).write_bytes(damage)
    with SQLiteDatabase(path) as database:
        store = SQLiteStore(database)
        assert await count(store) == 2
        store.close()


async def test_an_older_copy_of_the_database_gets_an_index_of_its_own(
    path: str, tmp_path: Path, make: Maker
) -> None:
    key, backup = TaskKey(ANN, "task"), tmp_path / "backup.db"
    with SQLiteDatabase(path) as database:
        store = SQLiteStore(database)
        begun = await committed(store, make.begin(key, Mail("alpha", body="needle")))
        back_up(path, backup)
        await store.commit(make.change(begun.task, Mail("alpha", body="thread")))
        await store.commit(make.begin(TaskKey(ANN, "later"), Mail("alpha", body="needle")))
        assert (await count(store), await count(store, Search(("thread",)))) == (2, 1)
        store.close()
    index = Path(index_of(path)).read_bytes()
    restore(backup, path)
    assert not Path(index_of(path)).exists()
    Path(index_of(path)).write_bytes(index)  # somebody has copied the database only
    with SQLiteDatabase(path) as database:
        store = SQLiteStore(database)
        assert (await count(store), await count(store, Search(("thread",)))) == (1, 0)
        store.close()


def test_a_long_text_is_cut_without_copies_of_its_rest() -> None:
    text = "\N{GRINNING FACE}" + "word " * 200_000
    parts = parts_of("", [text])
    found = [next(parts)]
    tracemalloc.start()
    try:
        found += islice(parts, 2)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found += parts
    assert most < 10 * 4 * PART  # a thread that copies the rest for each part holds up all others for seconds
    assert found[0] + "".join(part[OVERLAP:] for part in found[1:]) == text + PADDING
    assert {len(part) for part in found[:-1]} == {PART}


async def test_a_long_task_is_written_in_slices(
    path: str, store: SQLiteStore, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.sqlite.search.WRITTEN_AT_ONCE", 1)
    monkeypatch.setattr("mail.adapters.shared.search.PART", 300)
    begun = await committed(store, make.begin(TaskKey(ANN, "task"), Mail("alpha", body="word-0")))
    task = begun.task
    for n in range(1, 20):
        task = (await committed(store, make.change(task, Mail("alpha", body=f"word-{n} {'x' * 100}")))).task
    for n in range(20):
        assert await count(store, Search((f"word-{n}",))) == 1
    with closing(sqlite3.connect(index_of(path))) as index:
        ((parts, longest),) = index.execute("SELECT count(*), max(length(text)) FROM texts")
    assert parts > 5
    assert longest < 350


async def test_a_large_index_is_rid_of_deleted_texts_step_by_step(
    path: str, store: SQLiteStore, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.sqlite.search.WORK_SECONDS", -1.0)
    monkeypatch.setattr("mail.adapters.sqlite.search.MERGED_AT_ONCE", 1)
    marker = token_urlsafe(40).lower()
    await fill(store, make, 20, f"needle {marker} {token_urlsafe(5_000)}")
    for n in range(5):
        mail = Mail("alpha", body=f"needle {token_urlsafe(2_000)}")
        await store.commit(make.begin(TaskKey(BOB, f"task-{n}"), mail))
    assert await count(store) == 20
    before = size(path)
    await asyncio.gather(*map(store.delete, (await store.list_tasks(ANN, limit=20)).tasks))
    assert await store.scrub(is_quiet=False)
    files = [file for file in Path(path).parent.iterdir() if file.name.startswith("mail.db")]
    assert not any(marker.encode() in file.read_bytes().lower() for file in files)
    steps = 1
    while await store.scrub(is_quiet=False):
        await store.commit(make.begin(TaskKey(ANN, f"other-{steps}"), Mail("alpha", body="another")))
        await count(store)  # what is written meanwhile is not in the way
        steps += 1
    assert 1 < steps < 500
    assert size(path) < before / 2
    with closing(sqlite3.connect(index_of(path))) as index:
        index.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    assert len((await searched(store, BOB, NEEDLE)).tasks) == 5


async def test_a_deletion_gives_the_space_back(path: str, store: SQLiteStore, make: Maker) -> None:
    await fill(store, make, 30, f"needle {token_urlsafe(5_000)}")
    assert await count(store) == 30
    await store.scrub(is_quiet=True)
    tasks = (await store.list_tasks(ANN, limit=30)).tasks
    await asyncio.gather(*map(store.delete, tasks))
    assert size(path) > 500_000
    await store.scrub(is_quiet=True)
    assert indexed(path) == 0
    assert size(path) < 100_000
    await fill(store, make)  # its row is that of one which was deleted
    assert await count(store) == 1
