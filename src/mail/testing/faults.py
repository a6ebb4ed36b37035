"""Fault points: where a process may wait, fail or die, and the plans that decide what happens there.

A point is each await of the engine at its ports, each statement or request to the database, and each yield of foreign
code. It is named after what is done there, and in crash tests for whom: `after store.commit [ann chief Plan]`. A `Plan`
decides what happens at each point, and a `Strike` ends the process: crash tests send it a signal, chaos cancels its
coroutines. Crash tests and chaos differ in their plans; the wrappers that pass the points are the same.
"""

import asyncio
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

DIE: Final = "die"

Verdict = Literal["die"] | Exception | float
"""What happens at a point: the process dies, an error is raised, or so many seconds pass."""

Plan = Callable[[int, str], Verdict]
"""Decides what happens at the n-th point (from 1) that a process passes, which has this name."""

Strike = Callable[[str], None]
"""Ends the process, at the point of this name."""


class Dead(asyncio.CancelledError):
    """The process that wanted to do this is dead. No code of the engine handles it, as it handles no SIGKILL."""


def never(number: int, name: str) -> Verdict:
    """Let the process go on."""
    return 0.0


def at_number(last: int) -> Plan:
    """Return the plan to die at a counted point."""
    return lambda number, _: DIE if number == last else 0.0


def at_name(beginning: str) -> Plan:
    """Return the plan to die at the first point whose name begins so."""
    return lambda _, name: DIE if name.startswith(beginning) else 0.0


def among(names: Collection[str]) -> Plan:
    """Return the plan to die at the first point that has one of these names."""
    return lambda _, name: DIE if name in names else 0.0


def random_number(chance: Random, last: int) -> int:
    """Draw a point: early ones are more likely, as less is left to do after each death."""
    return 1 + int(last * chance.random() ** 1.5)


class Points:
    """Counts the points that a process passes, and does what its plan decides; it dies once.

    Attributes:
        names: the points that were passed.
        is_dead: whether all further points raise Dead; a strike sets it if the process does not end with it.
    """

    def __init__(self, plan: Plan, strike: Strike) -> None:
        self.names: list[str] = []
        self.plan = plan
        self.is_dead = False
        self._strike = strike

    def hit(self, name: str) -> float:
        """Pass a point. Returns the seconds to wait there; raises the error of the plan, and Dead in a dead process."""
        verdict: Verdict = 0.0
        if not self.is_dead:
            self.names.append(name)
            verdict = self.plan(len(self.names), name)
        if verdict == DIE:
            self.plan = never
            self._strike(name)
        if self.is_dead:
            raise Dead(name)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict if isinstance(verdict, float) else 0.0

    async def reach(self, name: str) -> None:
        """Pass a point where the process may be delayed, and after a delay another one: `late` and its name."""
        if seconds := self.hit(name):
            await asyncio.sleep(seconds)
            await self.reach(f"late {name}")

    async def around[T](self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call, between a point before it and one after its result or error; the plan can lose either."""
        await self.reach(f"before {name}")
        try:
            result = await call()
        except Exception:
            await self.reach(f"after {name}")
            raise
        await self.reach(f"after {name}")
        return result


class FaultyPort:
    """A port of the engine, such as a store or a queue, whose coroutine methods are points; `overrides` replaces some of its methods."""

    def __init__(self, inner: Any, name: str, points: Points, **overrides: Any) -> None:
        self._inner = inner
        self._name = name
        self._points = points
        self._overrides = overrides

    def __getattr__(self, name: str) -> Any:
        method = self._overrides.get(name) or getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            return await self._points.around(f"{self._name}.{name}", partial(method, *args, **options))

        setattr(self, name, call)
        return call


NOWHERE = Points(never, lambda _: None)
"""The points of whoever must not meet faults."""


def send_signal(trace: Path, *, held_up: bool) -> Strike:
    """Return the strike that kills this process, or stops it until somebody continues it; leaves the point in `trace`."""

    def strike(name: str) -> None:
        append_line(trace, name)
        os.kill(os.getpid(), signal.SIGSTOP if held_up else signal.SIGKILL)

    return strike


def append_line(path: Path, line: str) -> None:
    """Write a line that outlives the process, in one system call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[str]:
    """Return what `append_line` has written, in whatever process."""
    return path.read_text().splitlines() if path.exists() else []
