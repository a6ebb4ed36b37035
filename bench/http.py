"""`POST /message` over HTTP: one supervisor turn, there and back, beside the floor's route."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from bench import swarms
from bench.engine import scratch
from bench.report import Result, Row, Skipped

LIMIT = 3.0
"""Median latency of `POST /message`, in units of the floor's route (DESIGN, Budgets)."""

FIRST_EVENT = 5.0
"""Milliseconds from sending a streamed `POST /message` to its first event (DESIGN, Budgets)."""

CONCURRENCY = (1, 16)
ROOT = Path(__file__).resolve().parent.parent

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class ServerFailed(Exception):
    """A server of the bench did not start, or gave no good answer."""


class Connection:
    """A keep-alive connection that sends one prepared request again and again; as thin as a client can be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        """Connect to a server."""
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    async def ask(self, request: bytes) -> bytes:
        """Send the request and return the body of the answer. Raises ServerFailed for any other than 200."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1])) if length else b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise ServerFailed(f"{head.splitlines()[0].decode()}: {body.decode(errors='replace')[:200]}")
        return body

    async def first_event(self, request: bytes) -> float:
        """Send the request, read the stream to its end; seconds until the first event had come."""
        begin = time.perf_counter()
        self._writer.write(request)
        await self._reader.readuntil(b"\nevent: ")
        seconds = time.perf_counter() - begin
        await self._reader.readuntil(b"event: task_complete")
        await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return seconds

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Server:
    """A running server process."""

    process: "subprocess.Popen[str]"
    url: str
    token: str

    def cpu(self) -> float:
        """CPU seconds that it has used so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def request(self, **body: object) -> bytes:
        """A `POST /message`, as the bytes that go over the wire."""
        content = json.dumps({"body": swarms.BODY, **body}).encode()
        head = (
            "POST /message HTTP/1.1\r\n"
            f"Host: {urlsplit(self.url).netloc}\r\n"
            f"Authorization: Bearer {self.token}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


@dataclass(slots=True)
class Figures:
    """What was seen of one server at one concurrency: seconds per request, requests/s and CPU seconds per request."""

    latencies: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def measure(samples: int, requests: int) -> list[Result]:
    """Samples of `requests` requests each, of both servers in turns."""
    try:
        with scratch() as folder, serve("floor", folder) as floor, serve("mail", folder) as mail:
            return asyncio.run(_measure(floor, mail, samples, requests))
    except ServerFailed as error:
        return [Skipped("http", str(error))]


async def _measure(floor: Server, mail: Server, samples: int, requests: int) -> list[Result]:
    figures = {(server.url, width): Figures() for server in (floor, mail) for width in CONCURRENCY}
    for server in (floor, mail):
        await _check(server)
        await _load(server, 1, max(requests // 4, 5), Figures())  # warm up
    for _ in range(samples):
        for width in CONCURRENCY:
            for server in (floor, mail):
                await _load(server, width, requests, figures[server.url, width])
    rows: list[Result] = []
    for width in CONCURRENCY:
        ours, least = figures[mail.url, width], figures[floor.url, width]
        rows += [
            *_rows(f"floor route, {width} at once", least),
            *_rows(f"POST /message, {width} at once", ours, least),
        ]
    first = sorted(await _first_events(mail, max(requests // 4, 5)))
    rows += [
        Row(
            "http",
            "first event of a stream: p50",
            median(first) * 1e3,
            "ms",
            budget=FIRST_EVENT,
            note=f"p95 {_p95(first) * 1e3:.2f} ms",
        )
    ]
    return rows


async def _check(server: Server) -> None:
    """See that the server gives the swarm's answer, and not just any."""
    connection = await Connection.open(server.url)
    answer = json.loads(await connection.ask(server.request()))["response"]
    connection.close()
    if answer != swarms.ANSWER:
        raise ServerFailed(f"{server.url} answers {answer!r}")


async def _load(server: Server, width: int, requests: int, figures: Figures) -> None:
    """Add a sample: so many requests over so many connections, each sending the next as soon as it can."""
    connections = [await Connection.open(server.url) for _ in range(width)]
    request = server.request()
    left = iter(range(requests))
    latencies: list[float] = []

    async def ask(connection: Connection) -> None:
        for _ in left:
            begin = time.perf_counter()
            await connection.ask(request)
            latencies.append(time.perf_counter() - begin)

    cpu, wall = server.cpu(), time.perf_counter()
    await asyncio.gather(*map(ask, connections))
    wall, cpu = time.perf_counter() - wall, server.cpu() - cpu
    for connection in connections:
        connection.close()
    figures.latencies += latencies
    figures.medians.append(median(latencies))
    figures.rates.append(requests / wall)
    figures.cpu.append(cpu / requests)


async def _first_events(server: Server, requests: int) -> list[float]:
    connection = await Connection.open(server.url)
    request = server.request(stream=True)
    seconds = [await connection.first_event(request) for _ in range(requests)]
    connection.close()
    return seconds


def _rows(name: str, figures: Figures, floor: Figures | None = None) -> list[Row]:
    """Median latency and CPU, in units of the floor's samples that were taken beside them."""
    p50 = cpu = None
    if floor is not None:
        p50 = median(one / other for one, other in zip(figures.medians, floor.medians, strict=True))
        cpu = median(one / other for one, other in zip(figures.cpu, floor.cpu, strict=True))
    note = f"p95 {_p95(figures.latencies) * 1e3:.2f} ms, {median(figures.rates):,.0f} requests/s"
    budget = None if floor is None else LIMIT
    return [
        Row("http", f"{name}: p50", median(figures.latencies) * 1e3, "ms", budget, note=note, ratio=p50),
        Row("http", f"{name}: CPU of the server", median(figures.cpu) * 1e6, "µs CPU", ratio=cpu),
    ]


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[18]


@contextmanager
def serve(kind: str, folder: Path) -> Iterator[Server]:
    """Run `bench.servers` in a process of its own."""
    command = [sys.executable, "-m", "bench.servers", kind, str(folder / f"{kind}.db")]
    log = folder / f"{kind}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            if not ready:
                lines = log.read_text().strip().splitlines()
                raise ServerFailed(f"the {kind} server did not start: {lines[-1] if lines else 'no reason'}")
            yield Server(process, **json.loads(ready))
        finally:
            process.stdin.close()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
