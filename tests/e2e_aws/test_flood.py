"""Agents that talk a lot to each other don't keep people waiting."""

import asyncio
import time
from pathlib import Path

import pytest
from aws_client import Crowd
from aws_swarm import TalkativeSwarm
from support.processes.local_aws import needs_ministack

from mail.core.protocol.message import Tier
from mail.local_aws.functions import Invocation
from mail.local_aws.stack import EventSource
from mail.local_aws.system import LocalAws

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(600)]

WORKERS = 8
LETTERS = 10
MESSAGES = 10_000
TURN_SECONDS = 1.0
PEOPLE = 10
CONCURRENCY = 4
TIMEOUT = 300


class Turns:
    """The turns that queues have woken, as they end; `of` a tier they can be waited for."""

    def __init__(self) -> None:
        self._ended: dict[Tier, list[Invocation]] = {tier: [] for tier in Tier}
        self._news = asyncio.Event()

    def watch(self, source: EventSource, done: Invocation) -> None:
        assert done.succeeded, done
        name = source.queue_arn.removesuffix(".fifo")
        self._ended[Tier(int(name[-1]))].append(done)
        self._news.set()

    def of(self, tier: Tier) -> list[Invocation]:
        return list(self._ended[tier])

    async def wait_for(self, tier: Tier, number: int) -> Invocation:
        """The `number`-th turn of a tier, once it has ended."""
        async with asyncio.timeout(TIMEOUT):
            while len(self._ended[tier]) < number:
                self._news.clear()
                await self._news.wait()
        return self._ended[tier][number - 1]


async def test_a_flood_delays_nobody_by_more_than_a_turn(tmp_path: Path) -> None:
    """Measured in turns of the flood: how many of them a worker begins and ends while a person's message waits."""
    swarm = TalkativeSwarm(tmp_path, workers=WORKERS, turn_seconds=TURN_SECONDS)
    turns = Turns()
    system = LocalAws(
        swarm.template, environment=swarm.environment, concurrency=CONCURRENCY, watch=turns.watch
    )
    async with system, Crowd(system) as crowd:
        floods = [f"flood {n}" for n in range(MESSAGES // (WORKERS * LETTERS))]
        await asyncio.gather(*(crowd.submit(task, f"flood {LETTERS}") for task in floods))
        await turns.wait_for(Tier.PERSON, len(floods))
        waits = []
        for n in range(1, PEOPLE + 1):
            await crowd.submit(f"person {n}", "hello")
            accepted = time.monotonic()
            turn = await turns.wait_for(Tier.PERSON, len(floods) + n)
            waits.append((accepted, turn.begun))
        chatter = turns.of(Tier.AGENT)
        record = await crowd.record(floods[0])
    letters = [
        event for event in record["events"] if "chatter" in event["data"] and event["event"] == "new_message"
    ]
    assert len(letters) == WORKERS * LETTERS
    assert len(chatter) < MESSAGES / 2, "the flood was nearly over when people asked"
    for accepted, begun in waits:
        between = [turn for turn in chatter if accepted < turn.begun and turn.ended < begun]
        assert len(between) <= CONCURRENCY, f"{len(between)} turns of the flood came first"
