"""Polling: DynamoDB tells nobody about changes."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mail.core.task.rows import Wait

FIRST_POLL = 0.05
LONGEST_POLL = 1.0
POLL_GROWTH = 1.5
"""Seconds between two polls of a waiter. It sees commits of this process immediately."""


async def polls(wait_here: "Wait", seconds: float) -> AsyncGenerator[None]:
    """Yield whenever a waiter should poll: after commits of this process, at intervals, and at the end.

    `wait_here` waits for commits of this process.
    """
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + seconds, FIRST_POLL
    while (remaining := end - loop.time()) > 0:
        await wait_here(min(pause, remaining))
        pause = min(pause * POLL_GROWTH, LONGEST_POLL)
        yield
