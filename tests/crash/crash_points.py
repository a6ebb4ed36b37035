"""The fault points of a process of the crash tests, and what kills it there."""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mail.testing.faults import Plan, Points, among, at_name, at_number, never

WHERE: ContextVar[str] = ContextVar("WHERE", default="server")
"""What is being worked on: whose mailbox, and the mail in it."""


class MortalPoints(Points):
    """The points of a process that a fate kills or, with `"held_up": true`, stops until somebody continues it. A fate
    is one of

    {"point": 7}            the 7th point
    {"at": "inside agent"}  the first one whose name begins so
    {"among": [...]}        the first one with one of these names at which no process of the run has died
    """

    def __init__(self, fate: Mapping[str, Any], trace: Path, seed: int) -> None:
        super().__init__(_plan(fate, trace), send_signal(trace, held_up=bool(fate.get("held_up"))))
        self._chance = random.Random(seed)

    def hit(self, name: str) -> float:
        return super().hit(f"{name} [{WHERE.get()}]")

    async def pause(self, *lengths: int) -> None:
        """Let others go first, or not: what makes interleavings differ from seed to seed."""
        for _ in range(self._chance.choice(lengths or (0, 0, 1, 3))):
            await asyncio.sleep(0)


def _plan(fate: Mapping[str, Any], trace: Path) -> Plan:
    match fate:
        case {"point": number}:
            return at_number(number)
        case {"at": beginning}:
            return at_name(beginning)
        case {"among": names}:
            return among({*names} - {*read_lines(trace)})
    return never


def send_signal(trace: Path, *, held_up: bool) -> Callable[[str], None]:
    """Return the strike that kills this process, or stops it until somebody continues it; leaves the point in
    `trace`.
    """

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
