"""503: what another process, a full disk or an authentication service does to requests, and to all others meanwhile."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from support.processes.http_server import HTTPServer

import mail.adapters.sqlite.database
from mail.auth.keys import Caller
from mail.errors import AuthServiceUnavailable
from mail.testing.agents import build_swarm, complete


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock, as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
    async with HTTPServer(swarm, path=tmp_path / "mail.db") as server:
        yield server


async def test_another_process_holds_the_lock_for_long(
    server: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers who write are refused after a while; later the same requests succeed."""
    monkeypatch.setattr(mail.adapters.sqlite.database, "LOCK_TIMEOUT", 0.1)
    with locked(tmp_path / "mail.db"):
        requests = [server.post(task_id="t", headers={"Idempotency-Key": "k"}), server.post(), server.post()]
        answers = await asyncio.gather(*requests)
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), answer.text
        assert answer.json()["detail"].startswith("Another process has locked the database")
    answer = await server.post(task_id="t", headers={"Idempotency-Key": "k"})
    assert answer.json()["response"] == "hi"


async def test_nobody_else_waits_for_the_lock(server: HTTPServer, tmp_path: Path) -> None:
    with locked(tmp_path / "mail.db"):
        posts = [asyncio.create_task(server.post(task_id=f"t-{n}")) for n in range(10)]
        for _ in range(10):
            assert (await server.client.get("/health")).status_code == 200
            assert (await server.client.get("/whoami")).status_code == 200
        assert not any(post.done() for post in posts)
    assert [answer.status_code for answer in await asyncio.gather(*posts)] == [200] * 10


async def test_a_full_disk(server: HTTPServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also for what is stored besides tasks."""
    sql = server.rig.database.connection
    (pages,) = sql.execute("PRAGMA page_count").fetchone()
    sql.execute(f"PRAGMA max_page_count = {pages}")
    for n in range(200):  # until no page has room
        headers = {"Idempotency-Key": f"{n}-{'x' * 200}", "Prefer": "respond-async"}
        answer = await server.post(headers=headers)
        if answer.status_code != 202:
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
        answer: httpx2.Response = await server.client.get("/whoami")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
