"""Where a process may die: every await of the engine at its ports, every SQL statement, every yield of foreign code.

`Points.hit` counts them; at the one that is aimed at, the process sends itself SIGKILL.
"""

import asyncio
import inspect
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

Connect = Callable[..., sqlite3.Connection]


class Points:
    """Counts points, and dies at the `target`-th (0: never). The label of the last one is left in `trace`."""

    def __init__(self, target: int, trace: Path, seed: int) -> None:
        self.labels: list[str] = []
        self._target = target
        self._trace = trace
        self._chance = random.Random(seed)

    def hit(self, label: str) -> None:
        """Here the process may die."""
        self.labels.append(label)
        if len(self.labels) == self._target:
            append_line(self._trace, label)
            os.kill(os.getpid(), signal.SIGKILL)

    async def pause(self, *lengths: int) -> None:
        """Let others go first, or not: what makes interleavings differ from seed to seed."""
        for _ in range(self._chance.choice(lengths or (0, 0, 1, 3))):
            await asyncio.sleep(0)

    def connect(self, connect: Connect) -> Connect:
        """`sqlite3.connect` whose connections hit a point before every statement."""

        def connect_with_points(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(lambda sql: self.hit(f"sql {' '.join(sql.split()[:2])}"))
            return connection

        return connect_with_points

    def wrap(self, inner: Any, name: str, **overrides: Any) -> Any:
        """The same object with a point before and after each of its coroutines."""
        return _Wrapped(self, inner, name, overrides)


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
