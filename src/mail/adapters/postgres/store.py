"""The store on PostgreSQL, which any number of servers share. No state is in a process only.

Opening a turn is one round trip and committing it another, however long the task. Each is a transaction that first
locks the task's row and then reads, by another statement, which at READ COMMITTED sees all that was committed before the
lock was taken. So the changes of one task are serial, different tasks don't wait for each other, and no transaction
locks more than one task: there are no deadlocks. Reads need no lock, as a commit is visible as a whole or not at all.
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import LiteralString

from mail.adapters.postgres.commit import BEGIN_TASK, IS_WRITTEN, MOVE_TASK, commit_values, refusal
from mail.adapters.postgres.leases import LOCK_TASK, Leases, join_history
from mail.adapters.postgres.notifier import Notifier, change_topic, ending_topic
from mail.adapters.postgres.pool import Connection, Postgres, Row, transaction
from mail.adapters.postgres.schema import task_number
from mail.adapters.shared.codec import decode_events, make_page, read_cursor
from mail.adapters.shared.snapshots import check_snapshot, take_snapshot, waits_after
from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import (
    Claim,
    ExpiredLease,
    InboxEntry,
    Lease,
    Snapshot,
    TaskChange,
    Turn,
    WebhookClaim,
)
from mail.core.task.events import Event
from mail.core.task.ports import Idle, Leased, TaskPage, WakeUp, wake_ups
from mail.core.task.stored import read_task
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.errors import LeaseLost, TaskNotFound

LAST_TURN = 2**31 - 1
NO_LIMIT = 2**62
START = (0, 0, "")
"""A position before all mail."""

COMMITS_PER_SLICE = 256
"""The number of commits whose sizes are added up to find the end of a slice of a timeline."""


class PostgresStore:
    """`mail.core.task.ports.Store` on a database whose tables are there (`mail.adapters.postgres.schema.prepare`).

    Attributes:
        turns: the leases of this process.
    """

    def __init__(self, postgres: Postgres, notifier: Notifier) -> None:
        self._sql = postgres
        self._notifier = notifier
        self.turns = Leases(postgres)

    async def load(self, key: TaskKey) -> Task | None:
        rows = await self._sql.fetch("SELECT state FROM mail.tasks WHERE id = %s", (task_number(key),))
        return read_task(rows[0][0]) if rows else None

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        return await self.turns.open(key, mailbox, lease, now=now, history_after=history_after)

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Leased | Idle:
        return await self.turns.claim(key, mailbox, lease, now)

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        await self.turns.save(turn, checkpoint)

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        rows = await self._sql.fetch(
            "SELECT mailbox, token, expires FROM mail.leases WHERE task = %s AND expires > %s",
            (task_number(key), now),
        )
        return {mailbox: Lease(token, expires) for mailbox, token, expires in rows}

    async def renew(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        return await self.turns.renew(turns, expires)

    async def take_expired(self, swarm: str, *, now: float) -> list[ExpiredLease]:
        return await self.turns.take_expired(swarm, now)

    async def release(self, turn: Claim, *, failed: bool = False) -> None:
        await self.turns.release(turn.task.key, turn.mailbox, turn.lease, failed=failed)

    async def commit(self, change: TaskChange) -> None:
        values = commit_values(change)
        statement = MOVE_TASK if change.expected_version else BEGIN_TASK

        async def work(connection: Connection, is_retry: bool) -> Row | None:
            async with transaction(connection):
                await connection.execute(LOCK_TASK, values)
                outcome = await connection.execute(statement, values)
            row = await outcome.fetchone()
            assert row is not None
            if is_retry and not row[0]:
                written = await connection.execute(IS_WRITTEN, values)
                return None if written.rowcount else row
            return row

        row = await self._sql.run(work)
        error = None if row is None else refusal(change, row)
        if change.turn is not None and (error is None or isinstance(error, LeaseLost)):
            self.turns.held.discard(change.turn.lease.token)
        if error is not None:
            raise error
        number = values["task"]
        self._notifier.notify(
            change_topic(number), *((ending_topic(number),) if change.response is not None else ())
        )

    async def read_history(
        self, key: TaskKey, agent: str, *, upto: int | None = None
    ) -> list[dict[str, object]]:
        return join_history(
            await self._rows(
                key,
                "SELECT history FROM mail.commits WHERE task = %s AND agent = %s AND n <= %s ORDER BY n",
                agent,
                LAST_TURN if upto is None else upto,
            )
        )

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        present = await self.load(key)
        if present is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        check_snapshot(present, at)
        ((state,),) = await self._rows(
            key, "SELECT state FROM mail.commits WHERE task = %s AND seq >= %s ORDER BY seq LIMIT 1", at
        )
        task = read_task(state)
        commits = await self._rows(
            key,
            "SELECT delivered, read, events FROM mail.commits WHERE task = %s AND seq <= %s ORDER BY seq",
            task.seq,
        )
        waiting = waits_after((delivered, read) for delivered, read, _ in commits)
        return take_snapshot(
            task, waiting, [event for _, _, events in commits for event in decode_events(events)]
        )

    async def read_inbox(
        self, key: TaskKey, *, after: InboxEntry | None = None, max_bytes: int | None = None
    ) -> list[InboxEntry]:
        position = START if after is None else (after.tier, after.seq, after.mailbox)
        rows = await self._rows(
            key,
            "SELECT mailbox, tier, seq, message FROM ("
            " SELECT *, sum(octet_length(message)) OVER before AS read FROM mail.inbox"
            " WHERE task = %s AND (tier, seq, mailbox) > (%s, %s, %s)"
            " WINDOW before AS (ORDER BY tier, seq, mailbox ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW)"
            ") AS mail WHERE coalesce(read, 0) < %s ORDER BY tier, seq, mailbox",
            *position,
            NO_LIMIT if max_bytes is None else max_bytes,
        )
        return [
            InboxEntry(mailbox, Tier(tier), seq, MAILMessage.model_validate_json(message))
            for mailbox, tier, seq, message in rows
        ]

    async def read_events(
        self, key: TaskKey, *, after: int = 0, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Event]:
        if max_bytes is None:
            rows = await self._rows(
                key,
                "SELECT events FROM mail.commits WHERE task = %s AND seq > %s ORDER BY seq LIMIT %s",
                after,
                limit,
            )
        else:
            rows = await self._rows(
                key,
                "SELECT events FROM (SELECT seq, events, sum(octet_length(events)) OVER before AS read FROM ("
                "  SELECT seq, events FROM mail.commits WHERE task = %s AND seq > %s ORDER BY seq LIMIT %s"
                " ) AS commits WINDOW before AS (ORDER BY seq ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW)"
                ") AS slice WHERE coalesce(read, 0) < %s ORDER BY seq",
                after,
                COMMITS_PER_SLICE if limit is None else min(limit, COMMITS_PER_SLICE),
                max_bytes,
            )
        return [event for (events,) in rows for event in decode_events(events) if event.seq > after][:limit]

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        rows = await self._rows(
            key, "SELECT response FROM mail.commits WHERE task = %s AND ended = %s", generation
        )
        return MAILMessage.model_validate_json(rows[0][0]) if rows else None

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._notifier.subscribe(ending_topic(task_number(key))) as subscription:
            while (response := await self.read_response(key, generation)) is None:
                if (remaining := end - loop.time()) <= 0:
                    break
                await subscription.wait(remaining)
            return response

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._notifier.subscribe(change_topic(task_number(key))) as subscription:
            while (seq := await self._seq(key)) <= after:
                if (remaining := end - loop.time()) <= 0:
                    break
                await subscription.wait(remaining)
            return max(after, seq)

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        condition: LiteralString = "" if instance is None else "instance = %(instance)s AND"
        rows = await self._sql.fetch(
            f"SELECT born, state FROM mail.tasks WHERE {condition} born < %(cursor)s AND (%(status)s::text IS NULL"  # noqa: S608
            " OR status = %(status)s::text) ORDER BY born DESC LIMIT %(limit)s",
            {
                "instance": instance,
                "cursor": read_cursor(cursor),
                "status": status and status.value,
                "limit": limit + 1,
            },
        )
        return _page(rows, limit)

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        rows = await self._sql.fetch(
            "SELECT born, state FROM mail.tasks WHERE dead AND (%(instance)s::text IS NULL OR instance = %(instance)s)"
            " AND born < %(cursor)s ORDER BY born DESC LIMIT %(limit)s",
            {"instance": instance, "cursor": read_cursor(cursor), "limit": limit + 1},
        )
        return _page(rows, limit)

    async def list_ready(self, *, quiet_since: str | None = None, now: float = inf) -> list[WakeUp]:
        rows = await self._sql.fetch(
            "SELECT state, ARRAY(SELECT mailbox FROM mail.leases WHERE task = id AND expires > %(now)s) FROM mail.tasks"
            " WHERE (status = 'running' OR delivering)"
            " AND (%(since)s::text IS NULL OR updated < %(since)s::text) ORDER BY born",
            {"since": quiet_since, "now": now},
        )
        return [
            wake_up
            for state, leased in rows
            for wake_up in wake_ups(read_task(state))
            if wake_up.mailbox not in leased
        ]

    async def list_overdue(self, now: float) -> list[TaskKey]:
        rows = await self._sql.fetch(
            "SELECT instance, task_id FROM mail.tasks WHERE status = 'running' AND due <= %s", (now,)
        )
        return [TaskKey(instance, task_id) for instance, task_id in rows]

    async def count_running(self, instance: str, *, upto: int) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(*) FROM (SELECT FROM mail.tasks WHERE instance = %s AND status = 'running' LIMIT %s) AS counted",
            (instance, upto),
        )
        return int(count)

    async def count_active_instances(self) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(DISTINCT instance) FROM mail.tasks WHERE status = 'running'"
        )
        return int(count)

    async def _seq(self, key: TaskKey) -> int:
        rows = await self._sql.fetch("SELECT seq FROM mail.tasks WHERE id = %s", (task_number(key),))
        if not rows:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return int(rows[0][0])

    async def _rows(self, key: TaskKey, statement: LiteralString, *values: object) -> list[Row]:
        """Return rows that belong to a task. Raises TaskNotFound."""
        number = task_number(key)
        rows = await self._sql.fetch(statement, (number, *values))
        if not rows:
            await self._seq(key)
        return rows


def _page(rows: list[Row], limit: int) -> TaskPage:
    tasks = [read_task(state) for _, state in rows[:limit]]
    return make_page(tasks, [str(born) for born, _ in rows], limit)
