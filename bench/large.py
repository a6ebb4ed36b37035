"""A user with large tasks: how much memory the server needs for them, and how long others wait meanwhile.

All of it on loopback, against a server of its own with the default limits: 60 tasks of 4 MiB, lists of them (four at
the same time), their threads, and 60 messages of 4 MiB for one task. `GET /health` is asked all the time, by another
connection.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.engine import scratch
from bench.http import Server, ServerFailed, serve
from bench.report import Result, Row, Skipped

RSS_LIMIT = 400.0
"""MiB of memory that the server may ever have, whatever callers send or ask for (DESIGN, Budgets)."""

HEALTH_LIMIT = 100.0
"""Milliseconds within which `GET /health` answers meanwhile (DESIGN, Budgets)."""

TASKS = 60
BODY_BYTES = 4 * 1024 * 1024 - 1024
LISTS = 4
HEALTH_SECONDS = 0.1
NOTHING_SECONDS = 5.0
READ_BYTES = 256 * 1024
PATIENCE = 60.0
NO_ANSWER = 0
"""The status of a request that got no answer, in full, for so many seconds."""

MIB = 1024 * 1024


@dataclass(slots=True)
class Phase:
    """What was seen while one thing was done.

    Attributes:
        health: seconds of each `GET /health`.
        answers: status and bytes of each answer.
        rss: the most memory, in MiB.
    """

    name: str
    health: list[float] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    rss: float = 0.0
    seconds: float = 0.0

    def rows(self) -> list[Row]:
        """Return the figures."""
        worst = max(self.health, default=0.0) * 1e3
        mib = sum(size for _, size in self.answers) / MIB
        statuses = ", ".join(
            f"{sum(status == each for status, _ in self.answers)} × {each}"
            for each in sorted({status for status, _ in self.answers})
        )
        note = f"{statuses}; {mib:.0f} MiB of answers in {self.seconds:.1f} s"
        return [
            Row("large", f"{self.name}: memory at most", self.rss, "MiB", budget=RSS_LIMIT, note=note),
            Row("large", f"{self.name}: slowest GET /health", worst, "ms", budget=HEALTH_LIMIT),
        ]


def measure(tasks: int = TASKS) -> list[Result]:
    """Do all of it, with so many tasks and messages."""
    try:
        with scratch() as folder, serve("large", folder) as server:
            return asyncio.run(User(server).phases(tasks))
    except ServerFailed as error:
        return [Skipped("large", str(error))]


class User:
    """A user with one key; `server` is a process that only this user calls."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._proc = Path("/proc") / str(server.process.pid)

    async def phases(self, tasks: int) -> list[Result]:
        """Return the figures of all phases."""
        body = "weather in Oslo ".ljust(BODY_BYTES, "y")
        new, more = (json.dumps({"body": body, **to}).encode() for to in ({}, {"task_id": "one"}))
        rows: list[Result] = []

        async def post() -> None:
            for _ in range(tasks):
                await self._send(phase, "POST", "/message", new)

        async def post_to_one() -> None:
            for _ in range(tasks):
                await self._send(phase, "POST", "/message", more)

        async def read(path: str, times: int = 1) -> None:
            await asyncio.gather(*(self._send(phase, "GET", path) for _ in range(times)))

        async def read_pages(path: str, times: int = 1) -> None:
            await asyncio.gather(*(self._read_pages(phase, path) for _ in range(times)))

        todo: list[tuple[str, Any]] = [
            ("nothing, for comparison", lambda: asyncio.sleep(NOTHING_SECONDS)),
            (f"{tasks} tasks of 4 MiB", post),
            ("GET /tasks?limit=20", lambda: read("/tasks?limit=20")),
            ("GET /tasks, all pages", lambda: read_pages("/tasks")),
            (f"GET /tasks, all pages, {LISTS} at once", lambda: read_pages("/tasks", LISTS)),
            ("GET /threads, all pages", lambda: read_pages("/threads?limit=100")),
            (f"{tasks} messages of 4 MiB for one task", post_to_one),
            (f"GET /task, {LISTS} at once", lambda: read("/task?task_id=one", LISTS)),
        ]
        for name, work in todo:
            phase = Phase(name)
            async with self._watched(phase):
                await work()
            rows += phase.rows()
        return rows

    @asynccontextmanager
    async def _watched(self, phase: Phase) -> AsyncIterator[None]:
        """Ask for the server's health all the time, and note its memory at the end."""
        (self._proc / "clear_refs").write_text("5")  # resets the peak
        asking = asyncio.create_task(self._ask_health(phase))
        begin = time.perf_counter()
        try:
            yield
        finally:
            phase.seconds = time.perf_counter() - begin
            asking.cancel()
            await asyncio.wait([asking])
            lines = (self._proc / "status").read_text().splitlines()
            phase.rss = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

    async def _ask_health(self, phase: Phase) -> None:
        while True:
            begin = time.perf_counter()
            await self._answer("GET", "/health")
            phase.health.append(time.perf_counter() - begin)
            await asyncio.sleep(HEALTH_SECONDS)

    async def _send(self, phase: Phase, method: str, path: str, content: bytes = b"") -> dict[str, str]:
        try:
            async with asyncio.timeout(PATIENCE):
                status, headers, size = await self._answer(method, path, content)
        except TimeoutError:
            status, headers, size = NO_ANSWER, {}, 0
        phase.answers.append((status, size))
        return headers

    async def _read_pages(self, phase: Phase, path: str) -> None:
        sign = "&" if "?" in path else "?"
        cursor: str | None = ""
        while cursor is not None:
            headers = await self._send(phase, "GET", f"{path}{sign}cursor={cursor}" if cursor else path)
            cursor = headers.get("x-next-cursor")

    async def _answer(self, method: str, path: str, content: bytes = b"") -> tuple[int, dict[str, str], int]:
        """Return status, headers and size of an answer, whose content is not kept."""
        where = urlsplit(self._server.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=READ_BYTES)
        try:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n"
                f"Authorization: Bearer {self._server.token}\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            await writer.drain()
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            size = 0
            while chunk := await reader.read(READ_BYTES):
                size += len(chunk)
            return int(first.split()[1]), headers, size
        finally:
            writer.close()
