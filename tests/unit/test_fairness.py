"""No caller keeps the others waiting: they take turns, and none of them gets all workers."""

import asyncio
import random
import threading
import time
from typing import Any

import pytest

from mail.actions.functions import as_action_function
from mail.adapters.local import capacity
from mail.adapters.local.queue import LocalQueue
from mail.core.engine.action_threads import DEFAULT_SIZE, ActionThreads
from mail.core.engine.fairness import RoundRobin, Shares
from mail.core.protocol.address import Principal
from mail.core.protocol.message import Tier
from mail.core.task.ports import WakeUp
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey
from mail.core.turns.context import TURN, TurnContext, lend_time_limit
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.rig import Rig


def person(name: str) -> Principal:
    return Principal(role="user", id=name, swarm="example")


def wake_up(caller: str, number: int, tier: Tier = Tier.AGENT) -> WakeUp:
    return WakeUp(TaskKey(caller, f"task-{number}"), "agent", tier)


class TestQueue:
    async def order(self, *wake_ups: WakeUp) -> list[str]:
        queue = LocalQueue()
        await queue.publish(wake_ups)
        return [f"{key.instance}{key.task_id[-1]}" for key, _ in [await queue.take() for _ in wake_ups]]

    async def test_each_callers_next_turn_comes_before_anybodys_second_one(self) -> None:
        greedy = [wake_up("a", n) for n in range(4)]
        others = [wake_up("b", 0), wake_up("b", 1), wake_up("c", 0)]
        assert await self.order(*greedy, *others) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]

    async def test_only_inside_a_tier(self) -> None:
        urgent = [wake_up("a", n, Tier.PERSON) for n in range(3)]
        assert await self.order(wake_up("b", 0), *urgent) == ["a0", "a1", "a2", "b0"]

    async def test_a_caller_that_comes_back_goes_behind_those_who_wait(self) -> None:
        queue = LocalQueue()
        await queue.publish([wake_up("a", 0), wake_up("b", 0), wake_up("c", 0)])
        assert (await queue.take())[0].instance == "a"
        await queue.publish([wake_up("a", 1)])
        assert [(await queue.take())[0].instance for _ in range(3)] == ["b", "c", "a"]

    async def test_the_wake_ups_of_excluded_callers_wait(self) -> None:
        queue = LocalQueue()
        await queue.publish([wake_up("a", 0, Tier.SYSTEM), wake_up("b", 0)])
        assert (await queue.take({"a"}))[0].instance == "b"
        taking = asyncio.create_task(queue.take({"a"}))
        await asyncio.sleep(0)
        assert not taking.done()
        await queue.publish([wake_up("c", 0)])
        assert (await taking)[0].instance == "c"
        assert (await queue.take())[0].instance == "a"

    def test_nothing_is_lost_or_doubled(self) -> None:
        chance = random.Random(7)
        line: RoundRobin[int] = RoundRobin()
        put, taken = 0, []
        for _ in range(2_000):
            if chance.random() < 0.5:
                line.put(chance.choice("abcde"), put)
                put += 1
            elif (item := line.take(chance.sample("abcde", 2))) is not None:
                taken.append(item)
        while (item := line.take()) is not None:
            taken.append(item)
        assert sorted(taken) == list(range(put))


class TestShares:
    @pytest.mark.parametrize(("limit", "shares"), [(1, [1, 0]), (2, [1, 1, 0]), (64, [48, 12, 3, 1, 0])])
    def test_how_much_callers_get_who_take_what_they_can(self, limit: int, shares: list[int]) -> None:
        used = Shares(limit)
        for number, share in enumerate(shares):
            taken = 0
            while used.free and str(number) not in used.full():
                used.begin(str(number))
                taken += 1
            assert taken == share

    @pytest.mark.parametrize(
        ("limit", "shares"), [(1, [0, 0]), (2, [1, 0]), (3, [2, 0]), (64, [48, 12, 3, 0])]
    )
    def test_how_much_may_begin_without_waiting_for_a_place(self, limit: int, shares: list[int]) -> None:
        used = Shares(limit)
        for number, share in enumerate(shares):
            reserved = 0
            while used.lets_begin(str(number), reserved):
                reserved += 1
            assert reserved == share
            for _ in range(reserved):
                used.begin(str(number))

    def test_a_caller_whose_uses_have_ended_has_its_share_again(self) -> None:
        used = Shares(4)
        for _ in range(3):
            used.begin("a")
        assert used.full() == {"a"}
        used.end("a")
        assert used.full() == frozenset()


async def test_long_turns_of_one_caller_do_not_delay_anothers() -> None:
    """Hold every turn of one that may be held; another's turns run, and so do those of the first when a place
    is free.
    """
    held = asyncio.Event()
    running: list[str] = []

    async def supervisor(view: View) -> Any:
        if view.mail.sender == "greedy":
            running.append(view.mail.body)
            await held.wait()
        return [complete(view.mail.body)]

    async with Rig(build_swarm({"supervisor": supervisor}), concurrency=8) as rig:
        greedy = [await rig.submit(f"task {n}", caller=person("greedy")) for n in range(100)]
        while len(running) < 6:  # noqa: ASYNC110 - agents append
            await asyncio.sleep(0)
        for _ in range(20):
            assert (await rig.ask("quick", caller=person("other"))).answer == "quick"
        assert len(running) == 6
        held.set()
        assert [(await rig.outcome(task)).answer for task in greedy] == [f"task {n}" for n in range(100)]


async def test_a_caller_waits_for_its_own_share_only() -> None:
    """While one caller is full and nobody else has mail, the end of one of its turns begins the next."""
    running: list[asyncio.Event] = []

    async def act(args: dict[str, Any]) -> str:
        running.append(asyncio.Event())
        await running[-1].wait()
        return "acted"

    def supervisor(view: View) -> Any:
        return [call("act")] if len(view.messages) == 1 else [complete("done")]

    async with Rig(build_swarm({"supervisor": supervisor}, actions={"act": act}), concurrency=4) as rig:
        tasks = [await rig.submit() for _ in range(10)]
        for number in range(10):
            while len(running) < min(10, 3 + number):  # noqa: ASYNC110 - actions append
                await asyncio.sleep(0)
            assert len(running) == min(10, 3 + number)
            running[number].set()
        assert [(await rig.outcome(task)).answer for task in tasks] == ["done"] * 10


class TestActionThreads:
    """Actions that are plain functions run in threads of their own, which callers share."""

    async def test_no_more_run_at_once_and_none_is_lost(self) -> None:
        threads = ActionThreads(4)
        TURN.set(TurnContext(caller="a"))
        now, most, lock = 0, 0, threading.Lock()

        def work(number: int) -> int:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.002)
            with lock:
                now -= 1
            return number

        assert await asyncio.gather(*(threads.run(work, n) for n in range(60))) == list(range(60))
        assert most == 3

    async def test_blocked_functions_of_one_caller_do_not_delay_anothers(self) -> None:
        threads = ActionThreads(4)
        blocked = threading.Event()
        TURN.set(TurnContext(caller="greedy"))
        greedy = [asyncio.create_task(threads.run(blocked.wait, 20)) for _ in range(50)]
        await asyncio.sleep(0)
        TURN.set(TurnContext(caller="other"))
        assert await asyncio.gather(*(threads.run(int, "7") for _ in range(20))) == [7] * 20
        blocked.set()
        assert await asyncio.gather(*greedy) == [True] * 50

    async def test_an_end_that_makes_room_for_two_lets_two_begin(self) -> None:
        """The thread that has become free takes the job of the caller whose turn it is; an idle one takes another's."""
        threads = ActionThreads(4)
        blocked, first = threading.Event(), threading.Event()

        async def begin(caller: str, until: threading.Event, *, waits: bool = False) -> asyncio.Task[bool]:
            TURN.set(TurnContext(caller=caller))
            begun = threading.Event()
            job = asyncio.create_task(threads.run(lambda: begun.set() or until.wait(20)))
            await asyncio.to_thread(begun.wait, 0.05 if waits else 20)
            assert begun.is_set() != waits
            return job

        greedy = [await begin("greedy", blocked) for _ in range(2)]
        others = [await begin("other", first)]
        greedy.append(await begin("greedy", blocked, waits=True))
        TURN.set(TurnContext(caller="other"))
        others += [asyncio.create_task(threads.run(bool, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        first.set()
        assert await asyncio.gather(*others) == [True] * 4
        assert not any(each.done() for each in greedy)
        blocked.set()
        assert await asyncio.gather(*greedy) == [True] * 3

    async def test_a_time_limit_begins_with_the_function(self) -> None:
        threads = ActionThreads(1)
        blocked = threading.Event()
        first = asyncio.create_task(threads.run(blocked.wait, 20))
        async with asyncio.timeout(20) as limit:
            end = limit.when()
            with lend_time_limit(limit):
                second = asyncio.create_task(threads.run(int, "2"))
            await asyncio.sleep(0)
            assert limit.when() is None, "it waits for a thread"
            blocked.set()
            assert await second == 2
            assert limit.when() > end  # type: ignore[operator]
        await first

    async def test_a_function_that_takes_too_long_is_left_alone(self) -> None:
        threads = ActionThreads(1)
        blocked = threading.Event()

        async def wait() -> None:
            async with asyncio.timeout(0.01) as limit:
                with lend_time_limit(limit):
                    await threads.run(blocked.wait, 20)

        with pytest.raises(TimeoutError):
            await wait()
        blocked.set()
        assert await threads.run(int, "2") == 2

    async def test_a_function_that_is_no_longer_awaited_does_not_begin(self) -> None:
        threads = ActionThreads(1)
        blocked, ran = threading.Event(), []
        first = asyncio.create_task(threads.run(blocked.wait, 20))
        second = asyncio.create_task(threads.run(ran.append, 2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        blocked.set()
        assert await first
        await threads.run(ran.append, 3)
        assert ran == [3]

    async def test_actions_use_them(self) -> None:
        """An action of a swarm.json that blocks, of one caller; another's runs beside it."""
        blocked = threading.Event()

        def act(arguments: dict[str, Any]) -> str:
            if arguments["block"]:
                blocked.wait(20)
            return f"{asyncio.run(asyncio.sleep(0, 'acted'))} {TURN.get().caller}"

        schema = {"type": "object", "properties": {"block": {"type": "boolean"}}}
        action = ActionCore("act", as_action_function("act", act, schema))
        swarm = build_swarm(
            {
                "supervisor": lambda view: (
                    [call("act", block=view.mail.sender == "greedy")]
                    if len(view.messages) == 1
                    else [complete(view.mail.body)]
                )
            },
            actions={"act": action},
        )
        async with Rig(swarm) as rig:
            greedy = [await rig.submit(caller=person("greedy")) for _ in range(DEFAULT_SIZE + 10)]
            assert (await rig.ask(caller=person("other"))).answer == "act: acted user:other@example"
            blocked.set()
            answers = {(await rig.outcome(task)).answer for task in greedy}
        assert answers == {"act: acted user:greedy@example"}


@pytest.mark.parametrize(
    ("limits", "turns"), [([8 << 30, 1 << 30], 4_096), ([40 << 30], 163_840), ([64 << 20], 256), ([], 64)]
)
def test_turns_follow_memory(monkeypatch: pytest.MonkeyPatch, limits: list[int], turns: int) -> None:
    monkeypatch.setattr(capacity, "_limits", lambda: iter(limits))
    assert capacity.turns_in_memory() == turns


def test_the_memory_of_this_machine_is_known() -> None:
    assert capacity.turns_in_memory() > capacity.FEWEST
