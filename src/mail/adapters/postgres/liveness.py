"""Which servers share a database, and what becomes of the work of one that is gone.

Each server holds an advisory lock, under its number, on the connection that listens for news: with the process ends the
connection, and with that the lock. The others look for servers without one. Leases expire by themselves as well, but a
lease outlives the longest turn, which is a quarter of an hour; this takes seconds. Whoever is taken for dead and isn't, as
its connection broke, finds that its leases are somebody else's, and throws its turns away.
"""

import asyncio
import logging
from typing import LiteralString

from mail.adapters.postgres.leases import Leases
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.shared.backend import Recover

LIVENESS_SECONDS = 2.0
"""Seconds between two checks for servers that are gone. A server counts as gone at the second check that misses it."""

SWEEP_SECONDS = 60.0
"""Seconds between two sweeps, each of which wakes the mailboxes of tasks that have been quiet for as long."""

LOCKS = 0x6D61696C
"""The class of the advisory locks that servers hold."""

# Shared: after a break PostgreSQL may still think that the old connection is there, which holds the same lock.
_HOLD: LiteralString = "SELECT pg_advisory_lock_shared(%s, %s)"

_ENROL: LiteralString = "INSERT INTO mail.servers DEFAULT VALUES RETURNING id"

_ENROL_AGAIN: LiteralString = "INSERT INTO mail.servers (id) VALUES (%s) ON CONFLICT (id) DO NOTHING"

_MISSING: LiteralString = """
SELECT id FROM mail.servers WHERE id <> %s AND NOT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = %s AND objid::bigint = servers.id
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""

_BURY: LiteralString = """
WITH dead AS (DELETE FROM mail.servers WHERE id = ANY(%s) RETURNING id),
    freed AS (UPDATE mail.leases SET expires = 0 FROM dead WHERE owner = dead.id)
SELECT id FROM dead
"""

_OWN_LEASES: LiteralString = "SELECT token FROM mail.leases WHERE owner = %s"

_FREE: LiteralString = "DELETE FROM mail.leases WHERE owner = %s AND token = ANY(%s) RETURNING token"

logger = logging.getLogger(__name__)


class Liveness:
    """The part of one server. It enrols when the bell connects, each time anew."""

    def __init__(self, postgres: Postgres, notifier: Notifier, turns: Leases) -> None:
        self._sql = postgres
        self._turns = turns
        self._missing: set[int] = set()
        notifier.at_connect.append(self._enrol)

    async def call(self, *, patient: bool = True) -> bool:
        """Free the leases that nobody works under any more; returns whether there were any, or tokens may be lost.

        A server counts as gone that was missing at the last call, too, unless nobody is `patient`. Raises StoreUnavailable.
        """
        rows = await self._sql.fetch(_MISSING, (self._turns.owner, LOCKS))
        missing = {number for (number,) in rows}
        gone = missing & self._missing if patient else missing
        self._missing = missing - gone
        buried = await self._sql.fetch(_BURY, (list(gone),)) if gone else []
        for (number,) in buried:
            logger.warning("server %d is gone; its tasks are taken over", number)
        return await self._free_own() or bool(buried)

    async def _free_own(self) -> bool:
        """Free what could not be given back when it was time to, such as while PostgreSQL was away."""
        rows = await self._sql.fetch(_OWN_LEASES, (self._turns.owner,))
        left = [token for (token,) in rows if token not in self._turns.held]
        return bool(left and await self._sql.fetch(_FREE, (self._turns.owner, left)))

    async def _enrol(self, connection: Connection) -> None:
        if self._turns.owner is None:
            row = await (await connection.execute(_ENROL)).fetchone()
            assert row is not None
            (self._turns.owner,) = row
        await connection.execute(_HOLD, (LOCKS, self._turns.owner))
        await connection.execute(_ENROL_AGAIN, (self._turns.owner,))


class Takeover:
    """Takes over the work of servers that are gone, and wakes mailboxes whose wake-ups were lost."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, recover: Recover) -> None:
        """Free the leases of servers that are gone already, and begin to check for more."""
        await self._liveness.call(patient=False)
        self._sweeper = asyncio.create_task(self._sweep(recover))

    async def stop(self) -> None:
        """Stop checking."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self, recover: Recover) -> None:
        loop = asyncio.get_running_loop()
        next_sweep = loop.time() + SWEEP_SECONDS
        while True:
            await asyncio.sleep(LIVENESS_SECONDS)
            try:
                if await self._liveness.call():
                    await recover(0.0)
                elif loop.time() >= next_sweep:
                    next_sweep = loop.time() + SWEEP_SECONDS
                    await recover(SWEEP_SECONDS)
            except Exception:  # the outermost loop: PostgreSQL may be down for a while
                logger.exception("the check for servers that are gone has failed; it is repeated")
