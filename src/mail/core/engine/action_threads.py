"""The threads in which actions run that are plain functions, and so would block the event loop."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Condition, Thread
from typing import Any

from mail.core.engine.fairness import RoundRobin, Shares
from mail.core.turns.context import TURN, TimeLimit

DEFAULT_SIZE = 64


@dataclass(eq=False, slots=True)
class _Job:
    caller: str
    run: Callable[[], None]
    is_dropped: bool = False


class ActionThreads:
    """At most `size` threads, which callers share fairly: a function that blocks delays those of its own caller first.

    They are daemons, unlike those of asyncio's executor: a function that hangs must not delay the end of the process.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self.size = size
        self._reset()

    def _reset(self) -> None:
        """Begin without threads, as in a process that was forked."""
        self._changed = Condition()
        self._waiting: RoundRobin[_Job] = RoundRobin()
        self._shares = Shares(self.size)
        self._threads = 0
        self._idle = 0

    def resize(self, size: int) -> None:
        """Change how many functions may run at once; those that run are not stopped."""
        with self._changed:
            self._shares.free += size - self.size
            self.size = size

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in one of the threads, with the caller's context variables, and return its result.

        A time limit of the running action (`CurrentCall.time_limit`) begins with the function, not with the wait for a
        thread. If it ends, the function is left to itself.

        Raises what the function raises, with RuntimeError instead of exceptions that would stop a coroutine or the
        whole program, such as StopIteration and SystemExit.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        turn = TURN.get()
        work: Callable[[], None] = partial(_perform, loop, outcome, partial(function, *arguments))
        if turn.call.time_limit is not None:
            work = _timed(loop, outcome, turn.call.time_limit, work)
        job = _Job(turn.caller, partial(copy_context().run, work))
        self._put(job)
        try:
            return await outcome
        finally:
            job.is_dropped = True  # if it still waits for a thread

    def _put(self, job: _Job) -> None:
        with self._changed:
            self._waiting.put(job.caller, job)
            if not self._wake_one() and self._threads < self.size:
                self._threads += 1
                Thread(target=self._work, name=f"action-{self._threads}", daemon=True).start()

    def _wake_one(self) -> bool:
        """Let an idle thread look for a job, if any waits; return whether one does."""
        if not self._idle or not self._waiting:
            return False
        self._idle -= 1
        self._changed.notify()
        return True

    def _work(self) -> None:
        """Run jobs until the process ends."""
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    self._idle += 1
                    self._changed.wait()
                self._shares.begin(job.caller)
                self._wake_one()  # what has ended may have made room for more than this job
            job.run()
            with self._changed:
                self._shares.end(job.caller)

    def _next(self) -> _Job | None:
        while self._shares.free > 0:
            job = self._waiting.take(self._shares.full())
            if job is None or not job.is_dropped:
                return job
        return None


def _perform(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    """Run a function in this thread, and hand its result to the event loop, unless that has ended."""
    result, error = None, None
    try:
        result = work()
    except BaseException as raised:  # noqa: BLE001  # passed to the caller
        error = raised
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, outcome, result, error)


def _timed(
    loop: asyncio.AbstractEventLoop,
    outcome: asyncio.Future[Any],
    limit: TimeLimit,
    work: Callable[[], None],
) -> Callable[[], None]:
    """Suspend a time limit; return the work with its beginning."""
    end = limit.when()
    if end is None:
        return work
    seconds = end - loop.time()
    limit.reschedule(None)

    def begin() -> None:
        if not outcome.done():
            limit.reschedule(loop.time() + seconds)

    def run() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(begin)
        work()

    return run


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():
        return
    match error:
        case None:
            outcome.set_result(result)
        case Exception() if not isinstance(error, StopIteration):
            outcome.set_exception(error)
        case _:
            outcome.set_exception(_contained(error))


def _contained(error: BaseException) -> RuntimeError:
    contained = RuntimeError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    contained.__cause__ = error
    return contained


ACTION_THREADS = ActionThreads()
"""The threads of this process; `[server.settings] action_threads` is their number."""

os.register_at_fork(after_in_child=ACTION_THREADS._reset)
