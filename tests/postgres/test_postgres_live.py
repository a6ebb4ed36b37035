"""Live events between servers: the turn runs at one, and the watcher is connected to the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mail.adapters.postgres.live import PostgresLive
from mail.adapters.postgres.notifier import PAYLOAD_BYTES, Notifier
from mail.adapters.postgres.pool import Postgres
from mail.core.protocol.address import Principal
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import TaskKey
from mail.testing.agents import NAME

ANN = Principal(role="user", id="ann", swarm=NAME)
KEY = TaskKey(str(ANN), "t")


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
