"""Generated bad requests: none gets a 5xx, none changes anything.

`MAIL_FUZZ` is how many raw ones are sent (by the tier, if not given), and scales how many schemathesis makes;
`MAIL_FUZZ_SEED` chooses others.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from random import Random
from threading import Thread
from typing import Any

import pytest
import requests
import schemathesis
from bad_requests import BadRequests
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.plugins.tiers import sized
from support.processes.http_server import HTTPServer

from mail.core.task.documents import Kind
from mail.core.task.task import TaskStatus
from mail.testing.agents import build_swarm, complete

FUZZ = int(os.environ.get("MAIL_FUZZ", sized(fast=500, full=500, soak=50_000)))
SEED = int(os.environ.get("MAIL_FUZZ_SEED", "1"))
EXAMPLES = max(5, FUZZ // 100)
"""Requests that schemathesis makes per operation, good ones and bad ones each."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def quick_swarm() -> Any:
    return build_swarm({"supervisor": lambda _: [complete()]})


def stored(server: HTTPServer) -> list[Any]:
    """The documents but those of refused requests, and how many tasks and commits there are: none is ever changed."""
    sql = server.rig.database.connection
    counts = [sql.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ("tasks", "commits")]
    return [*counts, sql.execute("SELECT * FROM documents WHERE kind <> ?", (Kind.AUDIT,)).fetchall()]


async def fingerprint(server: HTTPServer) -> list[Any]:
    """What changes with whatever is stored; waits until nothing runs any more."""
    while True:
        callers = ("user:ann@example", "admin:root@example")
        pages = [await server.rig.store.list_tasks(caller, status=TaskStatus.RUNNING) for caller in callers]
        if not any(page.tasks for page in pages):
            return stored(server)
        await asyncio.sleep(0.001)


# ---------------------------------------------------------------------------------------------- raw bytes


class Connection:
    """A keep-alive connection that sends raw bytes and reads what comes back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and body of the answer; on a connection that turns out to be closed, by a new one."""
        if self._streams is not None:
            try:
                return await self._exchange(*self._streams, request)
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.close()
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        return await self._exchange(*self._streams, request)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> tuple[int, bytes]:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").lower().split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields if field)
        status = int(line.split()[1])
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
        if status == 413 or headers.get("connection") == "close":
            await self.close()  # what was announced is never sent
        return status, body

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@pytest.fixture
async def quick_server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(quick_swarm()) as server:
        await server.ask(task_id="done")
        yield server


@pytest.mark.timeout(600)
async def test_raw_bytes(quick_server: HTTPServer) -> None:
    requests = BadRequests(Random(SEED), quick_server.keys)
    connection = Connection(quick_server.port)
    before = await fingerprint(quick_server)
    statuses: Counter[int] = Counter()
    for request in islice(requests, FUZZ):
        async with asyncio.timeout(60):
            status, body = await connection.send(request)
        statuses[status] += 1
        assert 400 <= status < 500, (status, body, request[:2000])
        assert body.startswith(b'{"detail":') or b"Invalid HTTP request received." in body, (
            body,
            request[:500],
        )
        if stored(quick_server) != before:
            pytest.fail(f"something was stored: {request[:2000]!r}")
    await connection.close()
    assert await fingerprint(quick_server) == before
    assert statuses.total() == FUZZ
    assert statuses.keys() >= {400, 401, 403, 404, 405, 413}


# ---------------------------------------------------------------------------------------- schemathesis


class Background:
    """A server on an event loop of its own, for clients that block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self.server: HTTPServer = self.run(self._start())

    async def _start(self) -> HTTPServer:
        return await HTTPServer(quick_swarm()).__aenter__()

    async def _stop(self) -> None:
        await self.server.__aexit__(None, None, None)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    def close(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.close()


OPERATIONS = [
    "GET /", "GET /health", "POST /health", "GET /whoami", "GET /status", "POST /message", "GET /tasks", "GET /task",
    "GET /task/stream", "GET /threads", "GET /threads/{thread_id}", "GET /swarm", "GET /swarms",
    "POST /swarms", "DELETE /swarms/{name}", "GET /usage",
]  # fmt: skip

NOTHING_TO_GET_WRONG = ("GET /", "GET /health", "GET /swarm", "GET /swarms")


def cases() -> Iterator[Any]:
    for operation in OPERATIONS:
        yield pytest.param(operation, GenerationMode.POSITIVE, id=f"good {operation}")
        if operation not in NOTHING_TO_GET_WRONG:
            yield pytest.param(operation, GenerationMode.NEGATIVE, id=f"bad {operation}")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("operation", "mode"), list(cases()))
def test_schemathesis(background: Background, operation: str, mode: GenerationMode) -> None:
    server = background.server
    schema = schemathesis.openapi.from_dict(server.app.openapi())
    method, path = operation.split()
    headers = server.headers("admin")
    base_url = f"http://127.0.0.1:{server.port}"

    @given(schema[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: schemathesis.Case) -> None:
        before = background.run(fingerprint(server))
        response = case.call(base_url=base_url, session=session, headers=headers)
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert background.run(fingerprint(server)) == before, "something was stored"

    with requests.Session() as session:
        check()
