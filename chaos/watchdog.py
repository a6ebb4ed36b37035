"""What ends a round that hangs: a thread, as the event loop may hang itself."""

import asyncio
import faulthandler
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TextIO

from chaos.loop import LeapingLoop
from chaos.process import PROCESS


@contextmanager
def watchdog(
    seconds: float, loop: asyncio.AbstractEventLoop, command: str, bites: Callable[[], None]
) -> Iterator[None]:
    """After so many seconds inside, tell where each process of the round is and how to play it again, and bite."""

    def bark() -> None:
        tell(loop, sys.__stderr__ or sys.stderr, f"hung for {seconds:g} s; again: {command}")
        bites()

    timer = Timer(seconds, bark)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell(loop: asyncio.AbstractEventLoop, out: TextIO, headline: str) -> None:
    """Where every coroutine of the loop waits, by the process that it belongs to, and what the threads do."""
    under_way = loop.under_way if isinstance(loop, LeapingLoop) else 0
    print(f"{headline}\n  under way outside: {under_way}", file=out)
    lines = []
    for task in asyncio.all_tasks(loop):
        process = task.get_context().get(PROCESS)
        name = "nobody" if process is None else f"{process.name}{' (dead)' if process.is_dead else ''}"
        lines.append(f"  {name}, {task.get_name()}: {' > '.join(_places(task))}")
    print("\n".join(sorted(lines)), file=out, flush=True)
    faulthandler.dump_traceback(out, all_threads=True)


def _places(task: "asyncio.Task[object]") -> Iterator[str]:
    """The functions that it waits in, from its first to the innermost that is Python's."""
    waiting: object = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        frame = frame or getattr(waiting, "ag_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_name}:{frame.f_lineno}"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
