"""The workload that every engine runs in a program of its own, and how `bench.peers` drives that program.

A *turn* is one call of an agent whose answer is made beforehand, and it is durable before the next begins. In a
ping-pong two agents take turns; a request is a task of its own with three turns (supervisor, worker, supervisor), and
nothing of it is shared with other requests.

The standard library only: programs of other engines run it in their own environment.
"""

import asyncio
import json
import sys
import time
from typing import Protocol

REQUEST_TURNS = 3

TEXT = "Please find out what the weather in Tokyo will be like today and tomorrow. ".ljust(600, "x")
"""What an agent says: as long as messages that people and models write."""


class Engine(Protocol):
    """An engine with two agents."""

    async def run(self, turns: int) -> None:
        """Run a new task of so many turns to its answer."""


async def serve(engine: Engine) -> None:
    """Print `ready`, then answer lines [tasks, turns, at once] with [seconds, CPU seconds], until stdin ends."""
    print(json.dumps("ready"), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        tasks, turns, at_once = json.loads(line)
        left = iter(range(tasks))

        async def client() -> None:
            for _ in left:  # noqa: B023 - one iterator for all clients of a sample
                await engine.run(turns)  # noqa: B023

        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client() for _ in range(at_once)))
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
