"""Leases and checkpoints of turns on PostgreSQL.

A worker that was taken for dead may still be alive. Its writes have no effect: all writes of a turn check the lease,
which the worker that took over has replaced. They check while they have the lock on the task's row, so that no lease is
replaced between the check and the write.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, LiteralString
from uuid import UUID

from mail.adapters.postgres.pool import Connection, Postgres, Row, transaction
from mail.adapters.postgres.schema import task_number
from mail.adapters.shared.codec import decode_portion
from mail.core.protocol.message import Tier
from mail.core.task.change import InboxEntry, Turn
from mail.core.task.leases import Claim, DueTask, ExpiredLease, Lease, WebhookClaim
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import Busy, Idle
from mail.core.task.stored import (
    read_checkpoint,
    read_message,
    read_park,
    read_task,
    write_checkpoint,
    write_park,
)
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.errors import LeaseLost, MAILError, StoreUnavailable

logger = logging.getLogger(__name__)

NOW: LiteralString = "extract(epoch FROM clock_timestamp())::double precision"
"""The time by the clock of the database, which all servers share. Times in statements are seconds from then."""

LOCK_TASK: LiteralString = "SELECT FROM mail.tasks WHERE id = %(task)s FOR NO KEY UPDATE"

LOCK_TEXTS: LiteralString = "SELECT FROM mail.tasks WHERE id = %(task)s FOR UPDATE"
"""The same, for what deletes texts: it waits for the index for searches, which may be writing them."""

# A lease need not be on disk: if PostgreSQL loses it in a crash, its turn is run again.
LOCK_TASK_LIGHTLY: LiteralString = (
    "SELECT set_config('synchronous_commit', 'off', true) FROM mail.tasks WHERE id = "
    "%(task)s FOR NO KEY UPDATE"
)

PARK_IS_OVER: LiteralString = """
(held.park::json #>> '{park,urgent}')::integer
    < (SELECT count(*) FROM mail.inbox WHERE task = held.task AND mailbox = held.mailbox AND tier <= 3)
"""
"""Whether mail that came later has ended a park; NULL for the lease of a worker, and a park that only time ends."""

_LEASE: LiteralString = f"""
WITH replaced AS (
    SELECT token, expires, park FROM mail.leases
    WHERE task = %(task)s AND mailbox = %(mailbox)s AND token <> %(token)s
)
INSERT INTO mail.leases AS held (task, mailbox, token, expires, owner)
SELECT id, %(mailbox)s, %(token)s, {NOW} + %(expires)s, %(owner)s FROM mail.tasks WHERE id = %(task)s AND
"""

# The condition on the token is for a repeated statement, which finds its own lease.
_UNLESS_HELD: LiteralString = f"""
ON CONFLICT (task, mailbox) DO UPDATE
SET token = excluded.token, expires = excluded.expires, owner = excluded.owner, park = NULL
WHERE held.expires <= {NOW} + %(now)s OR held.token = excluded.token"""

_REPLACED: LiteralString = """
RETURNING (SELECT token FROM replaced), (SELECT expires FROM replaced), (SELECT park FROM replaced)
"""

TAKE_LEASE: LiteralString = f"""{_LEASE} (status = 'running' OR %(is_delivery)s)
    AND EXISTS (SELECT FROM mail.inbox WHERE task = %(task)s AND mailbox = %(mailbox)s)
{_UNLESS_HELD} OR {PARK_IS_OVER} {_REPLACED}"""

# The mail of such a mailbox is in the state of the task, where it is checked after the claim.
CLAIM: LiteralString = f"{_LEASE} (status = 'running' OR delivering) {_UNLESS_HELD} {_REPLACED}"

LOOK_AT_CLAIM: LiteralString = f"""
SELECT tasks.state, lease.token, lease.expires > {NOW} + %(now)s FROM mail.tasks
LEFT JOIN mail.leases AS lease ON lease.task = tasks.id AND lease.mailbox = %(mailbox)s
WHERE tasks.id = %(task)s
"""

LOOK: LiteralString = f"""
SELECT tasks.state, lease.token, lease.expires > {NOW} + %(now)s, head.tier, head.seq, head.message, head.checkpoint,
    ARRAY(
    SELECT mailbox FROM mail.leases WHERE task = %(task)s AND mailbox <> %(mailbox)s AND expires > {NOW} + %(now)s
)
FROM mail.tasks
LEFT JOIN mail.leases AS lease ON lease.task = tasks.id AND lease.mailbox = %(mailbox)s
LEFT JOIN LATERAL (
    SELECT tier, seq, message, checkpoint FROM mail.inbox
    WHERE task = %(task)s AND mailbox = %(mailbox)s ORDER BY tier, seq LIMIT 1
) AS head ON lease.token = %(token)s
WHERE tasks.id = %(task)s
"""

READ_HISTORY: LiteralString = """
SELECT n, history FROM mail.commits WHERE task = %(task)s AND agent = %(mailbox)s AND n > %(known)s
    AND n >= coalesce((
        SELECT (state::json #>> ARRAY['contexts', %(mailbox)s::text, 'cut', 'begin'])::integer FROM mail.tasks
        WHERE id = %(task)s AND state LIKE '%%"contexts":%%'
    ), 0)
    AND EXISTS (SELECT FROM mail.leases WHERE task = %(task)s AND mailbox = %(mailbox)s AND token = %(token)s)
ORDER BY n
"""

SAVE_CHECKPOINT: LiteralString = """
UPDATE mail.inbox SET checkpoint = %(checkpoint)s
WHERE task = %(task)s AND mailbox = %(mailbox)s AND tier = %(tier)s AND seq = %(seq)s
    AND EXISTS (SELECT FROM mail.leases WHERE task = %(task)s AND mailbox = %(mailbox)s AND token = %(token)s)
"""

RELEASE: LiteralString = (
    "DELETE FROM mail.leases WHERE task = %(task)s AND mailbox = %(mailbox)s AND token = %(token)s"
)

LEAVE: LiteralString = """
UPDATE mail.leases SET token = %(left)s, expires = 0, park = %(park)s
WHERE task = %(task)s AND mailbox = %(mailbox)s AND token = %(token)s
"""

# The last condition on the token is for a repeated statement.
PARK: LiteralString = f"""
WITH parked AS (
    UPDATE mail.leases SET token = %(left)s, expires = {NOW} + %(expires)s, owner = NULL, park = %(park)s
    WHERE task = %(task)s AND mailbox = %(mailbox)s AND token IN (%(token)s, %(left)s)
    RETURNING task
), kept AS (
    UPDATE mail.inbox SET checkpoint = coalesce(%(checkpoint)s::text, checkpoint) FROM parked
    WHERE inbox.task = parked.task AND mailbox = %(mailbox)s AND tier = %(tier)s AND seq = %(seq)s
)
UPDATE mail.tasks SET due = least(due, %(until)s) FROM parked WHERE id = parked.task
"""

NEXT_PARK: LiteralString = f"""
(SELECT min(expires) - {NOW} + %(clock)s FROM mail.leases WHERE task = %(task)s AND park IS NOT NULL AND expires > 0)
"""
"""When the first park of a task ends, by this server's clock."""

END_EXPIRED: LiteralString = f"""
UPDATE mail.leases SET expires = 0
WHERE task = %(task)s AND expires > 0 AND expires <= {NOW} + %(now)s
RETURNING mailbox, token, park
"""

SET_DUE: LiteralString = f"""
UPDATE mail.tasks SET due = least(%(deadline)s, {NEXT_PARK}) WHERE id = %(task)s AND version = %(version)s
"""

RENEW: LiteralString = f"""
UPDATE mail.leases SET expires = {NOW} + %(expires)s
FROM unnest(%(tasks)s::uuid[], %(mailboxes)s::text[], %(tokens)s::text[]) AS held (task, mailbox, token)
WHERE leases.task = held.task AND leases.mailbox = held.mailbox AND leases.token = held.token
RETURNING leases.token
"""

LIST_DUE: LiteralString = f"""
SELECT id, state FROM mail.tasks WHERE id IN (
    SELECT id FROM mail.tasks WHERE status = 'running' AND due <= %(until)s
    UNION ALL SELECT id FROM mail.tasks WHERE status <> 'running' AND due <= %(until)s
    UNION ALL SELECT task FROM mail.leases WHERE park IS NULL AND expires > 0 AND expires <= {NOW} + %(now)s
)
"""

LEASES_OF: LiteralString = (
    f"SELECT task, mailbox, token, expires - {NOW}, park FROM mail.leases WHERE task = ANY(%s)"
)


class Leases:
    """Leases mailboxes. All methods raise StoreUnavailable.

    Attributes:
        clock: returns the seconds since the epoch, as this server's clock has them.
        owner: the number of this server, after it has one.
        held: the leases that are used in this process, encoded.
    """

    def __init__(self, postgres: Postgres, clock: Callable[[], float]) -> None:
        self._sql = postgres
        self.clock = clock
        self.owner: int | None = None
        self.held: set[str] = set()

    async def open(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        """Lease a mailbox and read the input of its next turn, in one round trip."""
        values = self._values(key, mailbox, lease, now)
        values |= {"is_delivery": goes_out(mailbox), "known": history_after}

        async def work(connection: Connection, _: bool) -> Turn | Busy | Idle:
            async with transaction(connection):
                await connection.execute(LOCK_TASK_LIGHTLY, values)
                taken = await connection.execute(TAKE_LEASE, values)
                look = await connection.execute(LOOK, values)
                history = await connection.execute(READ_HISTORY, values)
            opened = _read(await look.fetchone(), await history.fetchall(), mailbox, lease)
            replaced = _replaced(await taken.fetchone())
            return replace(opened, replaced=replaced) if replaced and isinstance(opened, Turn) else opened

        return await self._lease(key, mailbox, lease, work)

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Busy | Idle:
        """Lease a mailbox without reading messages, in one round trip."""
        values = self._values(key, mailbox, lease, now)

        async def work(connection: Connection, _: bool) -> WebhookClaim | Busy | Idle:
            async with transaction(connection):
                await connection.execute(LOCK_TASK_LIGHTLY, values)
                taken = await connection.execute(CLAIM, values)
                look = await connection.execute(LOOK_AT_CLAIM, values)
            claim = _read_claim(await look.fetchone(), mailbox, lease)
            replaced = _replaced(await taken.fetchone())
            return replace(claim, replaced=replaced) if isinstance(claim, WebhookClaim) else claim

        return await self._lease(key, mailbox, lease, work)

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        """Store a checkpoint with the message of its turn. Raises LeaseLost."""
        values = {
            "task": task_number(turn.task.key),
            "mailbox": turn.mailbox,
            "token": encode_lease(turn.lease),
            "tier": turn.entry.tier,
            "seq": turn.entry.seq,
            "checkpoint": write_checkpoint(checkpoint),
        }

        if not await self._change_locked(SAVE_CHECKPOINT, values):
            self.held.discard(encode_lease(turn.lease))
            raise LeaseLost

    async def renew(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        """Let leases expire at a time, in one statement; return the tokens of those that are lost."""
        tokens = {encode_lease(turn.lease): turn.lease.token for turn in turns}
        rows = await self._sql.fetch(
            RENEW,
            {
                "expires": self.from_now(expires),
                "tasks": [task_number(turn.task.key) for turn in turns],
                "mailboxes": [turn.mailbox for turn in turns],
                "tokens": [*tokens],
            },
        )
        return set(tokens.values()) - {tokens[token] for (token,) in rows}

    async def list_due(self, until: float) -> list[DueTask]:
        """Return the tasks that are due, or have a lease that has expired; one statement if there are none."""
        rows = await self._sql.fetch(LIST_DUE, {"until": until, "now": self.from_now(until)})
        leases: dict[UUID, dict[str, Lease]] = {number: {} for number, _ in rows}
        if rows:
            clock = self.clock()
            for number, mailbox, token, left, park in await self._sql.fetch(LEASES_OF, ([*leases],)):
                leases[number][mailbox] = decode_lease(token, clock + left, park)
        due = []
        for number, state in rows:
            try:
                due.append(DueTask(read_task(state), leases[number]))
            except MAILError as error:  # which must not stop the sweep
                logger.error("task %s can't be read: %s", number, error)
        return due

    async def release(self, turn: Claim, *, left: Lease | None = None) -> None:
        """Release a lease, if it is still there, and leave another in its place."""
        await self.release_lease(turn.task.key, turn.mailbox, turn.lease, left)

    async def release_lease(
        self, key: TaskKey, mailbox: str, lease: Lease, left: Lease | None = None
    ) -> None:
        """Release a lease whose turn may not be known."""
        token = encode_lease(lease)
        self.held.discard(token)
        values = {"task": task_number(key), "mailbox": mailbox, "token": token}
        if left is None:
            await self._sql.fetch(RELEASE, values)
        else:
            await self._sql.fetch(LEAVE, {**values, "left": encode_lease(left), "park": _write_park(left)})

    async def park(self, turn: Turn, parked: Lease, checkpoint: Checkpoint | None) -> None:
        """Replace the lease of a turn by a park. Raises LeaseLost."""
        token = encode_lease(turn.lease)
        values = {
            "task": task_number(turn.task.key),
            "mailbox": turn.mailbox,
            "token": token,
            "left": encode_lease(parked),
            "expires": self.from_now(parked.expires),
            "until": parked.expires,
            "park": _write_park(parked),
            "tier": turn.entry.tier,
            "seq": turn.entry.seq,
            "checkpoint": None if checkpoint is None else write_checkpoint(checkpoint),
        }
        self.held.discard(token)
        if not await self._change_locked(PARK, values):
            raise LeaseLost

    async def end_expired(self, due: DueTask, *, now: float) -> list[ExpiredLease]:
        """End the leases and parks of a task that have expired, and return them; each to one server only."""
        task = due.task
        values = {
            "task": task_number(task.key),
            "now": self.from_now(now),
            "clock": self.clock(),
            "deadline": task.deadline,
            "version": task.version,
        }

        async def work(connection: Connection, _: bool) -> list[ExpiredLease]:
            async with transaction(connection):
                await connection.execute(LOCK_TASK_LIGHTLY, values)
                ended = await connection.execute(END_EXPIRED, values)
                await connection.execute(SET_DUE, values)
            rows = await ended.fetchall()
            return [
                ExpiredLease(task, mailbox, decode_lease(token, now, park)) for mailbox, token, park in rows
            ]

        return await self._sql.run(work)

    async def _change_locked(self, statement: LiteralString, values: dict[str, Any]) -> int:
        """Execute a statement while the task is locked; return how many rows it has changed."""

        async def work(connection: Connection, _: bool) -> int:
            async with transaction(connection):
                await connection.execute(LOCK_TASK, values)
                changed = await connection.execute(statement, values)
            return changed.rowcount

        return await self._sql.run(work)

    def from_now(self, time: float) -> float:
        """Return a time of this server's clock as seconds from now, which mean the same by any clock."""
        return time - self.clock()

    def _values(self, key: TaskKey, mailbox: str, lease: Lease, now: float) -> dict[str, object]:
        return {
            "task": task_number(key),
            "mailbox": mailbox,
            "token": encode_lease(lease),
            "expires": self.from_now(lease.expires),
            "owner": self.owner,
            "now": self.from_now(now),
        }

    async def _lease[T](
        self,
        key: TaskKey,
        mailbox: str,
        lease: Lease,
        work: Callable[[Connection, bool], Awaitable[T | Busy | Idle]],
    ) -> T | Busy | Idle:
        token = encode_lease(lease)
        self.held.add(token)
        try:
            leased = await self._sql.run(work)
        except BaseException:  # the turn will not be run, so that the lease must not have to expire
            with suppress(StoreUnavailable):
                await self.release_lease(key, mailbox, lease)
            raise
        if isinstance(leased, Busy | Idle):
            self.held.discard(token)
        return leased


def encode_lease(lease: Lease) -> str:
    """Return a lease's value in the column `token`: its token, and the count of attempts unless it is usual."""
    is_usual = lease.attempt == 1 and not lease.seq
    return lease.token if is_usual else f"{lease.token}#{lease.attempt}#{lease.seq}"


def _write_park(lease: Lease) -> str | None:
    """Return the lease's value in the column `park`."""
    return None if lease.park is None else write_park(lease)


def decode_lease(stored: str, expires: float, park: str | None) -> Lease:
    """Return the lease that its columns describe."""
    if park is not None:
        return replace(read_park(park), expires=expires)
    token, attempt, seq = stored.split("#") if "#" in stored else (stored, "1", "0")
    return Lease(token, expires, int(attempt), int(seq))


def _replaced(row: Row | None) -> Lease | None:
    """Return the lease that another one has replaced; None if there was none."""
    return None if row is None or row[0] is None else decode_lease(*row)


def _read_claim(row: Row | None, mailbox: str, lease: Lease) -> WebhookClaim | Busy | Idle:
    if row is None:
        return Idle(None)
    state, token, is_live = row
    if token == encode_lease(lease):
        return WebhookClaim(read_task(state), mailbox, lease)
    if is_live:
        return Busy()
    return Idle(read_task(state))


def _read(row: Row | None, history: list[Row], mailbox: str, lease: Lease) -> Turn | Busy | Idle:
    if row is None:
        return Idle(None)
    state, token, is_live, tier, seq, message, checkpoint, leased = row
    if token == encode_lease(lease) and seq is not None:
        entry = InboxEntry(mailbox, Tier(tier), seq, read_message(message))
        return Turn(
            read_task(state),
            entry,
            lease,
            [decode_portion(n, entries) for n, entries in history],
            None if checkpoint is None else read_checkpoint(checkpoint),
            sum(not goes_out(name) for name in leased),
        )
    if is_live:
        return Busy()
    return Idle(read_task(state))
