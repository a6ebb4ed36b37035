"""MAIL: `python -m bench.peers.on_mail <URL of the database>`. As the others do, it writes each commit to the disk.

The agents write to each other by mail, with everything that belongs to it: addresses, histories and events are stored,
and a task can be listed, watched, cancelled, forked and read as it was (docs/architecture.md).
"""

import asyncio
import sys
from functools import cache

from bench import swarms
from bench.engine import CALLER
from bench.peers.workload import serve
from mail.adapters.local.workers import LocalWorkers
from mail.bootstrap.backends import open_backend
from mail.config import StorageConfig
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.swarm import SwarmCore


@cache
def swarm(turns: int) -> SwarmCore:
    """The supervisor asks, the worker answers, and in the end the supervisor completes the task."""
    return swarms.ping_pong(turns // 2)


class Mail:
    """A runtime whose workers run in this process."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    async def run(self, turns: int) -> None:
        """Submit a message, and wait for the answer."""
        self.runtime.swarm = swarm(turns)
        answer = await self.runtime.wait(await self.runtime.submit(CALLER, Submission(body=swarms.BODY)))
        assert answer is not None
        assert answer.message.body == swarms.ANSWER


async def main(database: str) -> None:
    """Serve until stdin ends."""
    storage = StorageConfig(database=database, synchronous="full")
    backend = open_backend(storage, swarm(1).name, SYSTEM_CLOCK)
    runtime = Runtime(swarm(1), backend.store, backend.queue, SYSTEM_CLOCK)
    workers = LocalWorkers(runtime, backend.queue)
    await backend.start(lambda quiet_for: runtime.recover(quiet_for=quiet_for))
    await workers.start()
    await serve(Mail(runtime))
    await workers.stop()
    await backend.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
