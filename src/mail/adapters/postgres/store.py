"""The store on PostgreSQL, which any number of servers share. No state is in a process only.

Opening a turn is one round trip and committing it another, however long the task; a commit may also open the next turn
(`mail.adapters.postgres.ahead`). Each is a transaction that first locks the task's row and then reads, by another
statement, which at READ COMMITTED sees all that was committed before the lock was taken. So the changes of one task
are serial, different tasks don't wait for each other, and no transaction locks more than one task: there are no
deadlocks. Reads need no lock, as a commit is visible as a whole or not at all.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import time
from typing import Any, LiteralString

from psycopg import Rollback

from mail.adapters.postgres.ahead import FRESH_SECONDS, Ahead
from mail.adapters.postgres.commit import (
    ADD_SLICE,
    AMEND_TASK,
    BEGIN_TASK,
    BEGIN_TASK_WITH_RECORDS,
    DELETE_TASK,
    DROP_PAST,
    FIND_MAIL,
    FIND_WRITTEN,
    INHERIT,
    MOVE_TASK,
    MOVE_TASK_WITH_RECORDS,
    commit_values,
    refusal,
)
from mail.adapters.postgres.leases import (
    LOCK_TASK,
    LOCK_TEXTS,
    NOW,
    PARK_IS_OVER,
    Leases,
    decode_lease,
    encode_lease,
)
from mail.adapters.postgres.notifier import Notifier, change_topic, ending_topic
from mail.adapters.postgres.pool import Connection, Postgres, Row, transaction
from mail.adapters.postgres.schema import task_number
from mail.adapters.postgres.search import SearchIndex, page_state
from mail.adapters.shared.codec import decode_events, decode_portion, decoding, read_tasks
from mail.adapters.shared.cursors import make_page, read_cursor
from mail.adapters.shared.search import excerpt_of, make_place
from mail.adapters.shared.snapshots import (
    Waiting,
    check_snapshot,
    check_stored,
    decode_read,
    follow_mail,
    fork_slices,
    message_of,
    take_snapshot,
)
from mail.core.engine.pacing import Pacer, in_slices
from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import Commit, InboxEntry, Inheritance, Snapshot, TaskChange, Turn
from mail.core.task.context import Portion
from mail.core.task.events import Event
from mail.core.task.leases import Lease
from mail.core.task.ports import FIRST, PAGE_BYTES, Busy, CallerUsage, Idle, TaskPage, WakeUp, wake_ups
from mail.core.task.search import Search, Searched
from mail.core.task.stored import read_message, read_task, read_wait, write_wait
from mail.core.task.task import Task, TaskKey, TaskStatus, listings_of
from mail.core.task.waits import Wait
from mail.errors import LeaseLost, StoreUnavailable, TaskNotFound, VersionConflict

LAST_TURN = 2**31 - 1
NO_LIMIT = 2**62
START = (0, 0, "")
"""A position before all mail."""

HERE_SECONDS = 0.25
"""How long the response of a task that runs in this process is waited for before the table is read."""

SCANNED_AT_ONCE = 2_000
"""The events whose commits are read at once, to look for mail that waited."""

COMMITS_PER_SLICE = 256
"""The number of commits whose sizes are added up to find the end of a slice of a timeline."""


class PostgresStore:
    """`mail.core.task.ports.Store` on a database whose tables are there (`mail.adapters.postgres.schema.prepare`).

    Attributes:
        turns: the leases of this process.
        ahead: the turns that its commits open ahead.
    """

    def __init__(self, postgres: Postgres, notifier: Notifier, *, clock: Callable[[], float] = time) -> None:
        self._sql = postgres
        self._notifier = notifier
        self.turns = Leases(postgres, clock)
        self.ahead = Ahead(notifier)
        self.searches = SearchIndex(postgres)
        self._pacer = Pacer()
        turns = self.turns  # they have methods of the port
        self.claim, self.release, self.save_checkpoint = turns.claim, turns.release, turns.save_checkpoint
        self.renew, self.park = turns.renew, turns.park
        self.list_due, self.end_expired = turns.list_due, turns.end_expired

    async def load(self, key: TaskKey) -> Task | None:
        rows = await self._sql.fetch("SELECT state FROM mail.tasks WHERE id = %s", (task_number(key),))
        return read_task(rows[0][0]) if rows else None

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        ahead = self.ahead.begin(key, mailbox)
        if ahead is None:
            return await self.turns.open(key, mailbox, lease, now=now, history_after=history_after)
        turn = ahead.turn
        is_fresh = not ahead.is_stale and lease.expires - turn.lease.expires <= FRESH_SECONDS
        if is_fresh and turn.task.histories.get(mailbox, 0) <= history_after:
            return turn
        held = replace(turn.lease, expires=lease.expires)
        opened = await self.turns.open(key, mailbox, held, now=now, history_after=history_after)
        if isinstance(opened, Turn) and opened.task.lets_open(mailbox):
            return opened
        await self.turns.release_lease(key, mailbox, held)
        return Idle(opened.task) if isinstance(opened, Turn) else opened

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        rows = await self._sql.fetch(
            f"SELECT mailbox, token, expires - {NOW}, park FROM mail.leases WHERE task = %s AND expires > {NOW} + %s",
            (task_number(key), self.turns.from_now(now)),
        )
        clock = self.turns.clock()
        return {mailbox: decode_lease(token, clock + left, park) for mailbox, token, left, park in rows}

    async def commit(self, change: TaskChange) -> None:
        openings = self.ahead.plan(change) if change.inherits is None else []
        values = commit_values(change, openings, owner=self.turns.owner, now=self.turns.clock())

        async def work(connection: Connection, is_retry: bool) -> Row:
            row: Row | None
            if change.inherits is not None:
                row = await self._fork(connection, change, change.inherits, values)
            else:
                if change.expected_version:
                    async with transaction(connection):
                        lock = LOCK_TASK if change.dropped is None else LOCK_TEXTS
                        await connection.execute(lock, values)
                        outcome = await connection.execute(_statement(change), values)
                else:
                    begin = BEGIN_TASK_WITH_RECORDS if change.has_records else BEGIN_TASK
                    outcome = await connection.execute(begin, values)
                row = await outcome.fetchone()
            assert row is not None
            if is_retry and not row[0]:
                return await (await connection.execute(FIND_WRITTEN, values)).fetchone() or row
            return row

        opened: Sequence[str] = ()
        leased: Sequence[str] = ()
        self.turns.held.update(encode_lease(opening.lease) for opening in openings)
        try:
            row = await self._sql.run(work)
            error = refusal(change, row)
            if error is None:
                *_, opened, leased = row
        finally:
            for opening in openings:
                if opening.entry.mailbox not in opened:
                    self.turns.held.discard(encode_lease(opening.lease))
            self.ahead.settle(change, openings, opened, leased)
        if change.turn is not None and (error is None or isinstance(error, LeaseLost)):
            self.turns.held.discard(encode_lease(change.turn.lease))
        if error is not None:
            raise error
        if not change.task.is_running:
            for turn in self.ahead.stop(change.key):
                with suppress(StoreUnavailable):
                    await self.release(turn)
        self._notify(change)

    async def _fork(
        self, connection: Connection, change: TaskChange, inherits: Inheritance, values: dict[str, Any]
    ) -> Row:
        """Begin a fork and copy what it inherits, slice by slice; return the outcome of its first commit.

        `values` become those of the last slice.
        """
        gone = TaskNotFound(f"task {inherits.key.task_id!r} was deleted")

        async def read(seq: int) -> MAILMessage:
            where = {"source": task_number(inherits.key), "sent": seq}
            row = await (await connection.execute(FIND_MAIL, where)).fetchone()
            message = None if row is None else message_of(decode_events(row[0]), seq)
            if message is None:
                raise gone
            return message

        async with connection.transaction() as fork:
            async for part in fork_slices(change, inherits, read, self._pacer):
                values |= commit_values(part, (), owner=self.turns.owner, now=self.turns.clock())
                if part.last_seq < change.task.seq:
                    await connection.execute(ADD_SLICE, values)
                    values.clear()
                    del part  # before the next slice is read
            begin = BEGIN_TASK_WITH_RECORDS if change.has_records else BEGIN_TASK
            outcome = await connection.execute(begin, values)
            row = await outcome.fetchone()
            assert row is not None
            if not row[0]:
                raise Rollback(fork)
            copied = await (await connection.execute(INHERIT, values)).fetchone()
            if copied != (True,):
                raise gone
        return row

    def _notify(self, change: TaskChange) -> None:
        """Hand a commit to who waits for it here, and notify the others."""
        number = task_number(change.key)
        self.searches.note(number)
        self._notifier.notify(change_topic(number), change.task.seq)
        if change.response is not None:
            topic = ending_topic(number)
            is_awaited_here = self._notifier.has_listener(topic)
            self._notifier.notify(topic, (change.ended, change.response), is_urgent=not is_awaited_here)

    async def read_portions(
        self, key: TaskKey, agent: str, *, after: int = 0, upto: int | None = None, at: int | None = None
    ) -> list[Portion]:
        rows = await self._rows(
            key,
            "SELECT n, history FROM mail.commits WHERE task = %s AND agent = %s AND n > %s AND n <= %s ORDER BY n",
            agent,
            after,
            LAST_TURN if upto is None else upto,
        )
        return [decode_portion(n, entries) for n, entries in rows]

    async def put_content(self, key: TaskKey, ref: str, text: str) -> None:
        await self._sql.fetch(
            "INSERT INTO mail.contents (task, ref, content) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING ref",
            (task_number(key), ref, text),
        )

    async def read_content(
        self, key: TaskKey, ref: str, *, offset: int, length: int
    ) -> tuple[str, int] | None:
        rows = await self._sql.fetch(
            "SELECT substr(content, %s, %s), length(content) FROM mail.contents WHERE task = %s AND ref = %s",
            (offset + 1, length, task_number(key), ref),
        )
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    async def put_wait(self, key: TaskKey, wait: Wait, *, instead_of: Wait | None = None) -> bool:
        rows = await self._sql.fetch(
            "INSERT INTO mail.waits (task, id, due, record) VALUES (%s, %s, %s, %s) ON CONFLICT (task, id)"
            " DO UPDATE SET due = excluded.due, record = excluded.record WHERE waits.record = %s RETURNING 1",
            (
                *(task_number(key), wait.id, wait.waits_until, write_wait(wait)),
                None if instead_of is None else write_wait(instead_of),
            ),
        )
        return bool(rows)

    async def read_wait(self, key: TaskKey, wait_id: str) -> Wait | None:
        rows = await self._sql.fetch(
            "SELECT record FROM mail.waits WHERE task = %s AND id = %s", (task_number(key), wait_id)
        )
        return read_wait(rows[0][0]) if rows else None

    async def list_waits(self, key: TaskKey, *, after: tuple[float, str] = FIRST, limit: int) -> list[Wait]:
        rows = await self._sql.fetch(
            "SELECT record FROM mail.waits WHERE task = %s AND due IS NOT NULL AND (due, id) > (%s, %s)"
            " ORDER BY due, id LIMIT %s",
            (task_number(key), *after, limit),
        )
        return [read_wait(record) for (record,) in rows]

    async def find_asks(self, who: str, *, start: str = "", limit: int) -> list[tuple[str, TaskKey]]:
        rows = await self._sql.fetch(
            "SELECT asks.id, instance, task_id FROM mail.asks JOIN mail.tasks ON tasks.id = task"
            " WHERE who = %s AND asks.id >= %s ORDER BY asks.id LIMIT %s",
            (who, start, limit),
        )
        return [(ask_id, TaskKey(instance, task_id)) for ask_id, instance, task_id in rows]

    async def read_commit(self, key: TaskKey, at: int) -> Commit:
        await self._check_snapshot(key, at)
        ((state, events, read),) = await self._rows(
            key,
            "SELECT state, events, read FROM mail.commits WHERE task = %s AND seq >= %s AND state <> '' ORDER BY seq"
            " LIMIT 1",
            at,
        )
        commit = Commit(read_task(state), decode_events(events), decode_read(read))
        if commit.events[0].seq > at:  # its first events may be in other rows
            [first] = await self.read_events(key, limit=1)
            check_stored(first, at)
        return commit

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        await self._check_snapshot(key, at)
        ((state,),) = await self._rows(
            key,
            "SELECT state FROM mail.commits WHERE task = %s AND seq >= %s AND state <> '' ORDER BY seq LIMIT 1",
            at,
        )
        task = read_task(state)
        [first] = await self.read_events(key, limit=1)
        check_stored(first, at)
        waiting: Waiting = {}
        if any(map(sum, task.pending.values())):
            for begin in range(0, task.seq, SCANNED_AT_ONCE):
                commits = await self._sql.fetch(
                    "SELECT delivered, read FROM mail.commits WHERE task = %s AND seq > %s AND seq <= %s ORDER BY seq",
                    (task_number(key), begin, min(begin + SCANNED_AT_ONCE, task.seq)),
                )
                follow_mail(waiting, commits)
        return take_snapshot(task, waiting)

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
            InboxEntry(mailbox, Tier(tier), seq, read_message(message))
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
        found = await in_slices(decoding(events for (events,) in rows), self._pacer)
        return [event for event in found if event.seq > after][:limit]

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        rows = await self._sql.fetch(
            "SELECT response FROM mail.tasks LEFT JOIN mail.commits ON task = id AND ended = %s WHERE id = %s",
            (generation, task_number(key)),
        )
        if not rows:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return None if rows[0][0] is None else read_message(rows[0][0])

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._notifier.subscribe(ending_topic(task_number(key))) as subscription:
            if self.ahead.runs(key):
                await subscription.wait(min(HERE_SECONDS, seconds))
            while True:
                match subscription.news:
                    case (ended, MAILMessage() as answer) if ended == generation:
                        return answer
                response = await self.read_response(key, generation)
                if response is not None or (remaining := end - loop.time()) <= 0:
                    return response
                await subscription.wait(remaining)

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._notifier.subscribe(change_topic(task_number(key))) as subscription:
            seq = await self._seq(key)
            while seq <= after and (remaining := end - loop.time()) > 0:
                await subscription.wait(remaining)
                news, subscription.news = subscription.news, None
                seq = news if isinstance(news, int) and news > after else await self._seq(key)
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
            f"SELECT born, {page_state('born DESC')} FROM mail.tasks WHERE {condition} born < %(cursor)s"
            " AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))"
            " ORDER BY born DESC LIMIT %(limit)s",
            {
                "instance": instance,
                "cursor": read_cursor(cursor),
                "statuses": status and list(listings_of(status)),
                "limit": limit + 1,
                "page_bytes": PAGE_BYTES,
            },
        )
        return await self._page(rows, limit)

    async def search(
        self, instance: str, search: Search, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        rows, is_complete = await self.searches.find(instance, search, limit=limit + 1, cursor=cursor)
        cursors = {born: make_place(updated, born) for born, updated, *_ in rows}
        texts = {cursors[born]: text for born, _, _, text in rows}
        page = await self._page([(born, state) for born, _, state, _ in rows], limit, cursors.__getitem__)
        hits = [texts[place] for place in page.cursors]
        excerpts = await asyncio.to_thread(
            lambda: tuple(None if hit is None else excerpt_of(hit, search.words) for hit in hits)
        )
        return replace(
            page,
            searched=Searched.TEXTS if is_complete else Searched.SOME_TEXTS,
            excerpts=excerpts,
        )

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        rows = await self._sql.fetch(
            f"SELECT born, {page_state('born DESC')} FROM mail.tasks"
            " WHERE dead AND (%(instance)s::text IS NULL OR instance = %(instance)s)"
            " AND born < %(cursor)s ORDER BY born DESC LIMIT %(limit)s",
            {
                "instance": instance,
                "cursor": read_cursor(cursor),
                "limit": limit + 1,
                "page_bytes": PAGE_BYTES,
            },
        )
        return await self._page(rows, limit)

    async def _page(self, rows: Sequence[Row], limit: int, place: Callable[[int], str] = str) -> TaskPage:
        states: list[tuple[int, str]] = [(born, state) for born, state in rows[:limit] if state is not None]
        tasks = [each async for each in read_tasks(states, self._pacer)]
        return make_page(tasks, [born for born, _ in rows], limit, place)

    async def list_ready(self, *, quiet_since: str | None = None, now: float = inf) -> list[WakeUp]:
        rows = await self._sql.fetch(
            f"SELECT state, ARRAY(SELECT mailbox FROM mail.leases AS held WHERE task = id"
            f"  AND expires > {NOW} + %(now)s AND ({PARK_IS_OVER}) IS NOT TRUE)"
            " FROM mail.tasks"
            " WHERE (status = 'running' OR delivering)"
            " AND (%(since)s::text IS NULL OR updated < %(since)s::text) ORDER BY born",
            {"since": quiet_since, "now": self.turns.from_now(now)},
        )
        tasks = read_tasks(((leased, state) for state, leased in rows), self._pacer)
        return [
            wake_up
            async for leased, task in tasks
            for wake_up in wake_ups(task)
            if wake_up.mailbox not in leased
        ]

    async def count_running(self, instance: str, *, upto: int) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(*) FROM (SELECT FROM mail.tasks WHERE instance = %s AND status = 'running' LIMIT %s) AS "
            "counted",
            (instance, upto),
        )
        return int(count)

    async def count_active_instances(self) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(DISTINCT instance) FROM mail.tasks WHERE status = 'running'"
        )
        return int(count)

    async def list_oldest(self, *, limit: int, cursor: str | None = None) -> TaskPage:
        rows = await self._sql.fetch(
            "SELECT born, state FROM mail.tasks WHERE position(':' IN instance) > 0 AND born > %s"
            " ORDER BY born LIMIT %s",
            (0 if cursor is None else read_cursor(cursor), limit + 1),
        )
        return await self._page(rows, limit)

    async def usage_of(self, instance: str) -> CallerUsage:
        ((stored, asleep),) = await self._sql.fetch(
            "SELECT coalesce(sum(bytes), 0), count(*) FILTER (WHERE status = 'asleep') FROM mail.tasks"
            " WHERE instance = %s",
            (instance,),
        )
        return CallerUsage(int(stored), int(asleep))

    async def delete(self, task: Task) -> None:
        values = {"task": task_number(task.key), "expected": task.version}

        async def work(connection: Connection, is_retry: bool) -> Row | None:
            async with transaction(connection):
                await connection.execute(LOCK_TEXTS, values)
                outcome = await connection.execute(DELETE_TASK, values)
            row = await outcome.fetchone()
            assert row is not None
            is_done, state = row
            return None if is_done or (is_retry and state is None) else (state,)

        refused = await self._sql.run(work)
        if refused is not None:
            raise VersionConflict(None if refused[0] is None else read_task(refused[0]))

    async def scrub(self, *, is_quiet: bool) -> bool:
        """Do nothing: PostgreSQL vacuums its tables by itself."""
        return False

    async def _check_snapshot(self, key: TaskKey, at: int) -> None:
        """Raise TaskNotFound or BadRequest unless the task has an event of this seq."""
        present = await self.load(key)
        if present is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        check_snapshot(present, at)

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


def _statement(change: TaskChange) -> LiteralString:
    """Return the statement that writes a change of a task that exists."""
    if change.dropped is not None:
        return DROP_PAST
    if not change.events:
        return AMEND_TASK
    return MOVE_TASK_WITH_RECORDS if change.has_records else MOVE_TASK
