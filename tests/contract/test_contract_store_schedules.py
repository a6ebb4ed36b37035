"""Store: what schedules ask of it. Each time begins one run, at most a minute late, whichever servers die or freeze."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, cast

import pytest
from support.engines.adapters import StoreAdapter

from mail.adapters.local.queue import LocalQueue
from mail.core.engine.runtime import Runtime
from mail.core.protocol.cron import latest_times
from mail.core.task.leases import AHEAD_SECONDS
from mail.core.task.ports import Store
from mail.core.task.schedules import RunState, Schedule, owner_of_schedules
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import ScheduleTaken
from mail.testing.agents import NAME, build_swarm, complete
from mail.testing.changes import ANN
from mail.testing.clock import FakeClock

SWARM = build_swarm({"supervisor": lambda _view: [complete("done")]})
ZONE = "Europe/Berlin"
SWEEPS = (-30, 0, 30, 60)
"""Seconds before and after each half hour at which servers sweep, and functions look ahead."""


def spec(name: str = "daily", cron: str = "30 2 * * *", **given: Any) -> Schedule:
    return Schedule.model_validate(
        {"name": name, "cron": cron, "timezone": ZONE, "body": "look", "caller": ANN, **given}
    )


class Died(BaseException):
    """The process is gone."""


@dataclass
class Fallible:
    """A store whose process dies, or freezes, at one of its commits: before it, or after it."""

    store: Store
    fate: tuple[int, str] | None = None
    commits: int = 0
    frozen: asyncio.Event | None = None
    freezes: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_frozen(self) -> bool:
        return self.freezes.is_set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.store, name)

        async def commit(change: Any) -> None:
            self.commits += 1
            number, when = self.fate or (inf, "")
            if self.commits >= number and when == "before":
                await self._end()
            await method(change)  # unless another server was first
            if self.commits >= number:
                await self._end()

        return commit if name == "commit" else method

    async def _end(self) -> None:
        if self.frozen is None:
            raise Died
        self.freezes.set()
        await self.frozen.wait()


@dataclass
class Server:
    """A process that looks after schedules; the turns of their runs are taken elsewhere."""

    store: Store
    clock: FakeClock
    fate: tuple[int, str] | None = None
    frozen: asyncio.Event | None = None
    late: list[asyncio.Task[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fallible = Fallible(self.store, self.fate, frozen=self.frozen)
        queue = LocalQueue(lambda: self.clock.now().timestamp())
        self.runtime = Runtime(SWARM, cast(Store, self.fallible), queue, self.clock)

    async def sweep(self) -> None:
        """Sweep, unless the process is frozen."""
        if self.fallible.is_frozen:
            return
        sweeping, freezing = map(asyncio.ensure_future, (self.runtime.sweep(), self.fallible.freezes.wait()))
        await asyncio.wait((sweeping, freezing), return_when=asyncio.FIRST_COMPLETED)
        freezing.cancel()
        if sweeping.done():
            await sweeping
        else:
            self.late.append(sweeping)


def clock_at(text: str) -> FakeClock:
    return FakeClock(start=datetime.fromisoformat(text))


async def runs_of(store: Store) -> dict[str, float]:
    """Return the lateness of each run of Ann's, in seconds, by the id of its task."""
    late = {}
    for task in (await store.list_tasks(ANN, limit=1000)).tasks:
        at = datetime.fromisoformat(task.task_id.partition("@")[2])
        late[task.task_id] = (datetime.fromisoformat(task.started) - at).total_seconds()
    return late


FREEZES = [(1, "before"), (1, "after"), (2, "before"), (2, "after"), (3, "before"), (3, "after")]
"""The commits of a run: it is starting, its task has begun, it runs."""


FORWARD, BACK = "2026-03-29T00:59+00:00", "2026-10-25T00:29+00:00"


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize(
    ("begin", "fate"),
    [(BACK, None), (FORWARD, None), *((FORWARD, fate) for fate in FREEZES[1::2])],
    ids=["back", "forward", *(f"frozen after {number}" for number, _ in FREEZES[1::2])],
)
async def test_three_servers_one_frozen_where_clocks_move(
    adapter: StoreAdapter, begin: str, fate: tuple[int, str] | None
) -> None:
    clock, thaw = clock_at(begin), asyncio.Event()
    first = clock.now().timestamp()
    halves = [first + 60 + 1800 * n for n in range(3)]
    servers = [
        Server(adapter.store, clock, fate, thaw),
        Server(adapter.store, clock),
        Server(adapter.store, clock),
    ]
    frozen, healthy, _ = servers
    specs = [spec(), spec("often", "0,30 1-3 * * *"), spec("hourly", "0 * * * *")]
    for each in specs:
        await healthy.runtime.schedules.save(each, "admin:ops", is_new=True)
    for at in (half + offset for half in halves for offset in SWEEPS):
        clock.advance(at - clock.now().timestamp())
        await asyncio.gather(*(server.sweep() for server in servers))
        for task in (await adapter.store.list_tasks(ANN, status=TaskStatus.RUNNING)).tasks:
            await healthy.runtime.run_turn(task.key, "supervisor")
    expected = {
        f"{each.name}@{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%MZ}"
        for each in specs
        for at in latest_times(each.cron, ZONE, first, halves[-1], 100)
    }
    assert frozen.fallible.is_frozen is (fate is not None)
    assert not healthy.fallible.is_frozen
    late = await runs_of(adapter.store)
    assert late.keys() == expected
    assert max(late.values()) <= 60
    thaw.set()
    await asyncio.gather(*frozen.late)
    for server in servers:
        await server.sweep()
    assert await runs_of(adapter.store) == late
    for task in (await adapter.store.list_tasks(ANN)).tasks:
        assert task.generation.number == 1
        response = await adapter.store.read_response(task.key, 1)
        assert response is not None
    for state in await healthy.runtime.schedules.all():
        ids = [run.task_id(state.spec.name) for run in state.runs]
        assert sorted(ids) == sorted(each for each in expected if each.startswith(f"{state.spec.name}@"))
        assert {run.state for run in state.runs} == {RunState.COMPLETED}
        assert state.failures == 0


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", FREEZES, ids=lambda fate: f"{fate[1]} {fate[0]}")
async def test_a_server_that_dies_leaves_its_run_to_the_next(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    clock = clock_at("2026-03-28T12:00+00:00")
    await Server(adapter.store, clock).runtime.schedules.save(spec(), "admin:ops", is_new=True)
    clock.advance(13 * 3600)
    with pytest.raises(Died):
        await Server(adapter.store, clock, fate).runtime.sweep()
    server = Server(adapter.store, clock)
    await server.runtime.sweep()
    assert list(await runs_of(adapter.store)) == ["daily@2026-03-29T01:00Z"]
    state = await server.runtime.schedules.read("daily")
    assert [run.state for run in state.runs] == [RunState.RUNNING]


async def test_of_two_that_create_one_at_once_one_is_refused(adapter: StoreAdapter) -> None:
    schedules = Server(adapter.store, clock_at("2026-03-28T12:00+00:00")).runtime.schedules
    made = await asyncio.gather(
        *(schedules.save(spec(body=body), "admin:ops", is_new=True) for body in ("one", "two")),
        return_exceptions=True,
    )
    (state,) = [each for each in made if not isinstance(each, BaseException)]
    assert [type(each) for each in made if isinstance(each, BaseException)] == [ScheduleTaken]
    assert await schedules.read("daily") == state


async def test_what_is_stored_of_a_schedule(durable: StoreAdapter) -> None:
    clock = clock_at("2026-03-28T12:00+00:00")
    server = Server(durable.store, clock)
    schedules = server.runtime.schedules
    saved = await schedules.save(
        spec(overlap="queue", missed="all", subject="Look"), "admin:ops", is_new=True
    )
    reader = Server(await durable.reopen(), clock)
    assert await reader.runtime.schedules.read("daily") == saved
    assert await reader.runtime.schedules.all() == [saved]
    store, owner = reader.store, owner_of_schedules(NAME)
    assert await store.count_running(owner, upto=9) == 0
    assert await store.count_active_instances() == 0
    assert await store.list_due(clock.now().timestamp() + AHEAD_SECONDS) == []
    assert await store.list_ready() == []
    [due] = await store.list_due(clock.now().timestamp() + 86_400)
    assert (due.task.key, due.due) == (TaskKey(owner, "daily"), saved.next)
    events = await store.read_events(due.task.key)
    for _ in range(20):
        clock.advance(86_400)
        await reader.runtime.sweep()
    assert await store.read_events(due.task.key) == events
    await reader.runtime.schedules.delete("daily")
    assert await store.list_due(clock.now().timestamp() + 90 * 86_400) == []
    assert await store.load(TaskKey(ANN, "daily@2026-03-29T01:00Z")) is not None


async def test_a_sweep_has_a_schedule_looked_at_in_time(adapter: StoreAdapter) -> None:
    """Where sweeps come each minute, they send what will be due before the next one."""
    clock = clock_at("2026-03-29T00:58:30+00:00")
    server = Server(adapter.store, clock)
    await server.runtime.schedules.save(spec(), "admin:ops", is_new=True)
    published: list[Any] = []

    async def publish(wake_ups: Any) -> None:
        published.extend(wake_ups)

    server.runtime.queue.publish = publish  # type: ignore[method-assign]
    await server.runtime.sweep(ahead=AHEAD_SECONDS)
    [wake_up] = published
    assert (wake_up.key.task_id, wake_up.mailbox, wake_up.not_before) == (
        "daily",
        "",
        clock.now().timestamp() + 90,
    )
    clock.advance(90)
    await server.runtime.look_after(wake_up.key)
    assert await runs_of(adapter.store) == {"daily@2026-03-29T01:00Z": 0.0}
