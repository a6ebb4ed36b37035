"""Running blocking code beside the event loop."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import Any


async def in_daemon_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a blocking function, run in a thread of its own.

    Unlike `asyncio.to_thread`'s, the thread does not keep the process from ending: a function that hangs
    must not hold up a server that is told to stop. The function sees the caller's context variables.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except Exception as raised:  # noqa: BLE001  # handed over to whoever waits
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await outcome
