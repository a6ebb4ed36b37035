"""The embedded store: tasks in one SQLite file, owned by one process.

Calls run on the event loop: a commit takes some tens of microseconds, less than handing it to a thread. A thread
writes only large commits (`SQLiteDatabase.in_thread`), and while another process has locked the file, writes wait off
the loop (`SQLiteDatabase.write`). As no other process writes tasks, recently
used tasks are cached with their mail, as far as it is short; every write goes through to the file. Leases are in
memory: they end with the process, so that a restart after a crash waits for nothing. It only knows which turns had
begun (`OpenTurns`).
"""

import asyncio
import logging
import sqlite3
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from pydantic_core import to_json

from mail.adapters.shared.codec import (
    decode_events,
    decode_portion,
    decoding,
    read_tasks,
    upto_bytes,
)
from mail.adapters.shared.cursors import LAST_NUMBER, make_page, read_cursor
from mail.adapters.shared.search import make_place
from mail.adapters.shared.snapshots import (
    Waiting,
    check_snapshot,
    check_stored,
    delivered_by,
    fork_slices,
    message_of,
    take_snapshot,
)
from mail.adapters.shared.waiters import Waiters
from mail.adapters.sqlite.commit import (
    FIRST_SEQ,
    PUT_WAIT,
    REPLACE,
    UNSCRUBBED,
    consumed_by,
    delete_rows,
    delete_tasks,
    ids_of,
    insert_commit,
    wait_row,
    write_change,
)
from mail.adapters.sqlite.database import (
    TURN_LOCK_TIMEOUT,
    FileLocked,
    SQLiteDatabase,
    commit_id,
    give_space_back,
    unavailable,
)
from mail.adapters.sqlite.open_turns import OpenTurns
from mail.adapters.sqlite.search import SearchIndex
from mail.adapters.sqlite.task_cache import CachedTask, IndexColumns, index_columns
from mail.adapters.sqlite.write_ahead_log import WriteAheadLog, empty_log
from mail.core.engine.pacing import PAUSE_SECONDS, Pacer, at_once, in_slices
from mail.core.engine.watch import read_message as read_stored
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import Commit, InboxEntry, Inheritance, Position, Snapshot, TaskChange, Turn
from mail.core.task.context import Portion
from mail.core.task.documents import IN_MEMORY
from mail.core.task.events import Event
from mail.core.task.leases import Claim, DueTask, ExpiredLease, Lease, WebhookClaim, due_of
from mail.core.task.ports import FIRST, PAGE_BYTES, Busy, CallerUsage, Idle, TaskPage, WakeUp, wake_ups
from mail.core.task.search import Search, Searched
from mail.core.task.stored import (
    TaskEncoder,
    read_checkpoint,
    read_message,
    read_park,
    read_task,
    read_wait,
    write_checkpoint,
    write_park,
    write_wait,
)
from mail.core.task.task import Task, TaskKey, TaskStatus, listings_of
from mail.core.task.turn_state import Checkpoint
from mail.core.task.waits import Wait
from mail.errors import LeaseLost, MAILError, StoreError, StoreUnavailable, TaskNotFound, VersionConflict

logger = logging.getLogger(__name__)

CACHED_TASKS = 1_000
"""The number of tasks in memory, besides those in the middle of a turn; the least recently used are evicted first."""

EVICTED_AT_ONCE = 8
"""The number of tasks that are looked at to make room for a new one."""

LARGE_COMMIT = 1024 * 1024
"""The bytes of a commit that a thread writes, after it has waited until the write-ahead log is not being moved."""

CACHED_BYTES = 32 * 1024 * 1024
"""The size of all their texts in memory (`mail.core.task.size`)."""

SCANNED_AT_ONCE = 500
"""The commits that are looked through, without a pause, for mail that waited."""

STATE_BYTES = 2_000
"""About what a commit writes besides the texts that a task counts."""

DELETED_AT_ONCE, DELETED_BYTES = 100, 1024 * 1024
"""Tasks that one write deletes at most, and bytes after which it deletes no further one, so that turns can commit."""

REWRITTEN_AT_ONCE, REWRITTEN_BYTES = 16 * 1024 * 1024, 256 * 1024 * 1024
"""The size of a file that is written again right after a deletion, and that of one which is when no agent takes a turn:
nothing else is written meanwhile, some hundredths of a second, and two seconds."""

LAST_SEQ = 2**31 - 1

COPIED_BYTES, COPIED_ROWS = 256 * 1024, 1_000
"""How much of the histories that a fork inherits is copied at once."""

FORKING = "forking"
"""The status of the row of a fork that is not complete; it belongs to no caller."""

NO_LIMIT = -1


class SQLiteStore:
    """`mail.core.task.ports.Store` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._database = database
        self._sql = database.connection
        self._cache: OrderedDict[TaskKey, CachedTask] = OrderedDict()
        self._cached_bytes = 0
        self._log = WriteAheadLog(database)
        self._open_turns = OpenTurns(database.path)
        self._search = SearchIndex(database)
        self._changes = Waiters()
        self._endings = Waiters()
        self._pacer = Pacer()
        self._doomed: dict[asyncio.Future[None], Task] = {}
        self._deleting: asyncio.Task[None] | None = None
        self._is_scrubbed = self._is_rewritten = False

    def close(self) -> None:
        """Note that the turns which still run have not ended with their process, and close the search index."""
        self._search.close()
        self._open_turns.close(self._cache.values())

    async def load(self, key: TaskKey) -> Task | None:
        cached = await self._load(key)
        return None if cached is None else cached.task

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        cached = self._cache.get(key) or await self._load(key)
        if cached is None:
            return Idle(None)
        if cached.leases and cached.is_leased(mailbox, now):
            return Busy()
        position = cached.head(mailbox)
        if position is None or not cached.task.lets_open(mailbox):
            return Idle(cached.task)
        entry = cached.entry(position) or self._read_entry(cached, position)
        history: list[Portion] = []
        if (n := cached.task.histories.get(mailbox, 0)) > history_after:
            context = cached.task.contexts.get(mailbox)
            after = history_after if context is None else max(history_after, context.cut.begin - 1)
            history = self._portions(cached.row, mailbox, after, n)
        running_turns, replaced = 0, None
        if cached.leases:
            running_turns, replaced = cached.count_leases(now, mailbox), cached.leases.get(mailbox)
        self._open_turns.begin(cached, mailbox, entry.seq, lease, now)
        checkpoint = self._checkpoint(cached, mailbox, entry.seq) if cached.checkpoints else None
        return Turn(cached.task, entry, lease, history, checkpoint, running_turns, replaced=replaced)

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Busy | Idle:
        cached = await self._load(key)
        if cached is None:
            return Idle(None)
        if cached.is_leased(mailbox, now):
            return Busy()
        if cached.task.head_tier(mailbox) is None:
            return Idle(cached.task)
        replaced = cached.leases.get(mailbox)
        self._open_turns.begin(cached, mailbox, 0, lease, now)
        return WebhookClaim(cached.task, mailbox, lease, replaced)

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        def save() -> None:
            cached = self._leased_task(turn)
            self._database.execute(
                "INSERT OR REPLACE INTO checkpoints (task, mailbox, seq, checkpoint) VALUES (?, ?, ?, ?)",
                (cached.row, turn.mailbox, turn.entry.seq, write_checkpoint(checkpoint)),
            )
            before = cached.size
            cached.keep_checkpoint(turn.mailbox, turn.entry.seq, checkpoint)
            self._cached_bytes += cached.size - before
            if self._cached_bytes > CACHED_BYTES:
                self._make_room()

        await self._database.write(save, lock_timeout=TURN_LOCK_TIMEOUT)
        if on_disk:
            await self._log.sync()

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        cached = self._cache.get(key)
        if cached is None:
            leases = self._parks("(SELECT id FROM tasks WHERE instance = ? AND task_id = ?)", key)
        else:
            leases = cached.leases
        return {mailbox: lease for mailbox, lease in leases.items() if lease.expires > now}

    def _parks(self, row: str, values: tuple[object, ...]) -> dict[str, Lease]:
        """Return the parks of the task with a row, as SQL has it; it has no other leases if it is not cached."""
        parks = f"SELECT mailbox, park FROM checkpoints WHERE task = {row} AND park IS NOT NULL"  # noqa: S608
        return {mailbox: read_park(park) for mailbox, park in self._read(parks, values)}

    async def renew(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        return {turn.lease.token for turn in turns if not self._set_expiry(turn, expires)}

    async def park(self, turn: Turn, parked: Lease, checkpoint: Checkpoint | None) -> None:
        def write() -> None:
            cached, seq = self._leased_task(turn), turn.entry.seq
            leases = {**cached.leases, turn.mailbox: parked}
            text = None if checkpoint is None else write_checkpoint(checkpoint)
            self._set_due(
                cached,
                leases,
                "INSERT INTO checkpoints (task, mailbox, seq, checkpoint, park) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE"
                " SET checkpoint = coalesce(excluded.checkpoint, checkpoint), park = excluded.park",
                [(cached.row, turn.mailbox, seq, text, write_park(parked))],
            )
            self._open_turns.end(cached, turn.mailbox)
            cached.leases = leases
            before = cached.size
            if checkpoint is None:
                cached.checkpoints.setdefault((turn.mailbox, seq), None)
            else:
                cached.keep_checkpoint(turn.mailbox, seq, checkpoint)
            self._cached_bytes += cached.size - before

        await self._database.write(write, lock_timeout=TURN_LOCK_TIMEOUT)

    async def end_expired(self, due: DueTask, *, now: float) -> list[ExpiredLease]:
        def write() -> list[ExpiredLease]:
            cached = self._find(due.task.key)
            if cached is None:
                return []
            expired = DueTask(cached.task, cached.leases).expired(now)
            ended = {each.mailbox: replace(each.lease, expires=0.0) for each in expired}
            rows = [
                (write_park(lease), cached.row, mailbox, lease.seq)
                for mailbox, lease in ended.items()
                if lease.park is not None
            ]
            leases = cached.leases | ended
            if rows or cached.columns != index_columns(cached.task, leases.values()):
                park = "UPDATE checkpoints SET park = ? WHERE task = ? AND mailbox = ? AND seq = ?"
                self._set_due(cached, leases, park, rows)
            cached.leases = leases
            return expired

        return await self._database.write(write)

    def _set_due(
        self,
        cached: CachedTask,
        leases: Mapping[str, Lease],
        statement: str = "",
        rows: Sequence[tuple[object, ...]] = (),
    ) -> None:
        """Write parks, and when the task is due with these leases, at once."""
        columns = index_columns(cached.task, leases.values())
        with self._database.transaction() as sql:
            if rows:
                sql.executemany(statement, rows)
            sql.execute("UPDATE tasks SET due = ? WHERE id = ?", (columns[1], cached.row))
        cached.columns = columns

    async def release(self, turn: Claim, *, left: Lease | None = None) -> None:
        cached = self._find(turn.task.key)
        if cached is not None and cached.has_lease(turn):
            self._open_turns.end(cached, turn.mailbox)
            if left is not None:
                self._open_turns.begin(cached, turn.mailbox, left.seq, left, left.since or 0.0)

    async def commit(self, change: TaskChange) -> None:
        if change.inherits is not None:
            await self._commit_fork(change, change.inherits)
            return
        if change.dropped is not None:
            await self._commit_dropping(change)
            return
        known = self._cache.get(change.task.key)
        before = 0 if known is None else known.task.stored_bytes
        is_large = change.task.stored_bytes - before > LARGE_COMMIT and self._database.path != IN_MEMORY
        if not (is_large or self._database.is_waiting):  # what `write` does, for the usual commit
            try:
                self._commit(change)
            except FileLocked:
                pass
            else:
                return
        lock_timeout = None if change.turn is None else TURN_LOCK_TIMEOUT
        if not is_large:
            await self._database.write(partial(self._commit, change), lock_timeout=lock_timeout)
            return
        await self._log.settle()
        await self._database.write_in_turn(partial(self._commit_in_thread, change), lock_timeout=lock_timeout)

    async def _commit_dropping(self, change: TaskChange) -> None:
        """Commit a change that deletes the past of its task, also from the index for searches.

        That comes first: after a crash in between, the index lacks the task, and is written again.
        """
        await self._search.forget([(await self._get(change.key)).row])
        if self._database.path == IN_MEMORY:
            self._commit(change)
        else:
            await self._log.settle()
            await self._database.write_in_turn(partial(self._commit_in_thread, change))
        self._is_scrubbed = False
        with suppress(StoreUnavailable):  # it may have been written meanwhile
            await self._search.forget([(await self._get(change.key)).row])

    async def _commit_fork(self, change: TaskChange, inherits: Inheritance) -> None:
        """Copy what a fork inherits to a row that no caller sees, and then commit it there.

        It is copied in pieces, between which others write. Raises TaskNotFound if the first task is deleted meanwhile.
        """
        source, portions = (await self._get(inherits.key)).row, to_json(inherits.portions).decode()
        ((expected,),) = self._read(
            "SELECT count(*) FROM commits WHERE id > ? AND id < ?"
            " AND n <= (SELECT value FROM json_each(?) WHERE key = agent)",
            (*ids_of(source), portions),
        )
        row = await self._database.write(self._reserve_row)
        try:
            (after, end), copied = ids_of(source), 0
            while upto := self._piece_end(after, end):
                copied += await self._database.write(
                    partial(self._copy, commit_id(row, FIRST_SEQ) + copied, after, upto, portions)
                )
                after = upto
                self._log.add(COPIED_BYTES)
                await asyncio.sleep(PAUSE_SECONDS)
            for (ref,) in self._read("SELECT ref FROM contents WHERE task = ?", (source,)):
                await self._database.write(partial(self._copy_content, source, row, ref))
                await asyncio.sleep(PAUSE_SECONDS)
            if copied != expected or self._row(inherits.key) != source:
                raise TaskNotFound(f"task {inherits.key.task_id!r} was deleted")
            read = partial(read_stored, self, inherits.key)
            async for part in fork_slices(change, inherits, read, self._pacer):
                await self._log.settle()
                is_last = part.last_seq == change.task.seq
                await self._database.write(
                    partial(self._commit if is_last else self._insert_slice, part, row)
                )
        except BaseException:
            with suppress(StoreUnavailable, sqlite3.Error):  # else it is deleted at the next start
                await self._database.write(partial(delete_rows, self._sql, [row]))
                self._is_scrubbed = False
            raise

    def discard_incomplete(self) -> None:
        """Delete the forks that an earlier process has left incomplete."""
        for (row,) in self._read("SELECT id FROM tasks WHERE status = ?", (FORKING,)):
            delete_rows(self._sql, [row])

    def _reserve_row(self) -> int:
        ((row,),) = self._read(
            "INSERT INTO tasks (instance, task_id, status) VALUES ('', hex(randomblob(16)), ?) RETURNING id",
            (FORKING,),
        )
        return int(row)

    def _piece_end(self, after: int, end: int) -> int:
        """Return the last of the next commits whose histories are copied together; 0 if there are none."""
        rows = self._rows(
            "SELECT id, length(history) FROM commits WHERE id > ? AND id < ? AND agent IS NOT NULL ORDER BY id LIMIT ?",
            (after, end, COPIED_ROWS),
        )
        *_, (last, _) = ((0, 0), *upto_bytes(rows, lambda row: row[1], COPIED_BYTES))
        return int(last)

    def _copy(self, before: int, after: int, upto: int, portions: str) -> int:
        """Copy histories of commits to ids behind `before`, up to the last portion of each agent; return how many."""
        copied = self._read(
            "INSERT INTO commits (id, agent, n, state, events, history)"
            " SELECT ? + row_number() OVER (ORDER BY id), agent, n, '', '[]', history FROM commits"
            " WHERE id > ? AND id <= ? AND n <= (SELECT value FROM json_each(?) WHERE key = agent) RETURNING id",
            (before, after, upto, portions),
        )
        return len(copied)

    def _copy_content(self, source: int, row: int, ref: str) -> None:
        self._read(
            "INSERT INTO contents (task, ref, content) SELECT ?, ref, content FROM contents WHERE task = ? AND ref = ?",
            (row, source, ref),
        )

    def _insert_slice(self, part: TaskChange, row: int) -> None:
        with self._database.transaction() as sql:
            insert_commit(sql, row, part, b"")
        self._log.add(len(part.encoded_events))

    def _commit(self, change: TaskChange, reserved: int | None = None) -> None:
        cached, columns = self._target(change)
        encoder = TaskEncoder() if cached is None else cached.encoder
        try:
            row = write_change(self._sql, change, cached, columns, encoder, reserved)
        except BaseException as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise unavailable(error) from error
            raise
        self._apply(change, cached, columns, encoder, row)

    async def _commit_in_thread(self, change: TaskChange) -> None:
        """Commit a change in a thread."""
        cached, columns = self._target(change)
        encoder = TaskEncoder() if cached is None else cached.encoder
        writing = self._database.in_thread(lambda sql: write_change(sql, change, cached, columns, encoder))
        if cached is not None:
            cached.committing = change

        def apply() -> None:
            if cached is not None:
                cached.committing = None
            self._apply(change, cached, columns, encoder, writing.result())

        await _until_done(writing, apply)

    def _target(self, change: TaskChange) -> tuple[CachedTask | None, IndexColumns]:
        """Return the task that a change is for, None for a new one, and what its row says after it.

        Raises LeaseLost and VersionConflict.
        """
        if change.turn is not None:
            cached: CachedTask | None = self._leased_task(change.turn)
        elif change.expected_version == 0:
            cached = self._cache.get(change.key)  # the table refuses a second task of this key
        else:
            cached = self._find(change.key)
        if (cached.task.version if cached else 0) != change.expected_version:
            raise VersionConflict(cached and cached.task)
        return cached, index_columns(change.task, cached.leases.values() if cached else ())

    def _apply(
        self,
        change: TaskChange,
        cached: CachedTask | None,
        columns: IndexColumns,
        encoder: TaskEncoder,
        row: int | None,
    ) -> None:
        """Apply a written change to the task in memory. Raises VersionConflict if the table refused the task."""
        if row is None:
            known = self._find(change.key)
            raise VersionConflict(known and known.task)
        self._search.note(row)
        stored_before = 0 if cached is None else cached.task.stored_bytes
        self._log.add(change.task.stored_bytes - stored_before + STATE_BYTES)
        if cached is None and change.key not in self._cache and change.inherits is None:
            cached = self._remember(CachedTask(row, change.task, encoder))
        if cached is not None:  # else it is a fork, or was read from the file since a thread has written it
            before = cached.size
            cached.apply(change, columns)
            if change.turn is not None:
                self._open_turns.end(cached, change.turn.mailbox)
            self._cached_bytes += cached.size - before
            if self._cached_bytes > CACHED_BYTES:
                self._make_room()
        self._changes.notify(change.task.key)
        if change.response is not None:
            self._endings.notify(change.task.key)

    async def read_portions(
        self, key: TaskKey, agent: str, *, after: int = 0, upto: int | None = None, at: int | None = None
    ) -> list[Portion]:
        return self._portions((await self._get(key)).row, agent, after, upto, at)

    async def put_content(self, key: TaskKey, ref: str, text: str) -> None:
        row = (await self._get(key)).row
        put = "INSERT OR IGNORE INTO contents (task, ref, content) VALUES (?, ?, ?)"
        await self._database.write(lambda: self._database.execute(put, (row, ref, text)))
        self._log.add(len(text))

    async def read_content(
        self, key: TaskKey, ref: str, *, offset: int, length: int
    ) -> tuple[str, int] | None:
        rows = self._read(
            "SELECT substr(content, ?, ?), length(content) FROM contents WHERE task = ? AND ref = ?",
            (offset + 1, length, (await self._get(key)).row, ref),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    async def put_wait(self, key: TaskKey, wait: Wait, *, instead_of: Wait | None = None) -> bool:
        row = (await self._get(key)).row
        put = f"{PUT_WAIT} NOTHING RETURNING 1"
        values: tuple[object, ...] = wait_row(row, wait)
        if instead_of is not None:
            put = f"{PUT_WAIT} {REPLACE} WHERE record = ? RETURNING 1"
            values = (*values, write_wait(instead_of))
        return bool(await self._database.write(lambda: self._database.execute(put, values)))

    async def read_wait(self, key: TaskKey, wait_id: str) -> Wait | None:
        rows = self._read("SELECT record FROM waits WHERE task = ? AND id = ?", (self._row(key), wait_id))
        return read_wait(rows[0][0]) if rows else None

    async def list_waits(self, key: TaskKey, *, after: tuple[float, str] = FIRST, limit: int) -> list[Wait]:
        rows = self._read(
            "SELECT record FROM waits WHERE task = ? AND due IS NOT NULL AND (due, id) > (?, ?)"
            " ORDER BY due, id LIMIT ?",
            ((await self._get(key)).row, *after, limit),
        )
        return [read_wait(record) for (record,) in rows]

    async def find_asks(self, who: str, *, start: str = "", limit: int) -> list[tuple[str, TaskKey]]:
        rows = self._read(
            "SELECT asks.id, instance, task_id FROM asks JOIN tasks ON tasks.id = task"
            " WHERE who = ? AND asks.id >= ? ORDER BY asks.id LIMIT ?",
            (who, start, limit),
        )
        return [(ask_id, TaskKey(instance, task_id)) for ask_id, instance, task_id in rows]

    async def read_commit(self, key: TaskKey, at: int) -> Commit:
        cached = await self._get(key)
        check_snapshot(cached.task, at)
        ((state, events, mailbox, seqs),) = self._read(
            "SELECT state, events, read_mailbox, read_seq FROM commits WHERE id >= ? AND length(state) > 0"
            " ORDER BY id LIMIT 1",
            (commit_id(cached.row, at),),
        )
        commit = Commit(read_task(state), decode_events(events), consumed_by(mailbox, seqs))
        if commit.events[0].seq > at:  # its first events may be in other rows
            [first] = await self._events(cached.row, 0, LAST_SEQ, limit=1)
            check_stored(first, at)
        return commit

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        cached = await self._get(key)
        check_snapshot(cached.task, at)
        ((state,),) = self._read(
            "SELECT state FROM commits WHERE id >= ? AND length(state) > 0 ORDER BY id LIMIT 1",
            (commit_id(cached.row, at),),
        )
        task = read_task(state)
        [first] = await self._events(cached.row, 0, task.seq, limit=1)
        check_stored(first, at)
        return take_snapshot(task, await in_slices(self._waiting(cached.row, task), self._pacer))

    async def read_inbox(
        self, key: TaskKey, *, after: InboxEntry | None = None, max_bytes: int | None = None
    ) -> list[InboxEntry]:
        cached = await self._get(key)
        positions = cached.all_mail()
        if after is not None:
            positions = positions[bisect_right(positions, (after.tier, after.seq, after.mailbox)) :]
        mail = (cached.entry(position) or self._read_entry(cached, position) for position in positions)
        return list(upto_bytes(mail, lambda entry: entry.size, max_bytes))

    async def read_events(
        self, key: TaskKey, *, after: int = 0, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Event]:
        return await self._events((await self._get(key)).row, after, LAST_SEQ, limit, max_bytes)

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        cached = await self._get(key)
        if cached.answer is not None and cached.answer[0] == generation:
            return cached.answer[1]
        if cached.task.is_running and cached.task.generation.number == generation:
            return None
        rows = self._read(
            "SELECT response FROM commits WHERE id > ? AND id < ? AND ended = ? ORDER BY id DESC LIMIT 1",
            (*ids_of(cached.row), generation),
        )
        return read_message(rows[0][0]) if rows else None

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        response = await self.read_response(key, generation)
        if response is not None:
            return response
        await self._endings.wait(key, seconds)
        return await self.read_response(key, generation)

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        if (await self._get(key)).task.seq <= after:
            await self._changes.wait(key, seconds)
        return max(after, (await self._get(key)).task.seq)

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        condition, values = ("", ()) if instance is None else ("instance = ? AND", (instance,))
        rows = self._read(
            f"SELECT id FROM tasks WHERE {condition} status <> '{FORKING}' AND id < ?"  # noqa: S608
            " AND (? IS NULL OR status IN (SELECT value FROM json_each(?))) ORDER BY id DESC LIMIT ?",
            (
                *values,
                read_cursor(cursor),
                status,
                status and to_json(listings_of(status)).decode(),
                limit + 1,
            ),
        )
        return await self._page(rows, limit)

    async def search(
        self, instance: str, search: Search, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        rows, is_complete = await self._search.find(instance, search, limit=limit + 1, cursor=cursor)
        changed = {row: updated for row, updated, _ in rows}
        excerpts = {row: excerpt for row, _, excerpt in rows}
        found = self._tasks([(row,) for row, *_ in rows[:limit]], PAGE_BYTES)
        own = [(row, task) async for row, task in found if task.instance == instance]
        page = make_page(own, list(changed), limit, lambda row: make_place(changed[row], row))
        return replace(
            page,
            searched=Searched.TEXTS if is_complete else Searched.SOME_TEXTS,
            excerpts=tuple(excerpts[row] for row, _ in own),
        )

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        rows = self._read(
            "SELECT id FROM tasks WHERE dead AND (? IS NULL OR instance = ?) AND id < ? ORDER BY id DESC LIMIT ?",
            (instance, instance, read_cursor(cursor), limit + 1),
        )
        return await self._page(rows, limit)

    async def list_ready(self, *, quiet_since: str | None = None, now: float = inf) -> list[WakeUp]:
        rows = self._read("SELECT id FROM tasks WHERE status = 'running' OR delivering ORDER BY id")
        return [
            wake_up
            async for _, task in self._tasks(rows)
            if quiet_since is None or task.updated < quiet_since
            for wake_up in wake_ups(task)
            if task.key not in self._cache or not self._cache[task.key].is_leased(wake_up.mailbox, now)
        ]

    async def list_due(self, until: float) -> list[DueTask]:
        rows = self._read("SELECT instance, task_id FROM tasks WHERE due <= ?", (until,))
        keys = [TaskKey(instance, task_id) for instance, task_id in rows]
        keys += [key for key, cached in self._cache.items() if cached.has_expired(until)]
        due = []
        for key in dict.fromkeys(keys):
            try:
                cached = await self._load(key)
            except MAILError as error:  # which must not stop the sweep
                logger.error("task %s can't be read: %s", key.task_id, error)
                continue
            if cached is not None:
                due.append(DueTask(cached.task, dict(cached.leases)))
        return due

    async def count_running(self, instance: str, *, upto: int) -> int:
        ((count,),) = self._read(
            "SELECT count(*) FROM (SELECT 1 FROM tasks INDEXED BY running_tasks_of_instance"
            " WHERE instance = ? AND status = 'running' LIMIT ?)",
            (instance, upto),
        )
        return int(count)

    async def count_active_instances(self) -> int:
        ((count,),) = self._read("SELECT count(DISTINCT instance) FROM tasks WHERE status = 'running'")
        return int(count)

    async def list_oldest(self, *, limit: int, cursor: str | None = None) -> TaskPage:
        rows = self._read(
            f"SELECT id FROM tasks WHERE instance LIKE '%:%' AND status <> '{FORKING}' AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (0 if cursor is None else read_cursor(cursor), limit + 1),
        )
        return await self._page(rows, limit)

    async def usage_of(self, instance: str) -> CallerUsage:
        ((stopped, asleep),) = self._read(
            "SELECT coalesce(sum(bytes), 0), count(*) FILTER (WHERE status = 'asleep') FROM tasks"
            " WHERE instance = ? AND status <> 'running'",
            (instance,),
        )
        running = self._read("SELECT id FROM tasks WHERE instance = ? AND status = 'running'", (instance,))
        running_bytes = sum([task.stored_bytes async for _, task in self._tasks(running)])
        return CallerUsage(int(stopped) + running_bytes, int(asleep))

    async def delete(self, task: Task) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._doomed[done] = task
        if self._deleting is None or self._deleting.done():
            self._deleting = asyncio.create_task(self._delete_doomed())
        try:
            await done
        finally:
            self._doomed.pop(done, None)

    async def _delete_doomed(self) -> None:
        """Delete the tasks that wait for it, some at a time."""
        await asyncio.sleep(0)  # others ask for it at the same moment
        while self._doomed:
            ended: list[tuple[asyncio.Future[None], StoreError | None]] = []
            try:
                if rows := await self._database.write_in_turn(partial(self._delete_some, ended)):
                    with suppress(StoreUnavailable):  # it finds by itself what is gone
                        await self._search.forget(rows)
                for done, refusal in ended:
                    _resolve(done, refusal)
            except BaseException as error:
                for done in [*self._doomed, *(done for done, _ in ended)]:
                    _resolve(done, error)
                self._doomed.clear()
                if not isinstance(error, Exception):
                    raise

    async def _delete_some(
        self, ended: list[tuple[asyncio.Future[None], StoreError | None]]
    ) -> Collection[int]:
        """Delete some of these tasks in a thread, no more than other writes may wait for; return their rows.

        Who waits for them gets into `ended`, with the refusal if a task has changed.
        """
        some: dict[TaskKey, tuple[Task, asyncio.Future[None]]] = {}
        size = 0
        for done, task in self._doomed.items():
            size += task.stored_bytes + STATE_BYTES
            if some and (size > DELETED_BYTES or len(some) == DELETED_AT_ONCE):
                break
            some[task.key] = task, done  # of two that ask for the same task, the first asks again
        versions = [(*key, task.version) for key, (task, _) in some.items()]

        def forget(deleted: Mapping[TaskKey, int]) -> None:
            """Remove those that are deleted from memory."""
            self._is_scrubbed = False
            self._log.add(size)
            for key, (_, done) in some.items():
                self._doomed.pop(done, None)
                if key not in deleted:
                    cached = self._find(key)
                    ended.append((done, VersionConflict(cached and cached.task)))
                    continue
                if (cached := self._cache.pop(key, None)) is not None:
                    for mailbox in list(cached.leases):
                        self._open_turns.end(cached, mailbox)
                    self._cached_bytes -= cached.size
                self._changes.notify(key)
                ended.append((done, None))

        if self._database.path == IN_MEMORY:
            deleted = delete_tasks(self._sql, versions)
            forget(deleted)
            return deleted.values()
        if size > LARGE_COMMIT:
            await self._log.settle()
        deleting = self._database.in_thread(partial(delete_tasks, tasks=versions))
        await _until_done(deleting, lambda: forget(deleting.result()))
        return deleting.result().values()

    async def scrub(self, *, is_quiet: bool) -> bool:
        """Overwrite what deletions have left: in the log, in unused pages, and in unused parts of pages.

        The last has only copies that SQLite has made when it moved rows to another page; for these the file must be
        written again as a whole.
        """
        has_more = False
        if self._database.path == IN_MEMORY:
            return has_more
        with suppress(StoreUnavailable):  # another process has locked the file; it is tried again
            if not (self._is_scrubbed and self._is_rewritten):
                has_more = await self._scrub(is_quiet=is_quiet)
        with suppress(StoreUnavailable):
            has_more |= await self._search.scrub()
        return has_more

    async def _scrub(self, *, is_quiet: bool) -> bool:
        """Do the next of it in the database; return whether there is more."""
        self._is_rewritten = not self._read("SELECT 1 FROM settings WHERE name = ?", (UNSCRUBBED,))
        ((size,),) = self._read(
            "SELECT (page_count - freelist_count) * page_size"
            " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        )
        rewrites = not self._is_rewritten and size <= (REWRITTEN_BYTES if is_quiet else REWRITTEN_AT_ONCE)
        has_more = False
        if not self._is_scrubbed and not rewrites:
            shorten = partial(self._database.in_thread, give_space_back)
            has_more = await self._database.write_in_turn(shorten)
        if rewrites or not self._is_scrubbed:
            await self._database.write_in_turn(
                partial(self._database.in_thread, _rewrite if rewrites else empty_log)
            )
            self._is_scrubbed, self._is_rewritten = not has_more, self._is_rewritten or rewrites
        return has_more

    async def _page(self, rows: list[tuple[Any, ...]], limit: int) -> TaskPage:
        tasks = [each async for each in self._tasks(rows[:limit], PAGE_BYTES)]
        return make_page(tasks, [row for (row,) in rows], limit)

    def _tasks(
        self, rows: list[tuple[Any, ...]], max_bytes: int | None = None
    ) -> AsyncGenerator[tuple[int, Task]]:
        """Yield the tasks of rows, without those that are deleted meanwhile."""
        states = ((row, state) for (row,) in rows for (state,) in self._newest_state(row))
        return read_tasks(states, self._pacer, max_bytes=max_bytes)

    def _find(self, key: TaskKey) -> CachedTask | None:
        """Return a task from the cache or the file; None if there is none."""
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        row = self._row(key)
        return None if row is None else self._admit(at_once(self._read_task(row)))

    async def _load(self, key: TaskKey) -> CachedTask | None:
        """Return a task as `_find` does, but let others work during a long search for its mail."""
        row = None if key in self._cache else self._row(key)
        if row is not None:
            before = self._newest_state(row)
            read = await in_slices(self._read_task(row), self._pacer)
            if key not in self._cache and self._newest_state(row) == before:
                return self._admit(read)
        return self._find(key)

    def _row(self, key: TaskKey) -> int | None:
        found = self._read("SELECT id FROM tasks WHERE instance = ? AND task_id = ?", key)
        return found[0][0] if found else None

    def _read_task(self, row: int) -> Generator[None, None, CachedTask]:
        """Read a task from the file, with its mail, checkpoints and parks, in slices."""
        ((state,),) = self._newest_state(row)
        cached = CachedTask(row, read_task(state), TaskEncoder())
        waiting = yield from self._waiting(row, cached.task)
        for (mailbox, seq), tier in waiting.items():
            cached.place((tier, seq, mailbox))
        for mailbox, seq in self._read("SELECT mailbox, seq FROM checkpoints WHERE task = ?", (row,)):
            cached.checkpoints[mailbox, seq] = None
        cached.leases.update(self._parks("?", (row,)))
        return cached

    def _admit(self, read: CachedTask) -> CachedTask:
        """Cache a task that was read."""
        if read.leases:
            read.columns = index_columns(read.task, read.leases.values())
            ((due,),) = self._read("SELECT due FROM tasks WHERE id = ?", (read.row,))
            if due != due_of(read.task, read.leases.values()):
                # a park that mail had ended counts again: its turn had not begun
                with suppress(StoreUnavailable):
                    self._set_due(read, read.leases)
        self._open_turns.restore(read)
        return self._remember(read)

    def _read_entry(self, cached: CachedTask, position: Position) -> InboxEntry:
        """Return a waiting message whose text is in the file only."""
        tier, seq, mailbox = position
        return InboxEntry(mailbox, tier, seq, self._message(cached.row, seq))

    def _checkpoint(self, cached: CachedTask, mailbox: str, seq: int) -> Checkpoint | None:
        """Return the checkpoint of a turn; None if it has none."""
        if (mailbox, seq) not in cached.checkpoints:
            return None
        kept = cached.checkpoints[mailbox, seq]
        if kept is not None:
            return kept
        ((text,),) = self._read(
            "SELECT checkpoint FROM checkpoints WHERE task = ? AND mailbox = ? AND seq = ?",
            (cached.row, mailbox, seq),
        )
        return None if text is None else read_checkpoint(text)

    def _waiting(self, row: int, task: Task) -> Generator[None, None, Waiting]:
        """Find the mail that waited when a task was in this state: from its last commit back, in slices."""
        waiting: Waiting = {}
        expected = sum(map(sum, task.pending.values()))
        begin, end = commit_id(row, FIRST_SEQ), commit_id(row, task.seq + 1)
        consumed: set[tuple[str, int]] = set()
        while len(waiting) < expected:
            commits = self._rows(
                "SELECT id, delivered, read_mailbox, read_seq FROM commits WHERE id > ? AND id < ?"
                " ORDER BY id DESC LIMIT ?",
                (begin, end, SCANNED_AT_ONCE),
            )
            before = end
            for commit in commits:
                end, delivered, mailbox, seqs = commit
                consumed.update(consumed_by(mailbox, seqs))
                for position, tier in delivered_by(delivered).items():
                    if position not in consumed:
                        waiting.setdefault(position, tier)
                if len(waiting) == expected:
                    return waiting
            if end == before:
                break
            yield
        return waiting

    async def _events(
        self, row: int, after: int, upto: int, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Event]:
        """Return the first events after `after`, up to the commit whose last event is `upto` (`Store.read_events`)."""
        rows = self._rows(
            "SELECT events FROM commits WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            (commit_id(row, after), commit_id(row, upto), NO_LIMIT if limit is None else limit),
        )
        texts = [events for (events,) in upto_bytes(rows, lambda found: len(found[0]), max_bytes)]
        found = await in_slices(decoding(texts), self._pacer)
        return [event for event in found if event.seq > after][:limit]

    def _newest_state(self, row: int) -> list[tuple[Any, ...]]:
        """Return the state of a task after its last commit, in a row; nothing if it has none."""
        return self._read(
            "SELECT state FROM commits WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1", ids_of(row)
        )

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._database.execute(query, values)

    def _rows(self, query: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, reading each when it is wanted. Raises StoreUnavailable."""
        try:
            yield from self._sql.execute(query, values)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def _message(self, row: int, seq: int) -> MAILMessage:
        """Return the message that was sent with the event `seq`."""
        ((events,),) = self._read(
            "SELECT events FROM commits WHERE id >= ? ORDER BY id LIMIT 1", (commit_id(row, seq),)
        )
        message = message_of(decode_events(events), seq)
        assert message is not None
        return message

    def _remember(self, cached: CachedTask) -> CachedTask:
        self._cache[cached.task.key] = cached
        self._cached_bytes += cached.size
        excess = min(len(self._cache) - CACHED_TASKS, EVICTED_AT_ONCE)
        for key in list(islice(self._cache, max(0, excess))):
            if self._cache[key].is_in_use:
                self._cache.move_to_end(key)  # thousands may be leased, and are not to be looked at each time
            else:
                self._cached_bytes -= self._cache.pop(key).size
        if self._cached_bytes > CACHED_BYTES:
            self._make_room()
        return cached

    def _make_room(self) -> None:
        """Drop the texts of the least recently used tasks, and tasks with long calls, as the cache is too large."""
        newest = next(reversed(self._cache), None)  # somebody is about to use it
        for key, cached in list(self._cache.items()):
            self._cached_bytes -= cached.size
            cached.forget()
            if cached.size and key != newest and not cached.is_in_use:
                del self._cache[key]
            else:
                self._cached_bytes += cached.size
            if self._cached_bytes <= CACHED_BYTES * 3 // 4:  # so that commits rarely look for texts to drop
                break

    async def _get(self, key: TaskKey) -> CachedTask:
        cached = await self._load(key)
        if cached is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return cached

    def _leased_task(self, turn: Claim) -> CachedTask:
        key = turn.task.key
        cached = self._find(key)
        if cached is None or not cached.has_lease(turn):
            raise LeaseLost
        return cached

    def _set_expiry(self, turn: Claim, expires: float) -> bool:
        """Let a turn's lease expire at a time; return whether the turn has it."""
        cached = self._find(turn.task.key)
        if cached is None or not cached.has_lease(turn):
            return False
        cached.leases[turn.mailbox] = replace(turn.lease, expires=expires)
        return True

    def _portions(
        self, row: int, agent: str, after: int, upto: int | None = None, at: int | None = None
    ) -> list[Portion]:
        """Return portions of a history (`Store.read_portions`), looking no further back than to the first of them."""
        begin, end = ids_of(row)
        rows = self._read(
            "SELECT n, history FROM commits WHERE id > ? AND id < ? AND agent = ? AND n > ? AND n <= ?"
            " ORDER BY id DESC LIMIT ?",
            (
                begin,
                end if at is None else commit_id(row, at + 1),
                agent,
                after,
                LAST_NUMBER if upto is None else upto,
                NO_LIMIT if upto is None else upto - after,
            ),
        )
        return [decode_portion(n, entries) for n, entries in reversed(rows)]


async def _until_done(writing: asyncio.Future[Any], apply: Callable[[], None]) -> None:
    """Wait for what a thread writes, then apply it. A caller that is cancelled meanwhile is cancelled after that."""
    cancelled: asyncio.CancelledError | None = None
    while not writing.done():
        try:
            await asyncio.wait([writing])
        except asyncio.CancelledError as error:
            cancelled = error
    try:
        apply()
    finally:
        if cancelled is not None:
            raise cancelled


def _rewrite(sql: sqlite3.Connection) -> None:
    """Write the file again, without anything that is deleted."""
    sql.execute("VACUUM")
    sql.execute("DELETE FROM settings WHERE name = ?", (UNSCRUBBED,))
    empty_log(sql)


def _resolve(done: asyncio.Future[None], error: BaseException | None = None) -> None:
    """End a wait, unless who waited has gone."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
