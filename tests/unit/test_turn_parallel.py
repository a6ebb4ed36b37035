"""Agents of one task work at the same time; one agent never does two things at once."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from support.plugins.tiers import sized

from mail.adapters.local.workers import LocalWorkers
from mail.core.engine.heartbeat import LEASE_SECONDS
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.testing.agents import (
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    wait,
)
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig, ask_once


class Meter:
    """Counts who is at work at the same time."""

    def __init__(self) -> None:
        self.now: Counter[Any] = Counter()
        self.most_at_once = 0
        self.overlaps_with_itself: list[Any] = []

    async def work(self, who: Any, yields: int = 3) -> None:
        self.now[who] += 1
        if self.now[who] > 1:
            self.overlaps_with_itself.append(who)
        self.most_at_once = max(self.most_at_once, sum(self.now.values()))
        for _ in range(yields):
            await asyncio.sleep(0)
        self.now[who] -= 1


def asking(count: int) -> Any:
    """A supervisor that asks so many workers, and ends the task when all have answered."""

    def supervisor(view: View) -> Any:
        if len(view.messages) == 1:
            return [request(f"worker-{n}") for n in range(count)] + [wait()]
        return [complete("all")] if len(view.messages) == count + 1 else [wait()]

    return supervisor


async def test_tasks_overlap_in_time() -> None:
    barrier = asyncio.Barrier(5)

    async def supervisor(view: View) -> Any:
        await barrier.wait()
        return [complete(view.mail.body)]

    outcomes = await asyncio.gather(
        *(ask_once(build_swarm({"supervisor": supervisor}), f"task {n}") for n in range(5))
    )
    assert [outcome.answer for outcome in outcomes] == [f"task {n}" for n in range(5)]


async def test_two_runtimes_on_one_store_keep_out_of_each_others_turns() -> None:
    """Leases, and not the queue, are what keeps a mailbox to one worker."""
    meter = Meter()

    async def worker(view: View) -> Any:
        await meter.work(("worker", view.messages[0].body))
        return [respond("supervisor", view.mail.body)]

    async def supervisor(view: View) -> Any:
        await meter.work(("supervisor", view.messages[0].body))
        if len(view.messages) == 1:
            return [request("worker", view.mail.body) for _ in range(6)] + [wait()]
        return [complete("all")] if len(view.messages) == 7 else [wait()]

    async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
        second = Runtime(rig.swarm, rig.store, rig.queue, rig.clock)
        workers = LocalWorkers(second, rig.queue)
        await workers.start()
        outcomes = await asyncio.gather(*(rig.ask(f"task {n}") for n in range(5)))
        await workers.stop()
    assert {outcome.answer for outcome in outcomes} == {"all"}
    assert meter.overlaps_with_itself == []
    for outcome in outcomes:
        assert outcome.task.generation.turns == 13


async def test_concurrency_is_bounded() -> None:
    meter = Meter()

    async def supervisor(view: View) -> Any:
        await meter.work(view.mail.body)
        return [complete()]

    async with Rig(build_swarm({"supervisor": supervisor}), concurrency=3) as rig:
        callers = [Principal(role="user", id=f"user-{n}", swarm=rig.swarm.name) for n in range(20)]
        await asyncio.gather(*(rig.ask(f"task {n}", caller=callers[n]) for n in range(20)))
    assert meter.most_at_once == 3


@pytest.mark.parametrize("seed", range(sized(fast=5, full=5, soak=500)))
async def test_random_interleavings_lose_and_repeat_nothing(seed: int) -> None:
    """Many agents, each slow at random; every request is answered once, every event has its place."""
    chance = random.Random(seed)
    names = [f"worker-{n}" for n in range(4)]

    async def pause() -> None:
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)

    async def worker(view: View) -> Any:
        await pause()
        if view.mail.subject == "News":
            return [acknowledge()]
        if view.mail.subject == "Request" and view.mail.sender == "supervisor":
            return [respond("supervisor", view.mail.body), broadcast(view.mail.body)]
        return [wait()]

    async def supervisor(view: View) -> Any:
        await pause()
        if view.mail.sender_type == "user":
            return [request(name, f"{name} {n}") for name in names for n in range(3)] + [wait()]
        answers = [letter.body for letter in view.messages if letter.subject == "Response"]
        if view.mail.subject == "News":
            return [acknowledge()] if len(answers) < 12 else [complete(",".join(sorted(answers)))]
        return [wait()] if len(answers) < 12 else [complete(",".join(sorted(answers)))]

    agents: dict[str, Any] = {"supervisor": supervisor} | dict.fromkeys(names, worker)
    async with Rig(build_swarm(agents, task_message_limit=500)) as rig:
        outcome = await rig.ask()
        histories = {name: View(await rig.history(name, outcome.key), "").messages for name in agents}
        inbox = await rig.inbox(outcome.key)
    assert outcome.answer == ",".join(sorted(f"{name} {n}" for name in names for n in range(3)))
    assert [event.seq for event in outcome.events] == list(range(1, len(outcome.events) + 1))
    for name, letters in histories.items():
        read = Counter((letter.subject, letter.body) for letter in letters)
        waiting = Counter(
            (entry.message.message.subject, entry.message.message.body)
            for entry in inbox
            if entry.mailbox == name
        )
        sent = Counter(
            (message.message.subject, message.message.body)
            for message in outcome.messages[:-1]
            if message.message.recipients[0].address in ("all", name) and message.sender.address != name
        )
        assert read + waiting == sent
        assert max(read.values()) == 1


async def test_conflicting_commits_call_no_agent_twice() -> None:
    """Eight workers commit on the same version; seven decide again, and none asks its model again."""
    calls: Counter[str] = Counter()
    barrier = asyncio.Barrier(8)

    def worker(name: str) -> Any:
        async def policy(view: View) -> Any:
            calls[name] += 1
            await barrier.wait()
            return [respond("supervisor", name)]

        return policy

    agents: dict[str, Any] = {"supervisor": asking(8)} | {
        f"worker-{n}": worker(f"worker-{n}") for n in range(8)
    }
    async with Rig(build_swarm(agents, task_message_limit=50)) as rig:
        commit = rig.store.commit

        async def commit_slowly(change: Any) -> None:
            await asyncio.sleep(0)
            await commit(change)

        rig.store.commit = commit_slowly  # type: ignore[method-assign]
        outcome = await rig.ask()
    assert outcome.answer == "all"
    assert calls == Counter({f"worker-{n}": 1 for n in range(8)})
    assert [event.seq for event in outcome.events] == list(range(1, len(outcome.events) + 1))


async def test_a_turn_that_may_not_run_hands_on_what_came_meanwhile() -> None:
    """Two mailboxes run into the step limit at once. The first to notice sends the notice to the second, whose
    token is dropped, as its mailbox is leased by a turn that then finds nothing to do."""

    rounds: list[int] = []

    def supervisor(view: View) -> Any:
        if view.mail.sender_type == "system":
            return [complete(view.mail.subject)]
        return [request("worker"), request("supervisor"), wait()]

    chief = build_agent(supervisor, targets=["worker", "supervisor"], supervises=True, name="supervisor")
    swarm = build_swarm(
        {"supervisor": chief, "worker": lambda view: [respond("supervisor")]},
        task_message_limit=1,
    )
    async with Rig(swarm) as rig:
        read = rig.store.read_events

        async def read_ever_slower(*args: Any, **options: Any) -> Any:
            events = await read(*args, **options)
            rounds.append(len(rounds))
            for _ in range(10 * len(rounds)):
                await asyncio.sleep(0)
            return events

        rig.store.read_events = read_ever_slower  # type: ignore[method-assign]
        response = await rig.runtime.wait(await rig.submit(), 60)
    assert response is not None
    assert response.message.body == "::maximum_steps_reached::"
    assert len(rounds) >= 2


class TestLostLeases:
    """A worker so slow that its lease has run out, and another has taken over."""

    async def take_over(self, policy: Any, actions: Any, clock: FakeClock, entered: asyncio.Event) -> Any:
        """Let the first worker hang until its lease is gone and a second has done the work; then let it go on."""
        async with Rig(build_swarm({"supervisor": policy}, actions=actions), clock=clock) as rig:
            submitted = await rig.submit()
            await entered.wait()
            clock.advance(LEASE_SECONDS)
            second = Runtime(rig.swarm, rig.store, rig.queue, clock)
            await second.run_turn(submitted.key, "supervisor")
            outcome = await rig.outcome(submitted)
            await rig.workers.stop()
            after = await rig.store.load(submitted.key)
            history = await rig.history("supervisor", submitted.key)
        assert after == outcome.task
        return outcome, View(history, "")

    async def test_it_starts_no_action_any_more(self) -> None:
        clock, entered, go = FakeClock(), asyncio.Event(), asyncio.Event()
        calls: list[str] = []
        ran: list[str] = []

        async def act(args: dict[str, Any]) -> str:
            ran.append(args["by"])
            return "acted"

        async def supervisor(view: View) -> Any:
            calls.append("called")
            if len(calls) == 1:
                entered.set()
                await go.wait()
                return [call("act", by="the late one")]
            go.set()
            return [complete("in time")]

        outcome, _ = await self.take_over(supervisor, {"act": act}, clock, entered)
        assert outcome.answer == "in time"
        assert ran == []
