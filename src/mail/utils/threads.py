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

    Raises what the function raises, but RuntimeError in the place of what would stop a coroutine or the whole
    program, such as StopIteration and SystemExit: they end the thread alone.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if outcome.done():
            return
        match error:
            case None:
                outcome.set_result(result)
            case Exception() if not isinstance(error, StopIteration):
                outcome.set_exception(error)
            case _:
                outcome.set_exception(_contained(error))

    def run() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # noqa: BLE001  # handed over to whoever waits
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await outcome


def _contained(error: BaseException) -> RuntimeError:
    contained = RuntimeError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    contained.__cause__ = error
    return contained
