"""SQLite: a point before each statement."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mail.testing.faults import Points


class FaultyConnection:
    """A connection to SQLite whose statements are points. SQLite itself rolls back what a dead process has begun."""

    def __init__(self, inner: sqlite3.Connection, points: Points) -> None:
        self._inner = inner
        self._points = points

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        self._points.hit(f"sql {' '.join(statement.split()[:2])}")
        return self._inner.execute(statement, values)

    def executescript(self, script: str) -> None:
        """Run the statements one by one; none of them contains a semicolon."""
        for statement in filter(None, map(str.strip, script.split(";"))):
            self.execute(statement)

    @property
    def in_transaction(self) -> bool:
        return not self._points.is_dead and self._inner.in_transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def faulty_connections(points: Points) -> Iterator[None]:
    """Make each connection that is opened meanwhile a faulty one."""
    connect = sqlite3.connect
    with patch.object(
        sqlite3, "connect", lambda *args, **options: FaultyConnection(connect(*args, **options), points)
    ):
        yield
