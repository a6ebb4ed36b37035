"""Looking after other swarms."""

import asyncio
import logging

import pytest
from support.processes.http_server import eventually
from support.services.peer_server import PeerServer

from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import StoreUnavailable
from mail.net import SwarmRegistry, health
from mail.testing.clock import FakeClock

HOME = "http://127.0.0.1:8000"


async def test_how_a_swarm_is(beta: PeerServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    registry = SwarmRegistry("alpha", HOME, clock=clock)
    await registry.register_swarm("beta", beta.url)
    clock.advance(60)
    seen = (await registry.check_health())["beta"]
    assert (seen.is_active, seen.last_seen) == (True, clock.now().isoformat())
    assert seen.latency is not None
    assert 0 < seen.latency < 5
    assert "swarm beta is" not in caplog.text
    beta.answers["/health"] = 500, {}
    clock.advance(60)
    assert (await registry.check_health())["beta"] == PeerHealth(last_seen=seen.last_seen)
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert (found.is_active, found.last_seen, found.latency) == (False, seen.last_seen, None)
    assert "swarm beta is out of reach" in caplog.text
    beta.answers.clear()
    await registry.check_health()
    assert "swarm beta is active" in caplog.text
    await registry.stop()


@pytest.mark.parametrize(
    ("answer", "well"),
    [
        ((200, {"status": "degraded", "swarm_name": "beta"}), True),
        ((200, {}), True),
        ((200, {"swarm_name": "gamma"}), False),
        ((200, b"ok"), False),
        ((404, {}), False),
        ((302, b""), False),
    ],
)
async def test_what_counts_as_well(
    registry: SwarmRegistry, beta: PeerServer, answer: tuple[int, object], well: bool
) -> None:
    await registry.register_swarm("beta", beta.url)
    beta.answers["/health"] = answer
    assert (await registry.check_health())["beta"].is_active is well


async def test_many_are_looked_at_at_once_but_not_all() -> None:
    under_way = most = 0

    async def look(record: PeerRecord) -> PeerHealth:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return PeerHealth(last_seen=record.name)

    peers = [PeerRecord(name=f"s{n}", base_url=HOME) for n in range(50)]
    seen = await health.check_all(peers, look)
    assert seen == {peer.name: PeerHealth(last_seen=peer.name) for peer in peers}
    assert most == health.CONCURRENCY


async def test_trouble_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    async def check() -> None:
        nonlocal calls
        calls += 1
        raise StoreUnavailable if calls == 1 else ZeroDivisionError

    looking = asyncio.create_task(health.forever(check, 0.001))
    await eventually(lambda: calls >= 3)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert "The store can't be reached" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_what_was_registered_anew_is_left_alone(registry: SwarmRegistry, beta: PeerServer) -> None:
    """A swarm that was down is described late; not if somebody has registered it elsewhere in the meantime."""
    beta.answers["/"] = 503, {}
    await registry.register_swarm("beta", beta.url)
    del beta.answers["/"]
    old = await registry.find("beta")
    assert old is not None
    await registry.register_swarm("beta", "http://127.0.0.1:1")
    await registry._describe_late(old)
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert (found.base_url, found.version) == ("http://127.0.0.1:1", "")


async def test_another_swarm_in_its_place_is_told(
    registry: SwarmRegistry, beta: PeerServer, caplog: pytest.LogCaptureFixture
) -> None:
    beta.answers["/"] = 503, {}
    await registry.register_swarm("beta", beta.url)
    beta.answers["/"] = 200, {"swarm": {"name": "gamma"}}
    await registry.check_health()
    assert "is swarm 'gamma', not 'beta'" in caplog.text
