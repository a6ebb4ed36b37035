"""Fault points: where a process may die, and at which of them it does. Crash tests and chaos are built on it.

A point is each await of the engine at its ports, each statement or request to the database, and each yield of foreign
code. It is named after what is done there, and in crash tests for whom: `after store.commit [ann chief Plan]`. A `Plan`
names the fatal one, and a `Strike` does what is fatal: crash tests send the process a signal, chaos cancels its coroutines.
"""

import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any

Plan = Callable[[int, str], bool]
"""Says whether the n-th point (from 1) that a process passes, which has this name, is its last."""

Strike = Callable[[str], None]
"""Ends the process, at the point of this name."""

Around = Callable[[str, Callable[..., Awaitable[Any]], tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
"""Performs a call: the method's name, the method and its arguments."""


def never(number: int, name: str) -> bool:
    """Let the process live."""
    return False


def at_number(last: int | None) -> Plan:
    """Return the plan to die at a counted point; None for none."""
    return never if last is None else lambda number, _: number == last


def at_name(beginning: str) -> Plan:
    """Return the plan to die at the first point whose name begins so."""
    return lambda _, name: name.startswith(beginning)


def among(names: Collection[str]) -> Plan:
    """Return the plan to die at the first point that has one of these names."""
    return lambda _, name: name in names


def random_number(chance: Random, last: int) -> int:
    """Draw a point: early ones are more likely, as less is left to do after each death."""
    return 1 + int(last * chance.random() ** 1.5)


class Points:
    """Counts the points that a process passes, and strikes at the one that its plan names.

    Attributes:
        names: the points that were passed.
    """

    def __init__(self, plan: Plan, strike: Strike) -> None:
        self.names: list[str] = []
        self.plan = plan
        self._strike = strike

    def hit(self, name: str) -> None:
        """Pass a point."""
        self.names.append(name)
        if self.plan(len(self.names), name):
            self.plan = never
            self._strike(name)


class Surrounded:
    """An object whose coroutine methods are called by `around`; `overrides` replaces some of them."""

    def __init__(self, inner: Any, around: Around, overrides: Mapping[str, Any] | None = None) -> None:
        self._inner = inner
        self._around = around
        self._overrides = overrides or {}

    def __getattr__(self, name: str) -> Any:
        method = self._overrides.get(name) or getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            return await self._around(name, method, args, options)

        setattr(self, name, call)
        return call


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
