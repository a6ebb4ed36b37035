"""What every `LiveLink` must do: the turn runs in one process, and the watcher is connected to another.

In memory and on SQLite both are the same process, without a link.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from support.engines.adapters import SQLiteAdapter
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.postgres import PostgresAdapter, has_postgres
from support.faults.gates import TEXT, Gate, gated_swarm

from mail.adapters.local.queue import LocalQueue
from mail.adapters.postgres.backend import PostgreSQL
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.callbacks import LATER, CallResult, Later
from mail.core.task.documents import IN_MEMORY
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.ports import LiveLink, Store
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import TaskKey
from mail.core.turns.context import current_context
from mail.testing.agents import NAME, build_swarm, call, complete

ANN = Principal(role="user", id="ann", swarm=NAME)
KEY = TaskKey(str(ANN), "t")

Server = tuple[Store, LiveLink | None]
Servers = tuple[Server, Server]
"""The store and the link of the process in which the turn runs, and of the one with the watcher."""


@asynccontextmanager
async def on_sqlite(path: str | Path) -> AsyncIterator[Servers]:
    adapter = SQLiteAdapter(path)
    await adapter.open()
    yield (adapter.store, None), (adapter.store, None)
    await adapter.close()


@asynccontextmanager
async def on_dynamodb(_: Path) -> AsyncIterator[Servers]:
    adapter = DynamoDBAdapter("moto")
    await adapter.open()
    one, other = adapter.another(), adapter.another()
    yield (one, one.live), (other, other.live)
    await adapter.close()


@asynccontextmanager
async def on_postgres(_: Path) -> AsyncIterator[Servers]:
    adapter = PostgresAdapter()
    await adapter.open()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(postgres_server(adapter.url)) for _ in range(2)]
        yield servers[0], servers[1]
    await adapter.close()


@asynccontextmanager
async def postgres_server(url: str) -> AsyncIterator[Server]:
    """As a server has them."""
    backend = PostgreSQL(url).open(NAME, SYSTEM_CLOCK, LocalQueue())
    await backend.start(AsyncMock())
    yield backend.store, backend.live
    await backend.close()


LINKS: dict[str, Callable[[Path], AbstractAsyncContextManager[Servers]]] = {
    "memory": lambda _: on_sqlite(IN_MEMORY),
    "sqlite": lambda folder: on_sqlite(folder / "mail.db"),
    "dynamodb": on_dynamodb,
    **({"postgres": on_postgres} if has_postgres() else {}),
}


class Stage:
    """The process in which the turn runs, and that with the watcher."""

    def __init__(self, here: Server, there: Server, swarm: SwarmCore | None = None) -> None:
        self.gate = Gate()
        self.swarm = swarm or gated_swarm(self.gate)
        self.turns = self._runtime(here)
        self.watcher = self.turns if here[0] is there[0] else self._runtime(there)

    def _runtime(self, server: Server) -> Runtime:
        store, link = server
        return Runtime(self.swarm, store, LocalQueue(), SYSTEM_CLOCK, live_link=link)

    async def submit(self, **options: Any) -> None:
        await self.turns.submit(ANN, Submission(body="hello", task_id="t", **options))

    def run(self) -> asyncio.Task[Any]:
        return asyncio.create_task(self.turns.run_turn(KEY, "supervisor"))

    def watch(self, **options: Any) -> Any:
        events = self.watcher.watch(KEY, heartbeat=0.05, calls=True)
        return aclosing(self.watcher.with_live(KEY, events, **options))


@pytest.fixture(params=sorted(LINKS))
async def servers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Servers]:
    async with LINKS[request.param](tmp_path) as pair:
        yield pair


@pytest.fixture
def stage(servers: Servers) -> Stage:
    return Stage(*servers)


async def read_until(batches: AsyncIterator[Any], *kinds: LiveKind) -> list[LiveEvent]:
    """Return the live events that come, until there is one of each of these kinds."""
    found: list[LiveEvent] = []
    async with asyncio.timeout(20):
        async for batch in batches:
            found += [event for event in batch if isinstance(event, LiveEvent)]
            if {event.kind for event in found} >= set(kinds):
                return found
    raise AssertionError(f"there came only {found}")


async def test_a_watcher_sees_a_turn_and_its_action_begin_and_end(stage: Stage) -> None:
    await stage.submit(live=True)
    async with stage.watch() as batches:
        await read_nothing(batches)
        running = stage.run()
        begun = await read_until(batches, LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED)
        assert not running.done()
        stage.gate.opened.set()
        ended = await read_until(batches, LiveKind.TURN_ENDED)
        await running
    assert {event.turn for event in begun} == {event.turn for event in ended}
    assert {event.extra["agent"] for event in begun} == {"supervisor"}
    kinds = [event.kind for event in begun + ended]
    assert LiveKind.TEXT_DELTA not in kinds
    for kind in (LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED, LiveKind.TURN_ENDED):
        assert kinds.count(kind) == 1


async def read_nothing(batches: AsyncIterator[Any]) -> None:
    """Read the first batch, so that the watch has begun."""
    async with asyncio.timeout(20):
        await anext(batches)


async def test_who_joins_sees_what_runs(stage: Stage) -> None:
    await stage.submit()
    running = stage.run()
    await stage.gate.begun.wait()
    async with stage.watch() as batches:
        begun = await read_until(batches, LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED)
        stage.gate.opened.set()
        await running
    action = next(event for event in begun if event.kind is LiveKind.ACTION_STARTED)
    assert (action.extra["agent"], action.extra["tool_name"]) == ("supervisor", "web_search")


async def test_pieces_of_text_come_once_and_in_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.adapters.aws.live.PAUSE_SECONDS", 0.0)
    await stage.submit(live=True, deltas=True)
    text = ""
    async with stage.watch(deltas=True) as batches:
        await read_nothing(batches)
        running = stage.run()
        while text != TEXT:
            assert TEXT.startswith(text)
            text += "".join(event.delta for event in await read_until(batches, LiveKind.TEXT_DELTA))
        stage.gate.opened.set()
        await running


async def test_a_turn_that_nobody_watches_publishes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[LiveEvent] = []
    monkeypatch.setattr(stage.turns.turns.live, "publish", lambda _key, event: published.append(event))
    await stage.submit()
    stage.gate.opened.set()
    await stage.run()
    assert published == []
    assert not stage.turns.turns.live.watched


async def test_what_a_late_call_reports_is_seen_while_it_waits(servers: Servers) -> None:
    tokens: list[str] = []

    async def render(_arguments: dict[str, Any]) -> Later:
        tokens.append(current_context().callback.token)
        return LATER

    stage = Stage(
        *servers,
        build_swarm(
            {"supervisor": lambda view: [complete("done") if tokens else call("render")]},
            actions={"render": ActionCore("render", render, finish_within=3600.0)},
        ),
    )
    await stage.submit()
    await stage.run()
    callbacks = stage.turns.callbacks
    await callbacks.report(tokens[0], "a tenth")
    async with stage.watch() as batches:
        (joined,) = await read_until(batches, LiveKind.ACTION_PROGRESS)
        assert (joined.extra["name"], joined.extra["progress"]) == ("render", "a tenth")
        await callbacks.report(tokens[0], "half")
        await callbacks.report(tokens[0], "almost")
        reports = await read_until(batches, LiveKind.ACTION_PROGRESS)
        while reports[-1].extra["progress"] != "almost":
            reports += await read_until(batches, LiveKind.ACTION_PROGRESS)
        assert {each.kind for each in reports} == {LiveKind.ACTION_PROGRESS}
        assert reports[-1].extra["due"] == joined.extra["due"]
        await callbacks.finish(tokens[0], CallResult("a film"))
        await stage.run()
        assert [each async for each in batches]
