"""The floor: the least that a durable turn can cost in CPython with SQLite.

Plain sqlite3 on a file (WAL, synchronous=NORMAL), and per turn one transaction of six statements: read
the head of an inbox, compare-and-set the task, take the message out, put one into the other inbox, append
to a history, append the events. No framework, no JSON, no event loop; the payloads are made beforehand, as
large as those of a ping-pong turn of the engine.
"""

import json
import sqlite3
import time
from pathlib import Path
from typing import Self

SCHEMA = """
CREATE TABLE tasks (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE inbox (
    task INTEGER NOT NULL, mailbox TEXT NOT NULL, tier INTEGER NOT NULL, seq INTEGER NOT NULL,
    message TEXT NOT NULL, PRIMARY KEY (task, mailbox, tier, seq)
);
CREATE TABLE history (
    task INTEGER NOT NULL, agent TEXT NOT NULL, n INTEGER NOT NULL, entries TEXT NOT NULL,
    PRIMARY KEY (task, agent, n)
);
CREATE TABLE events (
    task INTEGER NOT NULL, last_seq INTEGER NOT NULL, batch TEXT NOT NULL, PRIMARY KEY (task, last_seq)
);
"""


def payload(size: int) -> str:
    """A JSON text of `size` characters."""
    empty = len(json.dumps({"body": ""}))
    return json.dumps({"body": "x" * (size - empty)})


STATE, MESSAGE, HISTORY, EVENTS = payload(590), payload(930), payload(1640), payload(1880)
"""What a turn writes. The sizes, in bytes, are the averages of the engine's own ping-pong."""


class Floor:
    """One task on one file; `turn` is one turn of it."""

    def __init__(self, path: Path) -> None:
        self._sql = sqlite3.connect(path, isolation_level=None)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.executescript(SCHEMA)
        self._sql.execute("INSERT INTO tasks VALUES (1, 0, ?)", (STATE,))
        self._sql.execute("INSERT INTO inbox VALUES (1, 'supervisor', 5, 0, ?)", (MESSAGE,))
        self._turns = 0

    def turn(self) -> None:
        """Six statements in one transaction."""
        n = self._turns
        me, other = ("supervisor", "worker") if n % 2 == 0 else ("worker", "supervisor")
        execute = self._sql.execute
        execute("BEGIN IMMEDIATE")
        execute(
            "SELECT tier, seq, message FROM inbox WHERE task = ? AND mailbox = ? ORDER BY tier, seq LIMIT 1",
            (1, me),
        ).fetchone()
        execute("UPDATE tasks SET version = ?, state = ? WHERE id = ? AND version = ?", (n + 1, STATE, 1, n))
        execute("DELETE FROM inbox WHERE task = ? AND mailbox = ? AND tier = ? AND seq = ?", (1, me, 5, n))
        execute("INSERT INTO inbox VALUES (?, ?, ?, ?, ?)", (1, other, 5, n + 1, MESSAGE))
        execute("INSERT INTO history VALUES (?, ?, ?, ?)", (1, me, n, HISTORY))
        execute("INSERT INTO events VALUES (?, ?, ?)", (1, n + 1, EVENTS))
        execute("COMMIT")
        self._turns = n + 1

    def close(self) -> None:
        """Close the file."""
        self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def measure(path: Path, turns: int) -> float:
    """CPU seconds per turn, on a new file at `path`."""
    with Floor(path) as floor:
        begin = time.process_time()
        for _ in range(turns):
            floor.turn()
        return (time.process_time() - begin) / turns
