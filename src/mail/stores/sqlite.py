"""The embedded store: tasks in one SQLite file, owned by one process.

Calls run on the event loop itself: a commit takes some tens of microseconds, less than handing it to a
thread. As nobody else writes tasks, the state and inboxes of the tasks in use are kept in memory as well,
and every write goes through to the file. Leases live in memory only: they die with the process, so that a
restart after a crash waits for nothing.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from mail.core.change import InboxEntry, Lease, TaskChange, Turn
from mail.core.events import Event
from mail.core.message import MAILMessage, Tier
from mail.core.ports import Idle, Leased, TaskPage, Token
from mail.core.tasks import Checkpoint, Task, TaskKey, TaskStatus
from mail.errors import BadRequest, LeaseLost, StoreUnavailable, TaskNotFound, VersionConflict
from mail.stores.announcements import Announcements
from mail.stores.codec import decode_events, decode_history, encode_events, encode_history
from mail.stores.hot_task import HotTask
from mail.stores.sqlite_database import SQLiteDatabase, commit_id

HOT_TASKS = 1_000
"""How many tasks are kept in memory besides those in the middle of a turn; the least recently used go first."""

LAST_ROW = 2**63 - 1


class SQLiteStore:
    """`mail.core.ports.Store` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._sql = database.connection
        self._hot: OrderedDict[TaskKey, HotTask] = OrderedDict()
        self._changes = Announcements()
        self._endings = Announcements()

    async def load(self, key: TaskKey) -> Task | None:
        hot = self._find(key)
        return None if hot is None else hot.task

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        hot = self._find(key)
        if hot is None:
            return Idle(None)
        if hot.is_leased(mailbox, now):
            return Leased()
        entry = hot.head(mailbox)
        if entry is None or not hot.task.is_running:
            return Idle(hot.task)
        history = (
            self._history(hot.row, mailbox, history_after)
            if hot.task.histories.get(mailbox, 0) > history_after
            else []
        )
        hot.leases[mailbox] = lease
        return Turn(hot.task, entry, lease, history, hot.checkpoints.get((mailbox, entry.seq)))

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        hot = self._held(turn)
        with self._transaction():
            self._sql.execute(
                "UPDATE inbox SET checkpoint = ? WHERE task = ? AND mailbox = ? AND tier = ? AND seq = ?",
                (checkpoint.model_dump_json(), hot.row, turn.mailbox, turn.entry.tier, turn.entry.seq),
            )
        hot.checkpoints[turn.mailbox, turn.entry.seq] = checkpoint

    async def release(self, turn: Turn) -> None:
        hot = self._find(turn.task.key)
        if hot is not None and hot.leases.get(turn.mailbox) == turn.lease:
            del hot.leases[turn.mailbox]

    async def commit(self, change: TaskChange) -> None:
        hot = self._find(change.key) if change.turn is None else self._held(change.turn)
        if (hot.task.version if hot else 0) != change.expected_version:
            raise VersionConflict(hot and hot.task)
        with self._transaction():
            row = self._write_task(change, hot)
            self._write_mail(change, row)
        if hot is None:
            hot = self._keep(HotTask(row, change.task))
        hot.apply(change)
        self._changes.announce(change.key)
        if change.response is not None:
            self._endings.announce(change.key)

    async def read_history(self, key: TaskKey, agent: str) -> list[dict[str, object]]:
        return self._history(self._get(key).row, agent, 0)

    async def read_inbox(self, key: TaskKey) -> list[InboxEntry]:
        return self._get(key).all_mail()

    async def read_events(self, key: TaskKey, *, after: int = 0) -> list[Event]:
        row = self._get(key).row
        rows = self._sql.execute(
            "SELECT events FROM commits WHERE id > ? AND id < ? ORDER BY id",
            (commit_id(row, after), commit_id(row + 1, 0)),
        )
        return [event for (events,) in rows for event in decode_events(events) if event.seq > after]

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        row = self._sql.execute(
            "SELECT message FROM responses WHERE task = ? AND generation = ?",
            (self._get(key).row, generation),
        ).fetchone()
        return None if row is None else MAILMessage.model_validate_json(row[0])

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        task = self._get(key).task
        if task.is_running and task.generation == generation:
            await self._endings.wait(key, seconds)
        return await self.read_response(key, generation)

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        if self._get(key).task.seq <= after:
            await self._changes.wait(key, seconds)
        return max(after, self._get(key).task.seq)

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
            yield
            self._sql.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database refused a write: {error}") from error
        finally:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")

    def _find(self, key: TaskKey) -> HotTask | None:
        """The task in memory, read from the file where it isn't there yet; None where there is none."""
        hot = self._hot.get(key)
        if hot is not None:
            self._hot.move_to_end(key)
            return hot
        found = self._sql.execute(
            "SELECT id, state FROM tasks WHERE instance = ? AND task_id = ?", key
        ).fetchone()
        if found is None:
            return None
        hot = HotTask(found[0], Task.model_validate_json(found[1]))
        mail = self._sql.execute(
            "SELECT mailbox, tier, seq, checkpoint FROM inbox WHERE task = ?", (hot.row,)
        )
        for mailbox, tier, seq, checkpoint in mail.fetchall():
            hot.put(InboxEntry(mailbox, Tier(tier), seq, self._message(hot.row, seq)))
            if checkpoint is not None:
                hot.checkpoints[mailbox, seq] = Checkpoint.model_validate_json(checkpoint)
        return self._keep(hot)

    def _message(self, row: int, seq: int) -> MAILMessage:
        """The message that was sent with the event `seq`."""
        (events,) = self._sql.execute(
            "SELECT events FROM commits WHERE id >= ? ORDER BY id LIMIT 1", (commit_id(row, seq),)
        ).fetchone()
        message = next(event.message for event in decode_events(events) if event.seq == seq)
        assert message is not None
        return message

    def _keep(self, hot: HotTask) -> HotTask:
        self._hot[hot.task.key] = hot
        if len(self._hot) > HOT_TASKS:
            oldest = next(iter(self._hot))
            if self._hot[oldest].leases:
                self._hot.move_to_end(oldest)
            else:
                del self._hot[oldest]
        return hot

    def _get(self, key: TaskKey) -> HotTask:
        hot = self._find(key)
        if hot is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return hot

    def _held(self, turn: Turn) -> HotTask:
        hot = self._get(turn.task.key)
        if hot.leases.get(turn.mailbox) != turn.lease:
            raise LeaseLost
        return hot

    def _history(self, row: int, agent: str, after: int) -> list[dict[str, object]]:
        rows = self._sql.execute(
            "SELECT history FROM commits WHERE id > ? AND id < ? AND agent = ? AND n > ? ORDER BY id",
            (commit_id(row, 0), commit_id(row + 1, 0), agent, after),
        )
        return [entry for (entries,) in rows for entry in decode_history(entries)]

    def _write_task(self, change: TaskChange, hot: HotTask | None) -> int:
        """Write the task's new state; returns its row."""
        task = change.task
        state = task.model_dump_json()
        if hot is None:
            inserted = self._sql.execute(
                "INSERT INTO tasks (instance, task_id, status, deadline, version, state)"
                " VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
                (*task.key, task.status, task.limits.deadline, task.version, state),
            ).fetchone()
            return int(inserted[0])
        if task.status is hot.task.status and task.limits == hot.task.limits:
            self._sql.execute(
                "UPDATE tasks SET version = ?, state = ? WHERE id = ?", (task.version, state, hot.row)
            )
        else:
            self._sql.execute(
                "UPDATE tasks SET version = ?, state = ?, status = ?, deadline = ? WHERE id = ?",
                (task.version, state, task.status, task.limits.deadline, hot.row),
            )
        return hot.row

    def _write_mail(self, change: TaskChange, row: int) -> None:
        sql = self._sql.execute
        if change.consumed is not None:
            gone = change.consumed
            sql(
                "DELETE FROM inbox WHERE task = ? AND mailbox = ? AND tier = ? AND seq = ?",
                (row, gone.mailbox, gone.tier, gone.seq),
            )
        for entry in change.deliveries:
            sql(
                "INSERT INTO inbox (task, mailbox, tier, seq) VALUES (?, ?, ?, ?)",
                (row, entry.mailbox, entry.tier, entry.seq),
            )
        new = change.history
        sql(
            "INSERT INTO commits (id, agent, n, events, history) VALUES (?, ?, ?, ?, ?)",
            (
                commit_id(row, change.task.seq),
                new and new.agent,
                new and new.n,
                encode_events(change.events),
                new and encode_history(new.entries),
            ),
        )
        if change.response is not None:
            sql(
                "INSERT INTO responses (task, generation, message) VALUES (?, ?, ?)",
                (row, change.task.generation, change.response.model_dump_json()),
            )
