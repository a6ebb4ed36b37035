"""Attempts at turns, on every store: workers that die in a turn are counted, and after five the turn is set aside."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mail.core.decisions.submit import Submission
from mail.core.engine import attempts
from mail.core.engine.attempts import ENDED
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.ports import Store, WakeUp
from mail.core.task.task import TaskKey
from mail.testing.agents import NAME, View, build_swarm, complete
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm=NAME)
KEY = TaskKey(str(ANN), "t")


class Lost:
    """A queue whose wake-ups are remembered, and taken by nobody."""

    def __init__(self) -> None:
        self.wake_ups: list[WakeUp] = []

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        self.wake_ups += wake_ups


async def test_a_worker_that_freezes_while_a_suspect_waits_is_noticed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "CALM_SECONDS", 0.0)
    begun: list[str] = []
    turns: list[asyncio.Task[TurnReport]] = []

    async def supervisor(view: View) -> list[Any]:
        begun.append(view.mail.body)
        await asyncio.Event().wait()
        return [complete("never")]

    clock, queue = FakeClock(), Lost()

    def worker() -> Runtime:
        clock.advance(200.0)
        return Runtime(build_swarm({"supervisor": supervisor}), store, queue, clock, lease_seconds=100.0)

    async def begin(runtime: Runtime, key: TaskKey) -> None:
        before = len(begun)
        turns.append(asyncio.create_task(runtime.run_turn(key, "supervisor")))
        async with asyncio.timeout(60):
            while len(begun) == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def attempt() -> int | None:
        lease = (await store.read_leases(KEY, now=clock.now().timestamp())).get("supervisor")
        return None if lease is None else lease.attempt

    for task_id in (KEY.task_id, "other"):
        await worker().submit(ANN, Submission(body=task_id, task_id=task_id))
    for _ in range(3):
        await begin(worker(), KEY)
    frozen = worker()
    await begin(frozen, TaskKey(str(ANN), "other"))
    turns.append(asyncio.create_task(frozen.run_turn(KEY, "supervisor")))
    async with asyncio.timeout(60):
        while await attempt() != 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    heir = worker()
    queue.wake_ups.clear()
    assert (await heir.sweep(ahead=1e9)).taken_over == 2
    assert {each.key for each in queue.wake_ups} == {KEY, TaskKey(str(ANN), "other")}
    await begin(heir, KEY)
    assert await attempt() == 4, "that it waited was no attempt"
    for turn in turns:
        turn.cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    assert begun == [*["t"] * 3, "other", "t"]


async def test_five_workers_that_die_in_a_turn_make_it_a_dead_letter(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "CALM_SECONDS", 0.0)
    begun: list[asyncio.Event] = []
    dead: list[asyncio.Task[TurnReport]] = []

    async def supervisor(view: View) -> list[Any]:
        begun[-1].set()
        await asyncio.Event().wait()
        return [complete("never")]

    swarm = build_swarm({"supervisor": supervisor})
    clock = FakeClock()
    queue = Lost()

    def worker() -> Runtime:
        """Return a process that begins when the leases of those before it have expired."""
        clock.advance(200.0)
        return Runtime(swarm, store, queue, clock, lease_seconds=100.0)

    submitted = await worker().submit(ANN, Submission(body="hello", task_id=KEY.task_id))
    for n in range(5):
        begun.append(asyncio.Event())
        dead.append(asyncio.create_task(worker().run_turn(KEY, "supervisor")))
        async with asyncio.timeout(60):
            await begun[-1].wait()
        if n % 2:  # else another worker is faster
            queue.wake_ups.clear()
            assert (await worker().sweep(ahead=1e9)).taken_over == 1
            assert [each.overtakes for each in queue.wake_ups] == [True]
    last = worker()
    assert (await last.run_turn(KEY, "supervisor")).outcome is TurnReport.Outcome.COMMITTED
    answer = await last.wait(submitted, 10)
    assert answer is not None
    assert answer.message.body == f"agent 'supervisor' has failed: {ENDED}"
    for each in dead:
        each.cancel()
    await asyncio.gather(*dead, return_exceptions=True)
    assert len(begun) == 5
    await last.dead_letters.redrive(ANN, KEY)
    begun.append(asyncio.Event())
    again = asyncio.create_task(last.run_turn(KEY, "supervisor"))
    async with asyncio.timeout(60):
        await begun[-1].wait()
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
