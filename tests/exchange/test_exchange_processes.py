"""Several processes on one exchange, and processes that are killed: nothing is lost, and nothing comes twice."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from exchange_worlds import SHARED, World
from support.plugins.tiers import sized
from support.processes import forkserver

pytestmark = [pytest.mark.full, pytest.mark.soak(on="ministack")]

SCRIPT = Path(__file__).with_name("exchange_process.py")
TIMEOUT = 100.0
"""Seconds for a process that dies at many points."""


@pytest.fixture(params=SHARED)
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A place that several processes can use, with nothing in it."""
    world = World(request.param, tmp_path)
    await world.prepare()
    return world


async def run(world: World, *arguments: str) -> list[str]:
    """The lines that a process on the exchange prints."""
    done = await asyncio.to_thread(
        forkserver.run,
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, **world.environment},
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.soak(on="ministack")
async def test_processes_that_sync_at_once_deliver_each_mail_once(shared: World) -> None:
    alice, others = uuid4(), [uuid4(), uuid4(), uuid4()]
    number = 800 if shared.kind == "sqlite" else 24
    async with shared.open() as exchange:
        for owner in (alice, *others):
            await exchange.register(owner)
        for n in range(number):
            await exchange.send(alice, None if n % 4 == 0 else others[n % 3], n)
        when = str(time.time() + 3)
        counts = await asyncio.gather(*(run(shared, "sync", shared.url, when) for _ in range(4)))
        assert sum(int(count) for (count,) in counts) == number
        for place, owner in enumerate(others):
            got = [mail.content for mail in await exchange.receive(owner)]
            assert got == [n for n in range(number) if n % 4 == 0 or n % 3 == place]


async def test_processes_that_pop_at_once_get_each_mail_once(shared: World) -> None:
    alice, bob = uuid4(), uuid4()
    async with shared.open() as exchange:
        for owner in (alice, bob):
            await exchange.register(owner)
        for n in range(30):
            await exchange.send(alice, bob, n)
        assert await exchange.sync() == 30
        popped = await asyncio.gather(
            *(run(shared, "pop", shared.url, str(bob), str(alice)) for _ in range(3))
        )
        assert sorted(int(line) for lines in popped for line in lines) == list(range(30))
        for lines in popped:
            assert lines == sorted(lines, key=int)


async def test_processes_that_send_as_one_entity_keep_their_order(shared: World) -> None:
    alice, bob = uuid4(), uuid4()
    async with shared.open() as exchange:
        for owner in (alice, bob):
            await exchange.register(owner)
        await asyncio.gather(
            *(run(shared, "send", shared.url, str(alice), to, "8") for to in (str(bob), "all"))
        )
        assert await exchange.sync() == 16
        got = [mail.content.split() for mail in await exchange.receive(bob)]
        for process in {process for process, _ in got}:
            assert [int(n) for other, n in got if other == process] == list(range(8))


IN = {"1": [2], "2": [0, 1], "3": [1, 3], "4": [1]}
"""Who has which mail once all is delivered."""


@pytest.fixture(params=SHARED[:2])
async def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """SQLite, and one engine of DynamoDB: dying takes its time."""
    world = World(request.param, tmp_path)
    await world.prepare()
    return world


STRIDE = os.environ.get("MAIL_EXCHANGE_STRIDE", str(sized(fast=9, full=9, soak=1)))
"""A process dies at one of so many points of a call that has many."""


async def deaths(mortal: World, tmp_path: Path, what: str) -> list[dict[str, Any]]:
    stride = STRIDE if what in ("sync", "unregister") else "1"
    url = (
        f"sqlite:///{tmp_path}/died.db?exchange=EXCHANGE"
        if mortal.kind == "sqlite"
        else mortal.url.replace("exchange=", "exchange=EXCHANGE")
    )
    reports = [json.loads(line) for line in await run(mortal, "die", url, what, stride)]
    assert [report["died"] for report in reports] == [True] * (len(reports) - 1) + [False]
    assert len(reports) > 2
    return reports


def inboxes(found: dict[str, Any]) -> dict[str, list[Any]]:
    return {owner: box["in"] for owner, box in found.items()}


async def test_a_sync_killed_at_any_point_loses_and_doubles_nothing(mortal: World, tmp_path: Path) -> None:
    for report in await deaths(mortal, tmp_path, "sync"):
        assert inboxes(report["healed"]) == IN, report
        assert all(not box["out"] for box in report["healed"].values())
        for owner, box in report["found"].items():
            assert set(box["in"]) <= set(IN[owner])


async def test_a_send_killed_at_any_point_is_stored_or_not(mortal: World, tmp_path: Path) -> None:
    reports = await deaths(mortal, tmp_path, "send")
    seen = {tuple(report["healed"]["2"]["in"]) for report in reports}
    assert seen == {(0, 1), (0, 1, 4)}


async def test_a_pop_killed_at_any_point_takes_one_or_none(mortal: World, tmp_path: Path) -> None:
    reports = await deaths(mortal, tmp_path, "pop")
    seen = {tuple(report["healed"]["2"]["in"]) for report in reports}
    assert seen == {(0, 1), (1,)}


@pytest.mark.parametrize("what", ["register", "unregister"])
async def test_registering_killed_at_any_point_happens_or_not(
    mortal: World, tmp_path: Path, what: str
) -> None:
    reports = await deaths(mortal, tmp_path, what)
    seen = {frozenset(report["healed"]) for report in reports}
    everyone = frozenset("1234")
    assert seen == {everyone, everyone | {"5"} if what == "register" else everyone - {"2"}}
    for report in reports:
        for owner in everyone & set(report["healed"]):
            assert report["healed"][owner]["in"] == IN[owner]
