"""Turns that end their process, among turns that don't, and processes that are killed while turns run."""

import json
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.engines.postgres import borrow_database, has_postgres, return_database
from support.plugins.tiers import sized
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess, eventually

from mail.core.engine.attempts import ENDED

needs_postgres = pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed")

AGENTS = '''
"""An agent that answers after the time in its message, or ends its process."""

import asyncio
import os

from mail.factories.rules import complete, rule_based


@rule_based
async def make(view):
    body = view.mail.body
    if body == "poison":
        os._exit(1)
    await asyncio.sleep(float(body))
    return [complete(body)]
'''

SETTINGS = """
[server.limits]
requests_per_second = 10000.0
request_burst = 10000
running_tasks = 10000
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.soak])])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    swarm = entry("deadly", supervisor("agent", "deadly:make"))
    write_project(tmp_path, swarm, deadly=AGENTS)
    (tmp_path / "mail.toml").write_text(SETTINGS, encoding="utf-8")
    env = {"PYTHONUNBUFFERED": "1"}
    url = borrow_database() if request.param == "postgres" else ""
    if url:
        env["DATABASE_URL"] = url
    try:
        with ServerProcess(tmp_path, "--swarm-name", "deadly", env=env) as started:
            yield started
    finally:
        if url:
            return_database(url)


class Clients(threading.Thread):
    """Post one message per task, each until it is accepted, whatever becomes of the server."""

    def __init__(self, server: ServerProcess, bodies: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._bodies = bodies
        self._finished = threading.Event()
        self.accepted: dict[str, str] = {}
        self.start()

    def run(self) -> None:
        for number, body in enumerate(self._bodies):
            task_id = f"task-{number}"
            headers = {"Prefer": "respond-async", "Idempotency-Key": task_id}
            while True:
                with suppress(httpx2.HTTPError):
                    if self._server.post(body, task_id=task_id, headers=headers).status_code == 202:
                        self.accepted[task_id] = body
                        break
                time.sleep(0.05)
            if self._finished.wait(0.02):
                return

    def finish(self) -> None:
        """Post nothing more, and wait until what was posted is accepted."""
        self._finished.set()
        self.join(400)


def find_tasks(server: ServerProcess, **query: Any) -> dict[str, Any]:
    """Return the tasks, by id; none if the server has ended."""
    with suppress(httpx2.HTTPError), server.client() as client:
        found = client.get("/tasks", params={"limit": 1000, **query})
        if found.status_code == 200:
            return dict(found.json())
    return {}


def dead_letters(server: ServerProcess) -> list[dict[str, Any]]:
    with server.client() as client:
        return list(client.get("/dead-letters").json()["dead_letters"])


@pytest.mark.soak
def test_one_that_ends_its_process_is_set_aside_and_all_others_are_answered(server: ServerProcess) -> None:
    number = sized(fast=30, full=30, soak=1_000)
    chance = random.Random(5)
    bodies = [f"{chance.uniform(0.0, 1.0):.2f}" for _ in range(number)]
    bodies[number // 2] = "poison"
    clients = Clients(server, bodies)
    deaths = 0
    deadline = time.monotonic() + sized(fast=150, full=150, soak=400)
    while True:
        assert time.monotonic() < deadline
        if server.process.poll() is not None:
            deaths += 1
            server.start()
        running = find_tasks(server, status="running")
        if not clients.is_alive() and not running and server.process.poll() is None and find_tasks(server):
            break
        time.sleep(0.1)
    assert deaths <= 6
    (dead,) = dead_letters(server)
    assert (dead["task_id"], dead["reason"], dead["attempts"]) == (f"task-{number // 2}", ENDED, 5)
    assert len(clients.accepted) == number
    for task_id, body in clients.accepted.items():
        last = server.task(task_id)["events"][-1]
        if body == "poison":
            assert ENDED in last["data"]
        else:
            assert json.loads(last["data"])["response"] == body


@pytest.mark.soak
def test_processes_that_are_killed_set_no_turn_aside(server: ServerProcess) -> None:
    kills = sized(fast=6, full=6, soak=20)
    chance = random.Random(6)
    clients = Clients(server, iter(lambda: f"{random.uniform(0.1, 1.5):.2f}", None))
    for _ in range(kills):
        eventually(lambda: find_tasks(server, status="running"), "turns run")
        time.sleep(chance.uniform(0.0, 2.0))
        server.kill()
        server.start()
    clients.finish()
    eventually(lambda: not find_tasks(server, status="running"), "all tasks have ended")
    assert dead_letters(server) == []
    assert {server.task(task_id)["status"] for task_id in clients.accepted} == {"completed"}
