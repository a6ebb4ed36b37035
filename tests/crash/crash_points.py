"""Where a process may die: every await of the engine at its ports, every request to its database, every yield of
foreign code.

`Points.hit` passes one; at the one that is aimed at, the process sends itself a signal. A point is named after what is
done there and for whom: `after store.commit [ann chief Plan]`.
"""

import asyncio
import inspect
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

WHERE: ContextVar[str] = ContextVar("WHERE", default="server")
"""What is being worked on: whose mailbox, and the mail in it."""


class Points:
    """Passes points until one is fatal. The name of that one is left in `trace`. A fate is one of

        {"point": 7}            the 7th point
        {"at": "inside agent"}  the first one whose name begins so
        {"among": [...]}        the first one with one of these names that is not in the trace yet

    and kills the process or, with `"held_up": true`, stops it until somebody lets it go on.
    """

    def __init__(self, fate: Mapping[str, Any], trace: Path, seed: int) -> None:
        self.names: list[str] = []
        self._trace = trace
        self._chance = random.Random(seed)
        self._is_fatal = self._read(fate)
        self._signal = signal.SIGSTOP if fate.get("held_up") else signal.SIGKILL

    def hit(self, label: str) -> None:
        """Here the process may meet its fate."""
        name = f"{label} [{WHERE.get()}]"
        self.names.append(name)
        if self._is_fatal(name):
            self._is_fatal = never
            append_line(self._trace, name)
            os.kill(os.getpid(), self._signal)

    def _read(self, fate: Mapping[str, Any]) -> Callable[[str], bool]:
        match fate:
            case {"point": number}:
                return lambda _: len(self.names) == number
            case {"at": beginning}:
                return lambda name: name.startswith(beginning)
            case {"among": names}:
                left = {*names} - {*read_lines(self._trace)}
                return lambda name: name in left
        return never

    async def pause(self, *lengths: int) -> None:
        """Let others go first, or not: what makes interleavings differ from seed to seed."""
        for _ in range(self._chance.choice(lengths or (0, 0, 1, 3))):
            await asyncio.sleep(0)

    def wrap(self, inner: Any, name: str, **overrides: Any) -> Any:
        """The same object with a point before and after each of its coroutines."""
        return _Wrapped(self, inner, name, overrides)


def never(_: str) -> bool:
    """Not at this point, nor at any other."""
    return False


class _Wrapped:
    def __init__(self, points: Points, inner: Any, name: str, overrides: dict[str, Any]) -> None:
        self._points = points
        self._inner = inner
        self._name = name
        self._overrides = overrides

    def __getattr__(self, attribute: str) -> Any:
        method = self._overrides.get(attribute) or getattr(self._inner, attribute)
        if not inspect.iscoroutinefunction(method):
            return method

        async def with_points(*args: Any, **options: Any) -> Any:
            self._points.hit(f"before {self._name}.{attribute}")
            result = await method(*args, **options)
            self._points.hit(f"after {self._name}.{attribute}")
            return result

        setattr(self, attribute, with_points)
        return with_points


def append_line(path: Path, line: str) -> None:
    """Write a line that outlives the process, in one system call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[str]:
    """What was written by `append_line`, by whatever process."""
    return path.read_text().splitlines() if path.exists() else []
