"""The event loop, in a thread, on which a swarm works for callers that don't run one."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from mail.factories.ports import close_clients

STOP_SECONDS = 5.0
"""Seconds that a swarm's thread may take to end."""


class LoopThread:
    """An event loop in a thread of its own.

    It ends with `stop`, with the last reference to it, or with the process.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=_run_until_stopped, args=(self._loop,), name="mail-swarm", daemon=True
        )
        self.stop = weakref.finalize(self, _stop, self._loop, thread)
        thread.start()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks())
        loop.close()


async def _end_tasks() -> None:
    """Cancel what still runs on the loop, such as litellm's own tasks, and close connections to models."""
    await close_clients()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(STOP_SECONDS)
