"""Leases are short and renewed: a worker that is gone, frozen or cut off loses its turns, and no other does."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mail.adapters.local.queue import LocalQueue
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.engine.telemetry import Observer
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.leases import Claim
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable
from mail.testing.agents import View, build_swarm, call, complete, wait
from mail.testing.rig import Rig

LEASE = 2.0


class Counted(Observer):
    """Counts the turns that were taken over."""

    def __init__(self) -> None:
        self.taken_over: list[str] = []

    def turn_taken_over(self, mailbox: str) -> None:
        self.taken_over.append(mailbox)


class Renewals:
    """The renewals that reached a store, each as the mailboxes; `cut` cuts the worker off."""

    def __init__(self, rig: Rig) -> None:
        self.made: list[list[str]] = []
        self.is_cut = False
        self._renew = rig.store.renew
        rig.store.renew = self

    async def __call__(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        if self.is_cut:
            raise StoreUnavailable
        self.made.append(sorted(turn.mailbox for turn in turns))
        return await self._renew(turns, expires=expires)


@asynccontextmanager
async def started(policies: dict[str, Any], **options: Any) -> AsyncIterator[tuple[Rig, Renewals, Counted]]:
    """A rig whose leases are short, on the clock of the system; turns are run by hand."""
    async with Rig(build_swarm(policies, **options), clock=SYSTEM_CLOCK, concurrency=0) as rig:
        counted = Counted()
        rig.runtime = another(rig, counted)
        yield rig, Renewals(rig), counted


def another(rig: Rig, *observers: Observer) -> Runtime:
    """Another worker on the store of a rig."""
    return Runtime(rig.swarm, rig.store, rig.queue, rig.clock, lease_seconds=LEASE, observers=observers)


def begun(rig: Rig, key: TaskKey, **options: Any) -> asyncio.Task[TurnReport]:
    return asyncio.create_task(rig.runtime.run_turn(key, "supervisor", **options))


async def drain(queue: LocalQueue) -> list[tuple[TaskKey, str]]:
    return [await queue.take() for _ in range(len(queue))]


async def within(seconds: float, condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what it waits for sets no event
            await asyncio.sleep(0.005)


async def test_a_long_turn_keeps_its_lease_and_a_quick_one_needs_no_renewal() -> None:
    go = asyncio.Event()

    async def slow(view: View) -> Any:
        if view.mail.body == "slow":
            await go.wait()
        return [complete("done")]

    async with started({"supervisor": slow}) as (rig, renewals, counted):
        quick = await rig.submit("quick")
        assert (await begun(rig, quick.key)).outcome is TurnReport.Outcome.COMMITTED
        assert renewals.made == []
        submitted = await rig.submit("slow")
        running = begun(rig, submitted.key)
        await within(20, lambda: len(renewals.made) == 4)  # longer than a lease
        other = another(rig)
        assert (await other.sweep()).taken_over == 0
        assert (await other.run_turn(submitted.key, "supervisor")).outcome is TurnReport.Outcome.BUSY
        go.set()
        assert (await running).outcome is TurnReport.Outcome.COMMITTED
        assert counted.taken_over == []


async def test_one_call_renews_the_leases_of_all_turns() -> None:
    go = asyncio.Event()

    async def slow(view: View) -> Any:
        await go.wait()
        return [complete("done")]

    async with started({"supervisor": slow}) as (rig, renewals, _):
        keys = [(await rig.submit()).key for _ in range(50)]
        begin = time.monotonic()
        running = [begun(rig, key) for key in keys]
        await within(20, lambda: len(renewals.made) == 3)
        took = time.monotonic() - begin
        go.set()
        assert {report.outcome for report in await asyncio.gather(*running)} == {TurnReport.Outcome.COMMITTED}
        assert [len(made) for made in renewals.made[1:3]] == [50, 50]
        assert took > 0.9 * LEASE, "one per third of a lease"


async def test_the_caller_hears_of_renewals_so_that_its_message_stays_hidden() -> None:
    heard: list[float] = []

    async def hide(seconds: float) -> None:
        heard.append(seconds)

    async def slow(view: View) -> Any:
        await within(20, lambda: len(heard) == 2)
        return [complete("done")]

    async with started({"supervisor": slow}) as (rig, _, _):
        submitted = await rig.submit()
        await begun(rig, submitted.key, on_renewal=hide)
        assert all(LEASE < seconds < LEASE + 2.1 for seconds in heard), (
            "for longer than the lease, by the skew"
        )


async def test_a_worker_that_is_cut_off_stops_its_own_turn() -> None:
    """Its agent and its actions end before another worker may begin; the store decides about the rest."""
    ended: list[str] = []
    ran: list[str] = []

    async def write(args: dict[str, Any]) -> str:
        ran.append("begun")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "written"

    def supervisor(view: View) -> Any:
        return [complete(view.results[-1])] if view.results else [call("write")]

    swarm = {"supervisor": supervisor}
    async with started(swarm, actions={"write": write}) as (rig, renewals, _):
        submitted = await rig.submit()
        running = begun(rig, submitted.key)
        await within(20, lambda: ran)
        renewals.is_cut = True
        with pytest.raises(StoreUnavailable):
            await running
        assert ended == ["cancelled"]
        renewals.is_cut = False
        heir = another(rig)
        assert (await heir.run_turn(submitted.key, "supervisor")).outcome is TurnReport.Outcome.COMMITTED
        await heir.run_turn(submitted.key, "supervisor")
        assert ran == ["begun"], "an action that is not idempotent is not repeated"
        assert "unknown" in (await rig.outcome(submitted)).answer


async def test_a_frozen_worker_loses_its_turn_once_and_its_death_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    thaw = asyncio.Event()

    async def supervisor(view: View) -> Any:
        calls.append("called")
        if len(calls) == 1:
            await thaw.wait()
            return [complete("from the grave")]
        return [complete("taken over")]

    async with started({"supervisor": supervisor}) as (rig, renewals, _):
        submitted = await rig.submit()
        running = begun(rig, submitted.key)
        await within(20, lambda: calls)
        await drain(rig.queue)
        never: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()

        async def hang(*_: Any, **__: Any) -> set[str]:
            return await never

        rig.store.renew = hang
        rig.runtime.turns._heartbeat._stop_expired = lambda due: None  # type: ignore[method-assign]
        await asyncio.sleep(LEASE + 0.05)
        counted, others = Counted(), [another(rig), another(rig)]
        survivor = another(rig, counted)
        with caplog.at_level(logging.WARNING, "mail.core.engine"):
            assert (await survivor.sweep()).taken_over == 1
            assert [(await other.sweep()).taken_over for other in others] == [0, 0]
            assert await drain(rig.queue) == [(submitted.key, "supervisor")]
            report = await survivor.run_turn(submitted.key, "supervisor")
        assert report.outcome is TurnReport.Outcome.COMMITTED
        assert counted.taken_over == ["supervisor"]
        (told,) = [line for line in caplog.messages if "counts as dead" in line]
        assert f"supervisor of task {submitted.key.task_id}" in told
        thaw.set()
        assert (await running).outcome is TurnReport.Outcome.LOST
        outcome = await rig.outcome(submitted)
        assert (outcome.answer, outcome.kinds.count("task_complete")) == ("taken over", 1)
        assert renewals.made == []


async def test_a_wake_up_that_comes_to_a_frozen_turn_is_repeated_after_its_loss() -> None:
    calls: list[str] = []
    thaw = asyncio.Event()

    async def supervisor(view: View) -> Any:
        calls.append(view.mail.body)
        if len(calls) == 1:
            await thaw.wait()
        return [complete("done") if view.mail.body == "second" else wait("the second")]

    async with started({"supervisor": supervisor}) as (rig, renewals, _):
        submitted = await rig.submit("first")
        running = begun(rig, submitted.key)
        await within(20, lambda: calls)
        await rig.submit("second", task_id=submitted.key.task_id)
        renewals.is_cut = True
        rig.runtime.turns._heartbeat._stop_expired = lambda due: None  # type: ignore[method-assign]
        await asyncio.sleep(LEASE + 0.05)
        survivor = another(rig)
        assert (await survivor.run_turn(submitted.key, "supervisor")).outcome is TurnReport.Outcome.COMMITTED
        assert {*await drain(rig.queue)} == {(submitted.key, "supervisor")}, "for the second message"
        assert (await begun(rig, submitted.key)).outcome is TurnReport.Outcome.BUSY
        thaw.set()
        assert (await running).outcome is TurnReport.Outcome.LOST
        assert await drain(rig.queue) == [(submitted.key, "supervisor")]
        await survivor.run_turn(submitted.key, "supervisor")
        assert (await rig.outcome(submitted)).answer == "done"


async def test_a_worker_that_is_told_of_its_loss_stops_its_agent() -> None:
    cancelled: list[bool] = []
    entered = asyncio.Event()

    async def supervisor(view: View) -> Any:
        if entered.is_set():
            return [complete("taken over")]
        entered.set()
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.append(True)

    async with started({"supervisor": supervisor}) as (rig, _, _):
        submitted = await rig.submit()
        running = begun(rig, submitted.key)
        await entered.wait()
        leases = await rig.store.read_leases(submitted.key, now=0.0)
        turn = await rig.store.open_turn(
            submitted.key,
            "supervisor",
            leases["supervisor"].__class__("heir/1", time.time() + 60),
            now=time.time() + 2 * LEASE,
            history_after=0,
        )
        assert turn.replaced == leases["supervisor"]  # type: ignore[union-attr]
        assert (await running).outcome is TurnReport.Outcome.LOST
        assert cancelled == [True]


async def test_a_busy_event_loop_does_not_run_its_own_turn_a_second_time() -> None:
    """The heartbeat was late; nobody else is there who could have taken over."""
    calls: list[str] = []

    async def supervisor(view: View) -> Any:
        calls.append("called")
        await asyncio.sleep(0.01)
        time.sleep(1.5 * LEASE)  # noqa: ASYNC251 - it is what an agent should not do
        await asyncio.sleep(0)
        return [complete("done")]

    async with started({"supervisor": supervisor}) as (rig, _, counted):
        submitted = await rig.submit()
        running = begun(rig, submitted.key)
        await within(20, lambda: calls)
        await asyncio.sleep(0.02)  # after which it blocks
        assert (await rig.runtime.sweep()).taken_over == 0
        again = await rig.runtime.run_turn(submitted.key, "supervisor")
        assert (await running).outcome is TurnReport.Outcome.COMMITTED
        assert again.outcome is not TurnReport.Outcome.COMMITTED
        assert (calls, counted.taken_over) == (["called"], [])
