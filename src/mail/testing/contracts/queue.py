"""TurnQueue: wake-ups come out by urgency, then in the order they went in; doubles are harmless, losses aren't."""

import asyncio
import random

from mail.core.protocol.message import Tier
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.testing.changes import ANN, BOB
from mail.testing.contracts import QueueAdapter, drain

SOON = 5.0


def wake_up(name: str, tier: Tier = Tier.AGENT, instance: str = ANN, cause: str = "") -> WakeUp:
    return WakeUp(TaskKey(instance, "task"), name, tier, cause)


async def names(queue: QueueAdapter) -> list[str]:
    return [mailbox for _, mailbox in await drain(queue)]


async def test_nothing_published_nothing_taken(queue: QueueAdapter) -> None:
    assert await drain(queue) == []
    await queue.queue.publish([])
    assert await drain(queue) == []


async def test_a_wake_up_names_its_task_and_mailbox(queue: QueueAdapter) -> None:
    await queue.queue.publish([wake_up("alpha"), wake_up("alpha", instance=BOB)])
    assert await drain(queue) == [(TaskKey(ANN, "task"), "alpha"), (TaskKey(BOB, "task"), "alpha")]


async def test_urgent_tiers_first(queue: QueueAdapter) -> None:
    for tier in (Tier.BROADCAST, Tier.SYSTEM, Tier.AGENT, Tier.INTERRUPT, Tier.PERSON):
        await queue.queue.publish([wake_up(tier.name, tier)])
    assert await names(queue) == ["SYSTEM", "PERSON", "INTERRUPT", "BROADCAST", "AGENT"]


async def test_inside_a_tier_first_in_first_out(queue: QueueAdapter) -> None:
    expected = [f"agent-{n}" for n in range(50)]
    await queue.queue.publish([*map(wake_up, expected[:20])])
    for name in expected[20:]:
        await queue.queue.publish([wake_up(name)])
    assert await names(queue) == expected


async def test_order_under_load(queue: QueueAdapter) -> None:
    wake_ups = [wake_up(f"agent-{n}", random.Random(n).choice(list(Tier))) for n in range(200)]
    await queue.queue.publish([*wake_ups])
    expected = [each.mailbox for each in sorted(wake_ups, key=lambda each: each.tier)]
    assert await names(queue) == expected


async def test_a_double_is_given_out_once_or_twice_but_loses_nobody_their_place(queue: QueueAdapter) -> None:
    await queue.queue.publish([wake_up("alpha"), wake_up("beta")])
    await queue.queue.publish([wake_up("alpha"), wake_up("alpha")])
    taken = await names(queue)
    assert taken[:2] == ["alpha", "beta"]
    assert set(taken[2:]) <= {"alpha"}


async def test_a_mailbox_with_mail_of_two_tiers_is_woken_by_the_more_urgent(queue: QueueAdapter) -> None:
    await queue.queue.publish([wake_up("other"), wake_up("alpha", Tier.AGENT)])
    await queue.queue.publish([wake_up("alpha", Tier.SYSTEM)])
    taken = await names(queue)
    assert taken[0] == "alpha"
    assert "other" in taken


async def test_what_was_taken_can_be_published_again(queue: QueueAdapter) -> None:
    for _ in range(3):
        await queue.queue.publish([wake_up("alpha")])
        assert await names(queue) == ["alpha"]


async def test_one_cause_is_a_wake_up_or_several_but_never_none(queue: QueueAdapter) -> None:
    for _ in range(3):
        await queue.queue.publish([wake_up("alpha", cause="1"), wake_up("alpha", cause="1")])
    assert {*await names(queue)} == {"alpha"}


async def test_another_cause_is_another_wake_up(queue: QueueAdapter) -> None:
    for cause in ("1", "2", "3"):
        await queue.queue.publish([wake_up("alpha", cause=cause)])
        assert await names(queue) == ["alpha"]


async def test_one_cause_wakes_every_mailbox_and_every_tier(queue: QueueAdapter) -> None:
    await queue.queue.publish([wake_up("alpha", cause="1"), wake_up("beta", cause="1")])
    assert await names(queue) == ["alpha", "beta"]
    await queue.queue.publish(
        [wake_up("alpha", Tier.PERSON, cause="1"), wake_up("alpha", instance=BOB, cause="1")]
    )
    assert await drain(queue) == [(TaskKey(ANN, "task"), "alpha"), (TaskKey(BOB, "task"), "alpha")]


async def test_one_who_waits_is_woken(queue: QueueAdapter) -> None:
    waiting = asyncio.create_task(queue.take(SOON))
    await asyncio.sleep(0)
    await queue.queue.publish([wake_up("alpha")])
    assert await waiting == (TaskKey(ANN, "task"), "alpha")


async def test_each_wake_up_goes_to_one_of_those_who_wait(queue: QueueAdapter) -> None:
    waiting = [asyncio.create_task(queue.take(SOON)) for _ in range(3)]
    await asyncio.sleep(0)
    await queue.queue.publish([wake_up("alpha"), wake_up("beta"), wake_up("gamma")])
    taken = await asyncio.gather(*waiting)
    assert sorted(mailbox for each in taken if each is not None for mailbox in each[1:]) == [
        "alpha", "beta", "gamma",
    ]  # fmt: skip
    assert await drain(queue) == []


async def test_one_who_gives_up_takes_no_wake_up_with_them(queue: QueueAdapter) -> None:
    """Cancelled at any moment, even between being woken and taking, a worker leaves the wake-up to others."""
    for yields in range(4):
        quitter = asyncio.create_task(queue.take(SOON))
        stayer = asyncio.create_task(queue.take(SOON))
        await asyncio.sleep(0)
        await queue.queue.publish([wake_up("alpha")])
        for _ in range(yields):
            await asyncio.sleep(0)
        quitter.cancel()
        results = await asyncio.gather(quitter, return_exceptions=True)
        if isinstance(results[0], BaseException):
            assert await stayer == (TaskKey(ANN, "task"), "alpha"), yields
        else:
            stayer.cancel()
            await asyncio.gather(stayer, return_exceptions=True)
        assert await drain(queue) == []
