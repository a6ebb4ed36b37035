"""The embedded store: tasks in one SQLite file, owned by one process.

Calls run on the event loop itself: a commit takes some tens of microseconds, less than handing it to a
thread. As nobody else writes tasks, the state and inboxes of the tasks in use are kept in memory as well,
and every write goes through to the file. Leases live in memory only: they die with the process, so that a
restart after a crash waits for nothing.
"""

import sqlite3
from collections import OrderedDict

from pydantic_core import from_json, to_json

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
        try:
            self._sql.execute(
                "INSERT OR REPLACE INTO checkpoints (task, mailbox, seq, checkpoint) VALUES (?, ?, ?, ?)",
                (hot.row, turn.mailbox, turn.entry.seq, checkpoint.model_dump_json()),
            )
        except sqlite3.Error as error:
            self._roll_back(error)
        hot.checkpoints[turn.mailbox, turn.entry.seq] = checkpoint

    async def release(self, turn: Turn) -> None:
        hot = self._find(turn.task.key)
        if hot is not None and hot.leases.get(turn.mailbox) is turn.lease:
            del hot.leases[turn.mailbox]

    async def commit(self, change: TaskChange) -> None:
        hot = self._find(change.key) if change.turn is None else self._held(change.turn)
        if (hot.task.version if hot else 0) != change.expected_version:
            raise VersionConflict(hot and hot.task)
        try:
            row = self._write(change, hot)
        except BaseException as error:
            self._roll_back(error)
            raise
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
        hot = self._get(key)
        if hot.response is not None and hot.task.generation == generation:
            return hot.response
        row = self._sql.execute(
            "SELECT response FROM commits WHERE id > ? AND id < ? AND ended = ? ORDER BY id DESC LIMIT 1",
            (commit_id(hot.row, 0), commit_id(hot.row + 1, 0), generation),
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
            "SELECT id, task_id FROM tasks WHERE instance = ? AND id < ? AND (? IS NULL OR status = ?)"
            " ORDER BY id DESC LIMIT ?",
            (instance, int(cursor or LAST_ROW), status, status, limit + 1),
        ).fetchall()
        tasks = [self._get(TaskKey(instance, task_id)).task for _, task_id in rows[:limit]]
        return TaskPage(tasks, str(rows[limit - 1][0]) if len(rows) > limit else None)

    async def list_ready(self) -> list[Token]:
        rows = self._sql.execute("SELECT instance, task_id FROM tasks WHERE status = 'running' ORDER BY id")
        tasks = [self._get(TaskKey(*key)).task for key in rows.fetchall()]
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

    def _roll_back(self, error: BaseException) -> None:
        """Leave nothing half-written. Raises StoreUnavailable for what SQLite raised."""
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise StoreUnavailable(f"the database refused a write: {error}") from error

    def _find(self, key: TaskKey) -> HotTask | None:
        """The task in memory, read from the file where it isn't there yet; None where there is none."""
        hot = self._hot.get(key)
        if hot is not None:
            self._hot.move_to_end(key)
            return hot
        found = self._sql.execute("SELECT id FROM tasks WHERE instance = ? AND task_id = ?", key).fetchone()
        return None if found is None else self._keep(self._warm(found[0]))

    def _warm(self, row: int) -> HotTask:
        """Read a task as its last commit left it."""
        state, mail = self._sql.execute(
            "SELECT state, mail FROM commits WHERE id < ? ORDER BY id DESC LIMIT 1", (commit_id(row + 1, 0),)
        ).fetchone()
        hot = HotTask(row, Task.model_validate_json(state))
        for mailbox, tier, seq in from_json(mail):
            hot.put(InboxEntry(mailbox, Tier(tier), seq, self._message(row, seq)))
        checkpoints = self._sql.execute(
            "SELECT mailbox, seq, checkpoint FROM checkpoints WHERE task = ?", (row,)
        )
        for mailbox, seq, checkpoint in checkpoints:
            hot.checkpoints[mailbox, seq] = Checkpoint.model_validate_json(checkpoint)
        return hot

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
        if hot.leases.get(turn.mailbox) is not turn.lease:
            raise LeaseLost
        return hot

    def _history(self, row: int, agent: str, after: int) -> list[dict[str, object]]:
        rows = self._sql.execute(
            "SELECT history FROM commits WHERE id > ? AND id < ? AND agent = ? AND n > ? ORDER BY id",
            (commit_id(row, 0), commit_id(row + 1, 0), agent, after),
        )
        return [entry for (entries,) in rows for entry in decode_history(entries)]

    def _write(self, change: TaskChange, hot: HotTask | None) -> int:
        """Write the change; returns the row of its task. The usual turn is one statement, atomic by itself."""
        task = change.task
        finished = None if hot is None else hot.finished_checkpoint(change)
        if (
            hot is not None
            and finished is None
            and task.status is hot.task.status
            and (task.limits is hot.task.limits or task.limits == hot.task.limits)
        ):
            self._insert_commit(hot.row, change, hot)
            return hot.row
        self._sql.execute("BEGIN IMMEDIATE")
        if hot is None:
            (row,) = self._sql.execute(
                "INSERT INTO tasks (instance, task_id, status, deadline) VALUES (?, ?, ?, ?) RETURNING id",
                (*task.key, task.status, task.limits.deadline),
            ).fetchone()
        else:
            row = hot.row
            self._sql.execute(
                "UPDATE tasks SET status = ?, deadline = ? WHERE id = ?",
                (task.status, task.limits.deadline, row),
            )
        if finished is not None:
            self._sql.execute(
                "DELETE FROM checkpoints WHERE task = ? AND mailbox = ? AND seq = ?", (row, *finished)
            )
        self._insert_commit(row, change, hot)
        self._sql.execute("COMMIT")
        return int(row)

    def _insert_commit(self, row: int, change: TaskChange, hot: HotTask | None) -> None:
        new, response = change.history, change.response
        mail = HotTask.mail_after(hot, change)
        self._sql.execute(
            "INSERT INTO commits (id, agent, n, ended, state, mail, events, history, response)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                commit_id(row, change.task.seq),
                new and new.agent,
                new and new.n,
                response and change.task.generation,
                change.task.model_dump_json(),
                to_json([(entry.mailbox, entry.tier, entry.seq) for entry in mail]),
                encode_events(change.events),
                new and encode_history(new.entries),
                response and response.model_dump_json(),
            ),
        )
