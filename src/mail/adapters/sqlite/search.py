"""The index that tasks are searched by: a file of its own beside the database, which a thread writes beside the turns.

A commit only notes its task in memory; some seconds later the thread reads what is new in the database, and writes it
here, so that turns wait for nothing. What a process has not written when it ends, the next one finds by comparing both
files. The file has nothing of its own: whatever is wrong with it, it is made again. For a database in memory, it is
also in memory, and written when somebody searches.

Texts are found by trigrams (FTS5's tokenizer `trigram`), which need no words, so that any language and any signs are
found, also inside words. They are stored without positions, which is three times as small: the texts say where runs of
three characters are next to each other. What excerpts show is in a table of its own, as a search reads many more texts
than it shows. A word that is in many tasks is looked for in the tasks as they are listed,
which soon has a page.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from mail.adapters.shared.codec import upto_bytes
from mail.adapters.shared.search import (
    GRAM,
    LONGEST_SEARCH,
    MOST_PARTS,
    NEWEST_PARTS,
    Behind,
    by_length,
    excerpt_of,
    grams_of,
    head_of,
    parts_of,
    read_place,
    search_too_long,
    texts_of,
)
from mail.adapters.sqlite.commit import ids_of
from mail.adapters.sqlite.database import SQLiteDatabase, commit_id, give_space_back, transaction, unavailable
from mail.core.task.documents import IN_MEMORY
from mail.core.task.search import Excerpt, Search, cost_of, fold
from mail.core.task.stored import read_task
from mail.errors import WrittenLater

logger = logging.getLogger(__name__)

VERSION = 2

WORK_SECONDS = 0.1
"""Seconds after which the thread lets searches begin, and has others write."""

COMPARED_AT_ONCE = 2_000
"""Tasks whose rows in both files are compared at once."""

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""The primary codes of errors of a damaged file."""

LAST_ROW = 2**31

WRITTEN_AT_ONCE = 1024 * 1024
"""Bytes of the commits of a task that are read at once."""

FEW = 5_000
"""Up to so many places of a word, its tasks are looked at; otherwise the tasks as they are listed."""

FEW_GRAMS = 64
"""The same for the entries that begin with a word of one or two characters."""

MERGED_AT_ONCE = 500
"""Pages that one statement rids of deleted entries."""

SCHEMA = f"""
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    instance TEXT NOT NULL,
    task_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    last_part INTEGER NOT NULL,
    updated TEXT NOT NULL,
    status TEXT NOT NULL,
    cost REAL NOT NULL
);
CREATE INDEX tasks_as_updated ON tasks (instance, updated, id);
CREATE INDEX tasks_by_status ON tasks (instance, status, updated, id);
CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'trigram case_sensitive 1', detail = none);
CREATE TABLE originals (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE VIRTUAL TABLE grams USING fts5vocab(texts, row);
CREATE TABLE unscrubbed (id INTEGER PRIMARY KEY);
PRAGMA user_version = {VERSION};
"""

_HAS_WORD = (
    " AND EXISTS (SELECT 1 FROM texts WHERE texts.rowid BETWEEN tasks.id * {most} AND tasks.id * {most} + {most} - 1"
    " AND instr(texts.text, ?))"
)

_ASKED = "instance = ? AND (updated, id) < (?, ?) AND updated >= ? AND (? = '' OR updated < ?) AND cost >= ?"


class Files:
    """The connections of the thread: to the database, for reading, and to the index."""

    def __init__(self, path: str, database: sqlite3.Connection | None = None) -> None:
        self._owns = database is None
        self.database = database or sqlite3.connect(
            f"file:{quote(os.path.realpath(path))}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        self._path = IN_MEMORY if database is not None else index_of(path)
        try:
            self.index = self._open()
        except BaseException:
            if self._owns:
                self.database.close()
            raise

    def _open(self) -> sqlite3.Connection:
        if self._path != IN_MEMORY:
            Path(self._path).touch(mode=0o600)
        try:
            return self._connected()
        except sqlite3.OperationalError:  # it is locked, or the disk is full
            raise
        except sqlite3.DatabaseError as error:
            remove_damaged(self._path, error)
            return self._connected()

    def _connected(self) -> sqlite3.Connection:
        # only one thread uses it at a time
        index = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            index.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a new file
            index.execute("PRAGMA journal_mode = WAL")
            index.execute("PRAGMA synchronous = NORMAL")
            index.execute("PRAGMA secure_delete = ON").fetchall()
            (version,) = index.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"it has version {version}")
            if version == 0:
                index.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        except BaseException:
            index.close()
            raise
        return index

    def close(self) -> None:
        self.index.close()
        if self._owns:
            self.database.close()

    def compare(self, before: int) -> tuple[list[int], int]:
        """Return which of the last tasks before a row differ in both files, and the first of those compared; 0 for all.

        So the newest are written first.
        """
        stored = list(
            self._stored(
                "SELECT id, instance, task_id, (SELECT c.id FROM commits AS c WHERE c.id > (tasks.id << 32)"
                " AND c.id < ((tasks.id + 1) << 32) - 2147483648 ORDER BY c.id DESC LIMIT 1) FROM tasks"
                " WHERE id < ? ORDER BY id DESC LIMIT ?",
                before,
                COMPARED_AT_ONCE,
            )
        )
        first = stored[-1][0] if len(stored) == COMPARED_AT_ONCE else 0
        present = {row: key_and_commit for row, *key_and_commit in stored}
        known = {
            row: [instance, task_id, commit_id(row, seq)]
            for row, instance, task_id, seq in self.index.execute(
                "SELECT id, instance, task_id, seq FROM tasks WHERE id < ? AND id >= ?", (before, first)
            )
        }
        rows = sorted(present.keys() | known.keys(), reverse=True)
        return [row for row in rows if present.get(row) != known.get(row)], first

    def write(self, rows: Sequence[int], *, seconds: float = WORK_SECONDS) -> int:
        """Write what is new in tasks, or gone, until so many seconds have passed; return in how many."""
        end, done = monotonic() + seconds, 0
        with transaction(self.index):
            while done < len(rows):
                done += self._write(rows[done])
                if monotonic() > end:
                    break
        return done

    def _write(self, row: int) -> bool:
        """Write some of what is new in a task; return whether that is all."""
        found = next(
            self._stored(
                "SELECT instance, task_id, (SELECT state FROM commits WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1)"
                " FROM tasks WHERE id = ?",
                *ids_of(row),
                row,
            ),
            None,
        )
        known = self.index.execute(
            "SELECT instance, task_id, seq, last_part FROM tasks WHERE id = ?", (row,)
        ).fetchone()
        if known is not None and (found is None or known[:2] != found[:2]):
            self.forget([row])
            known = None
        if found is None or not found[2]:
            return True
        try:
            task = read_task(found[2])
        except WrittenLater:  # by a newer version, which has written the index, too
            return True
        if known is not None and known[2] > task.seq:  # the database is an older copy
            self.forget([row])
            known = None
        seq, last_part = (0, 0) if known is None else known[2:]
        self._put(row * MOST_PARTS, head_of(task), is_new=known is None)
        place = row * MOST_PARTS + max(last_part, 1)
        found = self.index.execute("SELECT text FROM originals WHERE id = ?", (place,)).fetchone()
        begun = "" if found is None else found[0]
        commits = self._stored(
            "SELECT id, events FROM commits WHERE id > ? AND id <= ? ORDER BY id",
            commit_id(row, seq),
            commit_id(row, task.seq),
        )
        texts: list[str] = []
        for last, events in upto_bytes(commits, lambda commit: len(commit[1]), WRITTEN_AT_ONCE):
            seq = last - commit_id(row, 0)
            texts += texts_of(events)
        written = 0
        for part in parts_of(begun, texts):
            if last_part + written < MOST_PARTS - 2:
                self._put(place + written, fold(part), is_new=written > 0 or not last_part)
                self.index.execute("REPLACE INTO originals (id, text) VALUES (?, ?)", (place + written, part))
                written += 1
        values = (seq, max(last_part, 1) + written - 1, task.updated, task.status, cost_of(task))
        self.index.execute(
            "INSERT INTO tasks (id, instance, task_id, seq, last_part, updated, status, cost)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET seq = excluded.seq,"
            " last_part = excluded.last_part, updated = excluded.updated, status = excluded.status,"
            " cost = excluded.cost",
            (row, *task.key, *values),
        )
        return seq >= task.seq

    def _put(self, place: int, text: str, *, is_new: bool) -> None:
        if is_new:
            self.index.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (place, text))
        else:
            self.index.execute("UPDATE texts SET text = ? WHERE rowid = ? AND text <> ?", (text, place, text))

    def clear(self) -> None:
        """Delete everything."""
        drop = "".join(
            f"DROP TABLE {table};" for table in ("grams", "texts", "originals", "tasks", "unscrubbed")
        )
        self.index.executescript(f"BEGIN IMMEDIATE; {drop} {SCHEMA} COMMIT;")

    def forget(self, rows: Collection[int]) -> None:
        """Delete what is here of tasks: all texts by one statement, as FTS5 writes a segment for each."""
        given = _listed(rows)
        found = self.index.execute(
            "SELECT id, last_part FROM tasks WHERE id IN (SELECT value FROM json_each(?))", given
        )
        texts = _listed(
            [row * MOST_PARTS + part for row, last_part in found for part in range(last_part + 1)]
        )
        self.index.execute("DELETE FROM texts WHERE rowid IN (SELECT value FROM json_each(?))", texts)
        self.index.execute("DELETE FROM originals WHERE id IN (SELECT value FROM json_each(?))", texts)
        self.index.execute("DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(?))", given)
        self.index.execute("INSERT OR IGNORE INTO unscrubbed (id) VALUES (1)")

    def forget_together(self, rows: Collection[int]) -> list[int]:
        """Delete what is here of tasks that are deleted; return the rows that new tasks have taken meanwhile."""
        with transaction(self.index):
            self.forget(rows)
            give_space_back(self.index)
        taken = self._stored(
            "SELECT id FROM tasks WHERE id IN (SELECT value FROM json_each(?))", *_listed(rows)
        )
        return [row for (row,) in taken]

    def _stored(self, statement: str, *values: object) -> Iterator[Any]:
        """Yield rows of the database, whose damage isn't that of the index. Raises StoreUnavailable."""
        try:
            yield from self.database.execute(statement, values)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def find(
        self, instance: str, search: Search, limit: int, cursor: str | None
    ) -> list[tuple[int, str, Excerpt | None]]:
        """Return the rows of the tasks found, when they have changed and where they have the words, the last first.

        Raises BadRequest for a search that takes too long.
        """
        timer = Timer(LONGEST_SEARCH, self.index.interrupt)
        timer.start()
        try:
            statement, values = self.statement(instance, search, limit, cursor)
            found = self.index.execute(statement, values).fetchall()
            return [(row, updated, self._excerpt(row, search.words)) for row, updated in found]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise search_too_long() from None
            raise
        finally:
            timer.cancel()
            timer.join()  # it interrupts nothing that follows

    def _excerpt(self, row: int, words: Iterable[str]) -> Excerpt | None:
        """Return what the last part of a task's messages with one of the words says around it.

        None if none of the last parts has one.
        """
        for word in by_length(words):
            found = self.index.execute(
                "SELECT originals.text FROM (SELECT rowid AS part, text FROM texts WHERE rowid > ? AND rowid < ?"
                "  ORDER BY rowid DESC LIMIT ?) AS newest CROSS JOIN originals ON originals.id = newest.part"
                " WHERE instr(newest.text, ?) ORDER BY newest.part DESC",
                (row * MOST_PARTS, (row + 1) * MOST_PARTS, NEWEST_PARTS, word),
            ).fetchone()
            if found is not None:
                return excerpt_of(found[0], words)
        return None

    def statement(
        self, instance: str, search: Search, limit: int, cursor: str | None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the statement that finds tasks, and its values."""
        asked, since, until = _ASKED, search.since, search.until
        values: list[object] = [instance, *read_place(cursor), since, until, until, search.min_cost]
        if search.status is not None:
            asked += " AND status = ?"
            values.append(search.status)
        for word in search.words:
            asked += _HAS_WORD.format(most=MOST_PARTS)
            values.append(word)
        source, few = "tasks", self._rarest(search.words)
        if few is not None:
            source = (
                f"(SELECT DISTINCT rowid / {MOST_PARTS} AS found FROM texts WHERE texts MATCH ?)"  # noqa: S608
                " CROSS JOIN tasks ON tasks.id = found"
            )
            values.insert(0, few)
        return (
            f"SELECT id, updated FROM {source} WHERE {asked} ORDER BY updated DESC, id DESC LIMIT ?",  # noqa: S608
            (*values, limit),
        )

    def _rarest(self, words: Iterable[str]) -> str | None:
        """Return what finds the places of the rarest word; None if all words have many."""
        found: list[tuple[int, str]] = []
        for word in words:
            match = self._match(word)
            if match is None:
                continue
            ((count,),) = self.index.execute(
                "SELECT count(*) FROM (SELECT 1 FROM texts WHERE texts MATCH ? LIMIT ?)", (match, FEW + 1)
            )
            if count <= FEW:
                found.append((count, match))
        return min(found, default=(0, None))[1]

    def _match(self, word: str) -> str | None:
        """Return the query of FTS5 for the places that may have a word; None if that would be too long."""
        if len(word) >= GRAM:
            return " AND ".join(map(_quoted, grams_of(word)))
        terms = self.index.execute(
            "SELECT term FROM grams WHERE term >= ? AND term < ? LIMIT ?",
            (word, f"{word}\U0010ffff", FEW_GRAMS + 1),
        ).fetchall()
        return " OR ".join(_quoted(term) for (term,) in terms or [("",)]) if len(terms) <= FEW_GRAMS else None

    def scrub(self) -> bool:
        """Rid the file of deleted texts, then of their entries and its unused pages; return whether there is more.

        The texts are gone when this returns, unless another process reads the file; the rest takes several calls.
        """
        if self.index.execute("SELECT 1 FROM unscrubbed").fetchone() is None:
            return False
        end = monotonic() + WORK_SECONDS
        while has_more := self._merge():
            if monotonic() > end:
                break
        ((is_busy, _, _),) = self.index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not is_busy and not has_more:
            self.index.execute("DELETE FROM unscrubbed")
        return has_more

    def _merge(self) -> bool:
        """Merge some of the segments that have deleted entries, as `optimize` does at once; return whether to go on."""
        before = self.index.total_changes
        with transaction(self.index):
            # a negative number has all segments of now merged into one
            begun = self.index.execute("DELETE FROM unscrubbed WHERE id = 1 RETURNING 1").fetchall()
            pages = -MERGED_AT_ONCE if begun else MERGED_AT_ONCE
            self.index.execute("INSERT INTO texts (texts, rank) VALUES ('merge', ?)", (pages,))
            if begun:
                self.index.execute("INSERT OR IGNORE INTO unscrubbed (id) VALUES (2)")
            has_merged = self.index.total_changes - before > 1  # the statement itself counts as one
            has_more = give_space_back(self.index)
        return has_merged or has_more


class SearchIndex:
    """The index of a database, for its store. All methods raise StoreUnavailable for an error of SQLite."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._path = database.path
        self._memory = database.connection if database.path == IN_MEMORY else None
        self._files: Files | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._compared = LAST_ROW  # the first row that was compared
        self._behind = Behind(self._write, self._compare, is_lazy=self._memory is not None)
        self.note = self._behind.note

    async def _write(self, rows: Sequence[int]) -> int:
        return await self._call(lambda files: files.write(rows))

    async def _compare(self) -> tuple[list[int], bool]:
        differing, self._compared = await self._call(lambda files: files.compare(self._compared))
        return differing, self._compared > 0

    async def find(
        self, instance: str, search: Search, *, limit: int, cursor: str | None
    ) -> tuple[list[tuple[int, str, Excerpt | None]], bool]:
        """Return what `Files.find` does, and whether all tasks are searched by now."""
        is_complete = await self._behind.catch_up()
        return await self._call(lambda files: files.find(instance, search, limit, cursor)), is_complete

    async def forget(self, rows: Collection[int]) -> None:
        """Delete what is here of deleted tasks; a new one that has the row of one is written again."""
        left = rows
        try:
            left = await self._call(lambda files: files.forget_together(rows))
        finally:
            for row in left:
                self.note(row)

    async def scrub(self) -> bool:
        """Overwrite what deletions have left in the file (`Store.scrub`); return whether there is more."""
        return await self._call(lambda files: files.scrub())

    async def _call[T](self, work: Callable[[Files], T]) -> T:
        if self._memory is not None:
            return self._on_files(work)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "mail-search")
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._thread, self._on_files, work)

    def _on_files[T](self, work: Callable[[Files], T]) -> T:
        try:
            if self._files is None:
                self._files = Files(self._path, self._memory)
            return work(self._files)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED and self._memory is None:
                self._close()
                remove_damaged(index_of(self._path), error)
                self._loop.call_soon_threadsafe(self._start_again)
            raise unavailable(error) from error

    def _start_again(self) -> None:
        self._compared = LAST_ROW
        self._behind.compare_again()

    def close(self) -> None:
        """Stop writing, and close the file; it may be closed already.

        Garbage collection may call it at any point of a thread, so it may not wait for a lock of all threads, as
        `submit` does.
        """
        self._behind.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        self._close()

    def _close(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close()


def rebuild(path: str) -> int:
    """Make the index of a database again; return the number of its tasks."""
    with closing(Files(path)) as files:
        files.clear()
        before = LAST_ROW
        while before > 0:
            rows, before = files.compare(before)
            while rows:
                rows = rows[files.write(rows, seconds=1.0) :]
        ((count,),) = files.index.execute("SELECT count(*) FROM tasks")
    return int(count)


def index_of(path: str) -> str:
    """Return the file of the index of a database."""
    return f"{os.path.realpath(path)}-search"


def remove_damaged(path: str, error: sqlite3.Error) -> None:
    """Delete an index that can't be read."""
    logger.warning("the search index %s is damaged, and is made again: %s", path, error)
    remove_index(path)


def remove_index(path: str) -> None:
    """Delete an index, which is made again."""
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def _listed(rows: Collection[int]) -> tuple[str]:
    return (to_json(list(rows)).decode(),)


def _quoted(text: Any) -> str:
    """Return a text as a string of FTS5's query language."""
    return '"' + str(text).replace('"', '""') + '"'
