"""What a turn does, counted: store calls, SQL statements, bytes. The same in every run, hence tested."""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from bench import swarms
from bench.engine import CALLER, scratch
from bench.report import Row
from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK

CALLS = 3
"""Calls of ports per turn without actions: open, commit, publish. On AWS the first makes two calls and the
others one each, so this is what the budget of four AWS calls allows (DESIGN, Budgets)."""

STATEMENTS = 8
"""SQL statements per turn, BEGIN and COMMIT among them: no more than the floor."""

BYTECODES = 6_004
"""Instructions of Python per turn, of CPython 3.12: 1.1 times the 5,458 of 1123abe (DESIGN, Budgets)."""

GROWTH = 1.1
"""Bytes of late turns by those of early ones: the trees of the database file grow, if only by a level."""

EARLY, LATE = 10, 1000
"""The turns that are compared …"""

WINDOW = 40
"""… each as the average of so many, as single turns now and then split a page."""


class Counting:
    """Stands before a port and counts the calls of its methods."""

    def __init__(self, port: object, counts: Counter[str]) -> None:
        self._port = port
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self._counts[name] += 1
            return await method(*args, **kwargs)

        return counted


@dataclass(frozen=True, slots=True)
class Reading:
    """What has been done since the task began: calls of ports, SQL statements, bytes written to the log."""

    calls: Counter[str]
    statements: int
    written: int


async def read_turns(path: Path, turns: int) -> list[Reading]:
    """Run so many turns of one task, one by one and with nobody waiting; reading n is after n turns."""
    calls: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    log = path.with_name(path.name + "-wal")
    with SQLiteDatabase(path) as database:
        # Without checkpoints the log holds every page that was written: its size is what was written.
        database.connection.execute("PRAGMA wal_autocheckpoint = 0")
        database.connection.set_trace_callback(lambda sql: statements.update([sql.split()[0]]))
        queue = LocalQueue()
        counted_store: Any = Counting(SQLiteStore(database), calls)
        counted_queue: Any = Counting(queue, calls)
        runtime = Runtime(swarms.ping_pong(turns), counted_store, counted_queue, SYSTEM_CLOCK)
        await runtime.submit(CALLER, Submission(body=swarms.BODY))
        readings = [Reading(calls.copy(), statements.total(), log.stat().st_size)]
        for _ in range(turns):
            key, mailbox = await asyncio.wait_for(queue.take(), 10)
            await runtime.run_turn(key, mailbox)
            readings.append(Reading(calls.copy(), statements.total(), log.stat().st_size))
        return readings


def bytecodes(folder: Path) -> float:
    """Return the instructions of Python per turn: not those of asyncio, a submission or the end of a task."""
    asyncio.run(read_turns(folder / "first.db", WINDOW))  # what is done once in a process
    short, long = (_instructions(folder / f"{turns}.db", turns) for turns in (WINDOW, 2 * WINDOW))
    return (long - short) / WINDOW


def _instructions(path: Path, turns: int) -> int:
    """Return the instructions of a task with so many turns."""
    monitoring, counted = sys.monitoring, 0

    def count(code: CodeType, _offset: int) -> object:
        nonlocal counted
        if "/asyncio/" in code.co_filename:
            return monitoring.DISABLE
        counted += 1
        return None

    monitoring.use_tool_id(monitoring.PROFILER_ID, "bench")
    try:
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, count)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION)
        asyncio.run(read_turns(path, turns))
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    return counted


def measure() -> list[Row]:
    """The counts per turn, early and late in a long task."""
    with scratch() as folder:
        readings = asyncio.run(read_turns(folder / "counts.db", LATE + WINDOW))
        python = bytecodes(folder)
    rows = [Row("counts", "bytecodes per turn", python, "", BYTECODES)]
    written = []
    for turn in (EARLY, LATE):
        begin, end = readings[turn], readings[turn + WINDOW]
        calls = end.calls - begin.calls
        named = ", ".join(f"{name} {count / WINDOW:g}" for name, count in calls.items())
        rows += [
            _row(f"calls of ports per turn, turn {turn:,}", calls.total() / WINDOW, "calls", CALLS, named),
            _row(
                f"SQL statements per turn, turn {turn:,}",
                (end.statements - begin.statements) / WINDOW,
                "",
                STATEMENTS,
            ),
        ]
        written.append((end.written - begin.written) / WINDOW)
        rows.append(_row(f"bytes to the log per turn, turn {turn:,}", written[-1], "bytes"))
    rows.append(
        _row(f"bytes of turn {LATE:,} by those of turn {EARLY}", written[1] / written[0], "×", GROWTH)
    )
    return rows


def _row(name: str, value: float, unit: str, budget: float | None = None, note: str = "") -> Row:
    return Row("counts", name, value, unit, budget, exact=True, note=note)
