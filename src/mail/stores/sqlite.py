"""The embedded store: tasks in one SQLite file, owned by one process.

Calls run on the event loop itself: a commit takes some tens of microseconds, less than handing it to a
thread. As the process is the only one that runs turns, leases live in its memory and die with it, so a
restart after a crash waits for nothing.
"""

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from mail.core.change import InboxEntry, Lease, TaskChange, Turn
from mail.core.events import Event
from mail.core.message import MAILMessage, Tier
from mail.core.ports import Idle, Leased, TaskPage, Token
from mail.core.tasks import Checkpoint, Task, TaskKey, TaskStatus
from mail.errors import BadRequest, LeaseLost, StoreUnavailable, TaskNotFound, VersionConflict
from mail.stores.codec import decode_events, decode_history, encode_events, encode_history
from mail.stores.sqlite_database import SQLiteDatabase

Mailbox = tuple[int, str]


class SQLiteStore:
    """`mail.core.ports.Store` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._sql = database.connection
        self._leases: dict[Mailbox, Lease] = {}
        self._watchers: defaultdict[TaskKey, list[asyncio.Future[int]]] = defaultdict(list)

    async def load(self, key: TaskKey) -> Task | None:
        row = self._row(key)
        return None if row is None else Task.model_validate_json(row[1])

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        row = self._row(key)
        if row is None:
            return Idle(None)
        task_row, state = row
        held = self._leases.get((task_row, mailbox))
        if held is not None and held.expires > now:
            return Leased()
        task = Task.model_validate_json(state)
        if not task.is_running or mailbox not in task.pending:
            return Idle(task)
        tier, seq, message, checkpoint = self._sql.execute(
            "SELECT tier, seq, message, checkpoint FROM inbox WHERE task = ? AND mailbox = ?"
            " ORDER BY tier, seq LIMIT 1",
            (task_row, mailbox),
        ).fetchone()
        history = (
            self._history(task_row, mailbox, history_after)
            if task.histories.get(mailbox, 0) > history_after
            else []
        )
        self._leases[task_row, mailbox] = lease
        return Turn(
            task=task,
            entry=InboxEntry(mailbox, Tier(tier), seq, MAILMessage.model_validate_json(message)),
            lease=lease,
            history=history,
            checkpoint=None if checkpoint is None else Checkpoint.model_validate_json(checkpoint),
        )

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        task_row = self._held(turn)
        with self._transaction():
            self._sql.execute(
                "UPDATE inbox SET checkpoint = ? WHERE task = ? AND mailbox = ? AND tier = ? AND seq = ?",
                (checkpoint.model_dump_json(), task_row, turn.mailbox, turn.entry.tier, turn.entry.seq),
            )

    async def release(self, turn: Turn) -> None:
        task_row = self._task_row(turn.task.key)
        if self._leases.get((task_row, turn.mailbox)) == turn.lease:
            del self._leases[task_row, turn.mailbox]

    async def commit(self, change: TaskChange) -> None:
        task_row = None if change.turn is None else self._held(change.turn)
        state = change.task.model_dump_json()
        with self._transaction():
            task_row = self._write_task(change, state, task_row)
            self._write_mail(change, task_row)
        if change.turn is not None:
            del self._leases[task_row, change.turn.mailbox]
        for watcher in self._watchers.pop(change.key, ()):
            if not watcher.done():
                watcher.set_result(change.task.seq)

    async def read_history(self, key: TaskKey, agent: str) -> list[dict[str, object]]:
        return self._history(self._task_row(key), agent, 0)

    async def read_inbox(self, key: TaskKey) -> list[InboxEntry]:
        rows = self._sql.execute(
            "SELECT mailbox, tier, seq, message FROM inbox WHERE task = ? ORDER BY tier, seq, mailbox",
            (self._task_row(key),),
        )
        return [
            InboxEntry(mailbox, Tier(tier), seq, MAILMessage.model_validate_json(message))
            for mailbox, tier, seq, message in rows
        ]

    async def read_events(self, key: TaskKey, *, after: int = 0) -> list[Event]:
        rows = self._sql.execute(
            "SELECT batch FROM events WHERE task = ? AND last_seq > ? ORDER BY last_seq",
            (self._task_row(key), after),
        )
        return [event for (batch,) in rows for event in decode_events(batch) if event.seq > after]

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        row = self._sql.execute(
            "SELECT message FROM responses WHERE task = ? AND generation = ?",
            (self._task_row(key), generation),
        ).fetchone()
        return None if row is None else MAILMessage.model_validate_json(row[0])

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        row = self._sql.execute(
            "SELECT max(last_seq) FROM events WHERE task = ?", (self._task_row(key),)
        ).fetchone()
        seq = int(row[0] or 0)
        if seq > after:
            return seq
        watcher: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watchers[key].append(watcher)
        try:
            return await asyncio.wait_for(watcher, seconds)
        except TimeoutError:
            return after
        finally:
            waiting = self._watchers.get(key, [])
            if watcher in waiting:
                waiting.remove(watcher)
                if not waiting:
                    del self._watchers[key]

    async def list_tasks(
        self, instance: str, *, status: TaskStatus | None = None, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise BadRequest(f"cursor {cursor!r} is not one that this server gave out")
        rows = self._sql.execute(
            "SELECT id, state FROM tasks WHERE instance = ? AND id < ? AND (? IS NULL OR status = ?)"
            " ORDER BY id DESC LIMIT ?",
            (instance, int(cursor or LAST_ROW), status, status, limit + 1),
        ).fetchall()
        tasks = [Task.model_validate_json(state) for _, state in rows[:limit]]
        return TaskPage(tasks, str(rows[limit - 1][0]) if len(rows) > limit else None)

    async def list_ready(self) -> list[Token]:
        rows = self._sql.execute("SELECT state FROM tasks WHERE status = 'running' ORDER BY id")
        tasks = [Task.model_validate_json(state) for (state,) in rows]
        return [Token(task.key, mailbox, tier) for task in tasks for mailbox, tier in task.ready()]

    async def list_overdue(self, now: float) -> list[TaskKey]:
        rows = self._sql.execute(
            "SELECT instance, task_id FROM tasks WHERE status = 'running' AND deadline <= ?", (now,)
        )
        return [TaskKey(instance, task_id) for instance, task_id in rows]

    async def count_active_instances(self) -> int:
        row = self._sql.execute(
            "SELECT count(DISTINCT instance) FROM tasks WHERE status = 'running'"
        ).fetchone()
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; translates what SQLite raises."""
        try:
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._sql.execute("ROLLBACK")
                raise
            self._sql.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise StoreUnavailable(f"the database refused a write: {error}") from error

    def _row(self, key: TaskKey) -> tuple[int, str] | None:
        row: tuple[int, str] | None = self._sql.execute(
            "SELECT id, state FROM tasks WHERE instance = ? AND task_id = ?", key
        ).fetchone()
        return row

    def _task_row(self, key: TaskKey) -> int:
        row = self._sql.execute("SELECT id FROM tasks WHERE instance = ? AND task_id = ?", key).fetchone()
        if row is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return int(row[0])

    def _held(self, turn: Turn) -> int:
        task_row = self._task_row(turn.task.key)
        if self._leases.get((task_row, turn.mailbox)) != turn.lease:
            raise LeaseLost
        return task_row

    def _history(self, task_row: int, agent: str, after: int) -> list[dict[str, object]]:
        rows = self._sql.execute(
            "SELECT entries FROM history WHERE task = ? AND agent = ? AND n > ? ORDER BY n",
            (task_row, agent, after),
        )
        return [entry for (entries,) in rows for entry in decode_history(entries)]

    def _write_task(self, change: TaskChange, state: str, task_row: int | None) -> int:
        """Write the task's new state if nobody else has; returns its row."""
        task = change.task
        if change.expected_version == 0:
            try:
                inserted = self._sql.execute(
                    "INSERT INTO tasks (instance, task_id, status, deadline, version, state)"
                    " VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
                    (*task.key, task.status, task.limits.deadline, task.version, state),
                ).fetchone()
            except sqlite3.IntegrityError:
                raise VersionConflict(self._current(task.key)) from None
            return int(inserted[0])
        task_row = self._task_row(task.key) if task_row is None else task_row
        updated = self._sql.execute(
            "UPDATE tasks SET version = ?, state = ? WHERE id = ? AND version = ?",
            (task.version, state, task_row, change.expected_version),
        )
        if updated.rowcount == 0:
            raise VersionConflict(self._current(task.key))
        if change.response is not None or change.turn is None:  # only then status or deadline can have moved
            self._sql.execute(
                "UPDATE tasks SET status = ?, deadline = ? WHERE id = ?",
                (task.status, task.limits.deadline, task_row),
            )
        return task_row

    def _write_mail(self, change: TaskChange, task_row: int) -> None:
        if change.consumed is not None:
            gone = change.consumed
            self._sql.execute(
                "DELETE FROM inbox WHERE task = ? AND mailbox = ? AND tier = ? AND seq = ?",
                (task_row, gone.mailbox, gone.tier, gone.seq),
            )
        for entry in change.deliveries:
            self._sql.execute(
                "INSERT INTO inbox (task, mailbox, tier, seq, message) VALUES (?, ?, ?, ?, ?)",
                (task_row, entry.mailbox, entry.tier, entry.seq, entry.message.model_dump_json()),
            )
        for record in change.history:
            self._sql.execute(
                "INSERT INTO history (task, agent, n, entries) VALUES (?, ?, ?, ?)",
                (task_row, record.agent, record.n, encode_history(record.entries)),
            )
        if change.events:
            self._sql.execute(
                "INSERT INTO events (task, last_seq, batch) VALUES (?, ?, ?)",
                (task_row, change.events[-1].seq, encode_events(change.events)),
            )
        if change.response is not None:
            self._sql.execute(
                "INSERT INTO responses (task, generation, message) VALUES (?, ?, ?)",
                (task_row, change.task.generation, change.response.model_dump_json()),
            )

    def _current(self, key: TaskKey) -> Task | None:
        row = self._row(key)
        return None if row is None else Task.model_validate_json(row[1])


LAST_ROW = 2**63 - 1
