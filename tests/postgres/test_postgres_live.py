"""Live events between servers: the turn runs at one, and the watcher is connected to the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from mail import bootstrap
from mail.adapters.postgres.live import CHANNEL, PostgresLive
from mail.adapters.postgres.notifier import PAYLOAD_BYTES, Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.core.decisions.submit import Submission
from mail.core.protocol.address import Principal
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey
from mail.server.process import serving
from mail.testing.agents import NAME, build_agent, build_swarm, call, complete

ANN = Principal(role="user", id="ann", swarm=NAME)
KEY = TaskKey(str(ANN), "t")


class Gate:
    """Where the action waits, so that the test knows that it runs."""

    def __init__(self) -> None:
        self.begun, self.opened, self.seen = asyncio.Event(), asyncio.Event(), asyncio.Event()


def swarm(gate: Gate) -> SwarmCore:
    async def supervise(view: Any) -> Any:
        if view.mail.sender_type == "system":
            await gate.seen.wait()
        return [complete("done")] if view.mail.sender_type == "system" else [call("web_search", q="x")]

    async def web_search(_args: Any) -> str:
        gate.begun.set()
        await gate.opened.wait()
        return "found"

    agent = build_agent(supervise, supervises=True, actions=["web_search"])
    return build_swarm({"supervisor": agent}, actions={"web_search": web_search})


def open_system(url: str, folder: Path, gate: Gate) -> LocalSystem:
    config = ServerConfig().with_overrides(database=url, swarm_registry=str(folder / "registry.json"))
    return bootstrap.local(config, swarm=swarm(gate), environ={})


@asynccontextmanager
async def stream(base: str, headers: dict[str, str]) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """Watch the task with live events; yields the kind and data of each event."""
    query = {"task_id": "t", "live": "true"}
    async with (
        httpx2.AsyncClient(base_url=base, headers=headers, timeout=30) as http,
        http.stream("GET", "/task/stream", params=query) as response,
    ):
        assert response.status_code == 200

        async def read() -> AsyncIterator[tuple[str, Any]]:
            kind = ""
            async for line in response.aiter_lines():
                name, _, text = line.partition(": ")
                if name == "event":
                    kind = text
                elif name == "data":
                    yield kind, json.loads(text)

        yield read()


async def test_a_watcher_at_another_server_sees_an_action_begin_and_end(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sent = Gate(), list[Any]()
    execute = psycopg.AsyncConnection.execute

    async def note(self: Connection, query: Any, *args: Any, **options: Any) -> Any:
        if args and args[0] and CHANNEL in args[0]:
            sent.append(args[0])
        return await execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", note)
    async with AsyncExitStack() as stack:
        here = open_system(url, tmp_path, gate)
        await stack.enter_async_context(serving(here))
        there = open_system(url, tmp_path, gate)
        monkeypatch.setattr("mail.adapters.local.workers.LocalWorkers.start", _nothing)
        base = await stack.enter_async_context(serving(there))
        token = await issue_token(here.documents, Caller("user", "ann"))
        before = len(sent)
        await here.runtime.submit(ANN, Submission(body="hello", task_id="t"))
        async with asyncio.timeout(60):
            await gate.begun.wait()
        assert len(sent) == before, "nobody watches"
        async with stream(base, {"Authorization": f"Bearer {token}"}) as events, asyncio.timeout(20):
            async for kind, data in events:
                if kind == "action_started":  # it runs since before
                    assert data["extra_data"]["tool_name"] == "web_search"
                    gate.opened.set()
                    break
            rest = []
            async for kind, data in events:
                rest.append(kind)
                if kind == "action_ended":
                    assert data["extra_data"]["seconds"] > 0
                    gate.seen.set()
        assert rest.count("action_ended") == 1
        assert rest[-1] == "task_complete"


async def _nothing(_self: object) -> None:
    """Start no workers: this server takes no turn."""


class Recorder:
    """Notes what comes through a link."""

    def __init__(self) -> None:
        self.marked: list[tuple[TaskKey, bool]] = []
        self.events: list[LiveEvent] = []
        self.came = asyncio.Event()

    def mark(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        self.marked.append((key, deltas))
        self.came.set()

    def deliver(self, key: TaskKey, events: Any) -> None:
        self.events += events
        self.came.set()


@asynccontextmanager
async def link(url: str, recorder: Recorder) -> AsyncIterator[PostgresLive]:
    postgres = Postgres(url)
    notifier = Notifier(postgres)
    live = PostgresLive(postgres, notifier)
    live.attach(recorder)
    await notifier.start()
    try:
        yield live
    finally:
        await live.close()
        await notifier.stop()
        await postgres.close()


async def test_a_long_text_arrives_in_pieces_and_whole(url: str) -> None:
    one, other = Recorder(), Recorder()
    text = "ü\n\U0001f600" * 5_000
    async with link(url, one) as sender, link(url, other), asyncio.timeout(20):
        for n in range(0, len(text), 500):
            extra = {"agent": "a", "kind": "text", "delta": text[n : n + 500]}
            sender.publish(KEY, LiveEvent(LiveKind.TEXT_DELTA, "w/1", n, "now", "", extra))
        sender.publish(KEY, LiveEvent(LiveKind.TURN_ENDED, "w/1", 10**6, "now", "x" * PAYLOAD_BYTES, {}))
        sender.publish(KEY, LiveEvent(LiveKind.TURN_ENDED, "w/1", 10**6 + 1, "now", "end", {}))
        while not other.events or other.events[-1].text != "end":
            other.came.clear()
            await other.came.wait()
    assert "".join(event.extra["delta"] for event in other.events[:-1]) == text
    assert not one.events


async def test_a_server_that_starts_learns_what_others_watch(url: str) -> None:
    one, other = Recorder(), Recorder()
    async with link(url, one) as watcher:
        await watcher.announce(KEY, seconds=60, deltas=True)
        async with link(url, other), asyncio.timeout(20):
            await other.came.wait()
    assert other.marked == [(KEY, True)]
