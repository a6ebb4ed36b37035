"""Waiting for a generation of a task to end."""

import asyncio

from mail.core.engine.watch import LONG_POLL
from mail.core.task.task import TaskKey
from mail.http.service import Service


async def await_end(service: Service, key: TaskKey, generation: int, seconds: float | None) -> bool:
    """Whether the generation has ended, once it has, or after `seconds` (None: no limit), or when the server stops."""
    wait = service.runtime.store.wait_for_response
    try:
        async with service.stopping.cuts_short(), asyncio.timeout(seconds):
            while await wait(key, generation, seconds=LONG_POLL) is None:
                pass
    except TimeoutError:
        return await service.runtime.store.read_response(key, generation) is not None
    return True
