"""What a request costs PostgreSQL: statements, round trips, syncs of the log.

Exact counts, over HTTP; nothing that runs by time.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from support.engines.postgres import PostgresServer, make_database

from mail import bootstrap
from mail.adapters.postgres.pool import Connection, Postgres
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.config import LimitsConfig, ServerConfig
from mail.core.task.swarm import SwarmCore
from mail.server.process import serving
from mail.testing.agents import View, build_swarm, complete, request, respond

STATEMENTS = 12
"""Of a request of three turns (docs/architecture.md, Budgets)."""

PER_REQUEST = {"count(*)": 1, "mail.documents": 1, "INSERT INTO mail.tasks": 1}
PER_TURN = {"FOR NO KEY UPDATE": 1, "UPDATE mail.tasks": 1}
"""The statements, by what is in them."""

AT_WORK: ContextVar[bool] = ContextVar("at_work", default=False)
"""Whether a statement belongs to work that the server asks for; a pool that opens a connection meanwhile has its own.
"""

BY_TIME = (
    *("local.workers.SWEEP", "postgres.liveness.LIVENESS", "postgres.queue.POLL", "postgres.notifier.POLL"),
    *("postgres.notifier.PAUSE", "postgres.store.HERE", "shared.search.PAUSE"),
)


@pytest.fixture(autouse=True)
def _no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BY_TIME:
        monkeypatch.setattr(f"mail.adapters.{name}_SECONDS", 3600.0)
    monkeypatch.setattr("mail.bootstrap.system.CACHE_SECONDS", 3600.0)


def swarm(exchanges: int) -> SwarmCore:
    """The supervisor asks the worker so many times, then completes the task: 2 × exchanges + 1 turns."""

    def supervisor(view: View) -> Any:
        asked = sum(message.sender == "worker" for message in view.messages)
        return [request("worker", "please")] if asked < exchanges else [complete("done")]

    return build_swarm({"supervisor": supervisor, "worker": lambda view: [respond("supervisor", "here")]})


@asynccontextmanager
async def ask(url: str, folder: Path, exchanges: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run a server; yields what sends it a request, and waits for the answer."""
    limits = LimitsConfig(requests_per_second=0)
    registry = str(folder / "registry.json")
    config = ServerConfig(limits=limits).with_overrides(database=url, swarm_registry=registry)
    system = bootstrap.local(config, swarm=swarm(exchanges), environ={})
    token = await issue_token(system.documents, Caller("user", "ann"))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        serving(system) as base,
        httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as http,
    ):

        async def post() -> None:
            response = await http.post("/message", json={"body": "hello"})
            assert response.json()["response"] == "done", response.text

        await post()  # the first one looks up the token, and is notified of
        yield post


@pytest.mark.parametrize("exchanges", [0, 1, 4])
async def test_statements_of_a_request(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: int
) -> None:
    statements: list[str] = []
    trips: Counter[str] = Counter()
    execute, run = psycopg.AsyncConnection.execute, Postgres.run

    async def count_statement(self: Connection, query: Any, *args: Any, **options: Any) -> Any:
        if AT_WORK.get():
            statements.append(query)
        return await execute(self, query, *args, **options)

    async def count_trip(self: Postgres, work: Any) -> Any:
        trips[work.__qualname__] += 1

        async def counted(connection: Connection, is_retry: bool) -> Any:
            AT_WORK.set(True)
            return await work(connection, is_retry)

        return await run(self, counted)

    requests, turns = 5, 2 * exchanges + 1
    async with ask(url, tmp_path, exchanges) as post:
        monkeypatch.setattr(psycopg.AsyncConnection, "execute", count_statement)
        monkeypatch.setattr(Postgres, "run", count_trip)
        for _ in range(requests):
            await post()
        found, count = Counter(map(kind, statements)), trips.total()
    expected = {**PER_REQUEST, **{name: n * turns for name, n in PER_TURN.items()}}
    assert found == {name: n * requests for name, n in expected.items()}
    assert count == (len(PER_REQUEST) + turns) * requests
    if turns == 3:
        assert sum(expected.values()) + 2 <= STATEMENTS  # with a notification, and one more within the pause


def kind(statement: str) -> str:
    """Which statement it is; one that nobody expects is returned as it is."""
    kinds = [name for name in (*PER_REQUEST, *PER_TURN) if name in statement]
    return kinds[0] if len(kinds) == 1 else statement


@pytest.fixture(scope="module")
def durable() -> Iterator[str]:
    """A database whose log is synced, by commits only."""
    settings = {"fsync": "on", "autovacuum": "off", "wal_writer_delay": "10s", "checkpoint_timeout": "1h"}
    server = PostgresServer(settings)
    yield make_database(server.url())
    server.remove()


@pytest.mark.soak
async def test_syncs_of_the_log(durable: str, tmp_path: Path) -> None:
    """One for a request, and one for each turn: what is acknowledged is on the disk.

    Sessions report theirs as they end.
    """

    async def syncs(requests: int) -> int:
        before = read_syncs(durable)
        async with ask(durable, tmp_path, 1) as post:
            for _ in range(requests):
                await post()
        return read_syncs(durable) - before

    await syncs(1)
    few, many = await syncs(1), await syncs(11)
    assert (
        -2 <= (many - few) - 10 * (1 + 3) <= 3
    )  # PostgreSQL may sync on its own account, also in the first run


def read_syncs(url: str) -> int:
    """How often the log has been synced, once all other sessions have ended."""
    others = "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(others).rowcount:
            pass
        ((count,),) = connection.execute("SELECT wal_sync FROM pg_stat_wal").fetchall()
        return int(count)
