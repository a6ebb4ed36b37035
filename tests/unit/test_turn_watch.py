"""Watching a task on a store that others write to as well: anything may happen between two of its reads."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from mail.adapters.sqlite.store import SQLiteStore
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import READ_AT_ONCE
from mail.core.task.events import Event, EventKind
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.testing.agents import Call, View, build_swarm, complete, turns
from mail.testing.rig import TIMEOUT, Rig


class Overtaken:
    """A store whose task ends right after it was loaded."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, key: TaskKey) -> Task | None:
        task = await self._store.load(key)
        await self._store.wait_for_response(key, 1, seconds=10)
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_task_that_ends_behind_the_watchers_back_ends_the_watch() -> None:
    async with Rig(build_swarm({"supervisor": turns([complete("hi")])})) as rig:
        watcher = Runtime(rig.swarm, cast(Store, Overtaken(rig.store)), rig.queue, rig.clock)
        submitted = await rig.submit()
        async with asyncio.timeout(25):
            batches = [batch async for batch in watcher.watch(submitted.key, heartbeat=30)]
    assert batches[-1][-1].is_terminal


async def test_nothing_comes_after_the_end_of_a_task() -> None:
    """A live event of another process may come while the watch looks whether the task has ended."""
    async with Rig(build_swarm({"supervisor": turns([complete("hi")])})) as rig:
        submitted = await rig.submit()
        late = LiveEvent(LiveKind.TURN_ENDED, "another/1", 1, "", "", {"agent": "supervisor"})
        kinds = list[Any]()

        async def events() -> AsyncGenerator[list[Event] | list[LiveEvent]]:
            async for batch in rig.runtime.watch(submitted.key):
                yield batch
                if batch[-1].is_terminal:
                    rig.runtime.turns.live.deliver(submitted.key, [late])
                    await asyncio.sleep(0.01)

        async with aclosing(rig.runtime.with_live(submitted.key, events())) as batches:
            async for batch in batches:
                kinds += [event.kind for event in batch]
    assert kinds[-1] is EventKind.TASK_COMPLETE


async def test_watchers_of_one_event_read_it_a_few_at_a_time() -> None:
    """In several iterations of the event loop, so that nothing else waits for all of them."""
    loop, iterations, read = asyncio.get_running_loop(), 0, list[int]()

    def count() -> None:
        nonlocal iterations
        iterations += 1
        loop.call_soon(count)

    go = asyncio.Event()

    async def supervisor(view: View) -> list[Call]:
        await go.wait()
        return [complete("hi")]

    async with Rig(build_swarm({"supervisor": supervisor})) as rig:
        submitted = await rig.submit()
        task = await rig.task(submitted.key)

        async def watch() -> None:
            async with aclosing(rig.runtime.watch(submitted.key, after=task.seq)) as batches:
                await anext(batches)
                read.append(iterations)

        watches = [asyncio.create_task(watch()) for _ in range(20)]
        assert isinstance(rig.store, SQLiteStore)
        async with asyncio.timeout(TIMEOUT):
            while len(rig.store._changes._waiting[submitted.key]) < len(watches):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        count()
        go.set()
        await asyncio.gather(*watches)
    assert len(set(read)) >= len(watches) / READ_AT_ONCE
