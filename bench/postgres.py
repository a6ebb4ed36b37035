"""`POST /message` of three turns on PostgreSQL: two servers share a database, and one of them is sent all requests.

    supervisor ─► worker ─► supervisor     each request is a new task; its answer is waited for

PostgreSQL is started in a folder of its own, with fsync on. It counts statements (pg_stat_statements), transactions
that write, and syncs of its log; those that servers make without a request are among them.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import swarms
from bench.http import ROOT, Connection, Server, ServerFailed
from bench.report import Result, Row, Skipped

WIDTHS = (1, 8, 32)
"""How many connections send requests at the same time."""

STATEMENTS = 12
"""SQL statements per request of three turns (DESIGN, Budgets)."""

SERVERS = 2
SETTINGS = {"fsync": "on", "shared_preload_libraries": "pg_stat_statements", "autovacuum": "off"}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """What has been done since the start: counts of PostgreSQL, and CPU seconds."""

    statements: int
    transactions: int
    python: float
    postgres: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request took, on average."""

    statements: float
    transactions: float
    python: float
    postgres: float
    rate: float


class Cluster:
    """A PostgreSQL server, and its counters."""

    def __init__(self, url: str, postmaster: int) -> None:
        import psycopg

        self.url = url
        self._postmaster = postmaster
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def read(self, servers: list[Server]) -> Reading:
        """Read all counters but the one of syncs."""
        python = sum(server.cpu() for server in servers)
        postgres = self._cpu()
        ((statements,),) = self._rows("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements")
        ((transactions,),) = self._rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        return Reading(int(statements), int(transactions), python, postgres)

    def read_syncs(self) -> int:
        """Read how often the log has been synced. Sessions report it late, but not later than they end."""
        ((syncs,),) = self._rows("SELECT wal_sync FROM pg_stat_wal")
        return int(syncs)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _rows(self, query: Any) -> list[Any]:
        return self._connection.execute(query).fetchall()

    def _cpu(self) -> float:
        """CPU seconds of the server: of its processes that run, and of those that have ended."""
        ticks = 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(entry.name) == self._postmaster:
                    ticks += sum(map(int, fields[11:15]))
                elif int(fields[1]) == self._postmaster:
                    ticks += sum(map(int, fields[11:13]))
        return ticks / TICKS


def measure(samples: int, requests: int) -> list[Result]:
    """Samples of `requests` requests each, over each number of connections in turns."""
    try:
        with cluster() as postgres:
            before = postgres.read_syncs()
            with serve(postgres.url) as first, serve(postgres.url) as second:
                rows = asyncio.run(_measure(postgres, [first, second], samples, requests))
            count = samples * len(WIDTHS) * requests + _warm_up(requests)
            syncs = (postgres.read_syncs() - before) / count
            return [*rows, Row("postgres", "request of 3 turns: syncs of the log", syncs, "")]
    except ServerFailed as error:
        return [Skipped("postgres", str(error))]


def _warm_up(requests: int) -> int:
    return max(requests // 4, 5)


async def _measure(postgres: Cluster, servers: list[Server], samples: int, requests: int) -> list[Result]:
    await sample(postgres, servers, 1, _warm_up(requests))
    found: dict[int, list[Sample]] = {width: [] for width in WIDTHS}
    for _ in range(samples):
        for width in WIDTHS:
            found[width].append(await sample(postgres, servers, width, requests))
    return [row for width, taken in found.items() for row in _rows(width, taken)]


async def sample(postgres: Cluster, servers: list[Server], width: int, requests: int) -> Sample:
    """Send so many requests to the first server over so many connections, each the next one as soon as it can."""
    connections = [await Connection.open(servers[0].url) for _ in range(width)]
    request = servers[0].request()
    left = iter(range(requests))

    async def ask(connection: Connection) -> None:
        for _ in left:
            answer = json.loads(await connection.ask(request))["response"]
            if answer != swarms.ANSWER:
                raise ServerFailed(f"the server answers {answer!r}")

    before, begin = postgres.read(servers), time.perf_counter()
    await asyncio.gather(*map(ask, connections))
    seconds, after = time.perf_counter() - begin, postgres.read(servers)
    for connection in connections:
        connection.close()
    return Sample(
        (after.statements - before.statements) / requests,
        (after.transactions - before.transactions) / requests,
        (after.python - before.python) / requests,
        (after.postgres - before.postgres) / requests,
        requests / seconds,
    )


def _rows(width: int, samples: list[Sample]) -> list[Row]:
    def row(what: str, values: list[float], unit: str, budget: float | None = None) -> Row:
        return Row("postgres", f"request of 3 turns, {width} at once: {what}", median(values), unit, budget)

    return [
        row("statements", [each.statements for each in samples], "", STATEMENTS),
        row("transactions that write", [each.transactions for each in samples], ""),
        row("CPU of both servers", [each.python * 1e3 for each in samples], "ms CPU"),
        row("CPU of PostgreSQL", [each.postgres * 1e3 for each in samples], "ms CPU"),
        row("rate", [each.rate for each in samples], "req/s"),
    ]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start PostgreSQL with an empty database. Raises ServerFailed if it is not installed."""
    sys.path.append(str(ROOT / "tests"))
    try:
        from support.engines.postgres import PostgresServer, has_postgres
    except ImportError as error:
        raise ServerFailed(f"{error.name} is missing") from error
    if not has_postgres():
        raise ServerFailed("PostgreSQL is not installed")
    server = PostgresServer(SETTINGS)
    postgres = Cluster(server.url(), server.number)
    try:
        yield postgres
    finally:
        postgres.close()
        server.remove()


@contextmanager
def serve(url: str, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """Run MAIL on a database in a process of its own, with these variables besides."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.postgres", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            if not ready:
                raise ServerFailed("a server did not start")
            yield Server(process, **json.loads(ready))
        finally:
            process.stdin.close()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


async def main(url: str) -> None:
    """Serve until stdin ends; answer each of its lines with the CPU seconds used so far."""
    from mail.auth.keys import Caller
    from mail.auth.tokens import issue_token
    from mail.bootstrap import local
    from mail.config import LimitsConfig, ServerConfig
    from mail.server.process import serving

    config = ServerConfig(limits=LimitsConfig(requests_per_second=0)).with_overrides(database=url)
    system = local(config, swarm=swarms.ping_pong(1), environ={})
    token = await issue_token(system.documents, Caller("user", "ann"))
    async with serving(system) as address:
        print(json.dumps({"url": address, "token": token}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
