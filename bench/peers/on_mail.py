"""MAIL on SQLite with its default settings: `python -m bench.peers.on_mail <folder>`.

The agents write to each other by mail, with everything that belongs to it: addresses, histories and events are stored,
and a task can be listed, watched, cancelled, forked and read as it was (docs/architecture.md).
"""

import asyncio
import sys
from functools import cache
from pathlib import Path

from bench import swarms
from bench.engine import CALLER
from bench.peers.workload import serve
from mail.adapters.local.queue import LocalQueue
from mail.adapters.local.workers import LocalWorkers
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.swarm import SwarmCore


@cache
def swarm(turns: int) -> SwarmCore:
    """The supervisor asks, the worker answers, and the supervisor completes the task."""
    return swarms.ping_pong(turns // 2)


class Mail:
    """A runtime with workers in this process."""

    def __init__(self, database: SQLiteDatabase) -> None:
        queue = LocalQueue()
        self.runtime = Runtime(swarm(0), SQLiteStore(database), queue, SYSTEM_CLOCK)
        self.workers = LocalWorkers(self.runtime, queue)

    async def run(self, turns: int) -> None:
        """Submit a message, and wait for the answer."""
        self.runtime.swarm = swarm(turns)
        answer = await self.runtime.wait(await self.runtime.submit(CALLER, Submission(body=swarms.BODY)))
        assert answer is not None
        assert answer.message.body == swarms.ANSWER


async def main(folder: Path) -> None:
    """Serve until stdin ends."""
    with SQLiteDatabase(folder / "mail.db") as database:
        mail = Mail(database)
        await mail.workers.start()
        await serve(mail)
        await mail.workers.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
