"""Finds servers that are gone, and takes over their work.

Each server takes an advisory lock, under its number, on its listening connection. The lock ends with the connection,
and the connection with the process; the remaining servers look for servers without a lock, which takes seconds. The
leases of a server that hangs, with its connections alive, expire (`mail.core.engine.heartbeat`). A server that is
alive but was taken for dead finds that its leases belong to other servers, and drops its turns.
"""

import asyncio
import logging
from typing import LiteralString

from mail.adapters.postgres.leases import Leases
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.shared.backend import Recover
from mail.errors import StoreUnavailable

LIVENESS_SECONDS = 2.0
"""Seconds between two checks for servers that are gone. A server counts as gone at the second check that misses it."""

SWEEP_SECONDS = 30.0
"""Seconds between two sweeps, each of which wakes the mailboxes of tasks that have been quiet for as long."""

LOCKS = 0x6D61696C
"""The class of the advisory locks of servers."""

# Shared: after a break PostgreSQL may take the old connection, with the same lock, for alive.
_LOCK: LiteralString = "SELECT pg_advisory_lock_shared(%s, %s)"

_REGISTER: LiteralString = "INSERT INTO mail.servers DEFAULT VALUES RETURNING id"

_REGISTER_AGAIN: LiteralString = "INSERT INTO mail.servers (id) VALUES (%s) ON CONFLICT (id) DO NOTHING"

_MISSING: LiteralString = """
SELECT id FROM mail.servers WHERE id <> %s AND NOT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = %s AND objid::bigint = servers.id
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""

# `Runtime.sweep` finds the leases: they have expired, in 1970.
_REMOVE: LiteralString = """
WITH dead AS (DELETE FROM mail.servers WHERE id = ANY(%s) RETURNING id),
    freed AS (UPDATE mail.leases SET expires = 1 FROM dead WHERE owner = dead.id AND expires > 0)
SELECT id FROM dead
"""

_OWN_LEASES: LiteralString = "SELECT token FROM mail.leases WHERE owner = %s AND expires > 0"

_FREE: LiteralString = "DELETE FROM mail.leases WHERE owner = %s AND token = ANY(%s) RETURNING token"

logger = logging.getLogger(__name__)


class Liveness:
    """One server's registration, renewed each time that its notifier connects, and its checks of the rest."""

    def __init__(self, postgres: Postgres, notifier: Notifier, turns: Leases) -> None:
        self._sql = postgres
        self._turns = turns
        self._missing: set[int] = set()
        notifier.at_connect.append(self._register)

    async def check(self, *, twice: bool = True) -> bool:
        """Free the leases of servers that are gone; return whether wake-ups may be lost. Raises StoreUnavailable.

        With `twice`, a server counts as gone if it was missing at the last check, too.
        """
        rows = await self._sql.fetch(_MISSING, (self._turns.owner, LOCKS))
        missing = {number for (number,) in rows}
        gone = missing & self._missing if twice else missing
        self._missing = missing - gone
        removed = await self._sql.fetch(_REMOVE, (list(gone),)) if gone else []
        for (number,) in removed:
            logger.warning("server %d is gone; its tasks are taken over", number)
        return await self._free_own() or bool(removed)

    async def _free_own(self) -> bool:
        """Free leases of this server that could not be released, for example while PostgreSQL was down."""
        rows = await self._sql.fetch(_OWN_LEASES, (self._turns.owner,))
        unused = [token for (token,) in rows if token not in self._turns.held]
        return bool(unused and await self._sql.fetch(_FREE, (self._turns.owner, unused)))

    async def _register(self, connection: Connection) -> None:
        if self._turns.owner is None:
            row = await (await connection.execute(_REGISTER)).fetchone()
            assert row is not None
            (self._turns.owner,) = row
        await connection.execute(_LOCK, (LOCKS, self._turns.owner))
        await connection.execute(_REGISTER_AGAIN, (self._turns.owner,))


class Takeover:
    """Takes over the work of servers that are gone, and wakes mailboxes whose wake-ups were lost."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, recover: Recover) -> None:
        """Free the leases of servers that are gone already, and begin to check for more."""
        await self._liveness.check(twice=False)
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
                if await self._liveness.check():
                    await recover(0.0)
                elif loop.time() >= next_sweep:
                    next_sweep = loop.time() + SWEEP_SECONDS
                    await recover(SWEEP_SECONDS)
            except StoreUnavailable:
                continue  # PostgreSQL may be down for a while, which is in the log already
            except Exception:  # the outermost loop
                logger.exception("the check for servers that are gone has failed; it is repeated")
