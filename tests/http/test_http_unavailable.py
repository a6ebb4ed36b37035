"""503: what another process, a full disk or an authentication service does to requests, and to all others meanwhile."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.http_server import HTTPServer

import mail.adapters.sqlite.database
from mail.auth.keys import Caller
from mail.errors import AuthServiceUnavailable
from mail.testing.agents import build_swarm, complete


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
    async with HTTPServer(swarm, path=tmp_path / "mail.db") as server:
        yield server


async def test_another_process_holds_the_lock(
    server: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers who write are refused after a while; nobody else waits; later the same requests succeed."""
    monkeypatch.setattr(mail.adapters.sqlite.database, "LOCK_TIMEOUT", 0.3)
    with closing(sqlite3.connect(tmp_path / "mail.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        posts = [
            asyncio.create_task(server.post(task_id=f"t-{n}", headers={"Idempotency-Key": f"k-{n}"}))
            for n in range(10)
        ]
        longest = 0.0
        for _ in range(10):
            before = time.perf_counter()
            assert (await server.client.get("/health")).status_code == 200
            longest = max(longest, time.perf_counter() - before)
            await asyncio.sleep(0.02)
        answers = await asyncio.gather(*posts)
        other.execute("ROLLBACK")
    assert longest < 0.3, "it is some milliseconds on a machine with nothing else to do"
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), answer.text
        assert answer.json()["detail"].startswith("Another process has locked the database")
    answer = await server.post(task_id="t-0", headers={"Idempotency-Key": "k-0"})
    assert answer.json()["response"] == "hi"


async def test_a_short_lock_is_not_noticed(server: HTTPServer, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mail.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        posts = [asyncio.create_task(server.post(task_id=f"t-{n}")) for n in range(10)]
        await asyncio.sleep(0.2)
        assert not any(post.done() for post in posts)
        other.execute("ROLLBACK")
    assert [answer.status_code for answer in await asyncio.gather(*posts)] == [200] * 10


async def test_a_full_disk(server: HTTPServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also for what is stored besides tasks."""
    sql = server.rig.database.connection
    (pages,) = sql.execute("PRAGMA page_count").fetchone()
    sql.execute(f"PRAGMA max_page_count = {pages}")
    for n in range(200):  # until no page has room
        answer = await server.post(headers={"Idempotency-Key": f"{n}-{'x' * 200}"})
        if answer.status_code != 200:
            break
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    status = await server.client.post("/health", json={"status": "x" * 256}, headers=server.headers("admin"))
    assert status.status_code in (200, 503)
    assert "Traceback" not in caplog.text


class Silent:
    async def authenticate(self, key: str) -> Caller:
        raise AuthServiceUnavailable


async def test_an_authentication_service_that_is_silent() -> None:
    swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
    async with HTTPServer(swarm, authenticator=Silent()) as server:
        answer: httpx.Response = await server.client.get("/whoami")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
