"""Health checks of other swarms, at an interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import MAILError, PeerError
from mail.net.http import PROBE_SECONDS, PeerHTTP
from mail.net.registration import target_of

CONCURRENCY = 16
"""Checks in flight."""

logger = logging.getLogger(__name__)


async def measure_latency(http: PeerHTTP, peer: PeerRecord) -> float | None:
    """Return the seconds that a peer takes to report its health; None if it fails, or another swarm answers."""
    try:
        path = "/health" if peer.kind == "mail" else ""  # an agent that is called by A2A has only its card
        answer = await http.get(target_of(peer), path, seconds=PROBE_SECONDS)
    except PeerError as error:
        logger.debug("swarm %s: %s", peer.name, error.detail)
        return None
    body = answer.json()
    name = body.get("swarm_name", peer.name) if isinstance(body, dict) else None
    return answer.seconds if answer.is_success and name == peer.name else None


async def check_all(
    peers: Sequence[PeerRecord], check: Callable[[PeerRecord], Awaitable[PeerHealth]]
) -> dict[str, PeerHealth]:
    """Check all peers, some at a time; return the health of each."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def check_in_turn(peer: PeerRecord) -> PeerHealth:
        async with slots:
            return await check(peer)

    healths = await asyncio.gather(*map(check_in_turn, peers))
    return {peer.name: health for peer, health in zip(peers, healths, strict=True)}


async def forever(check: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Run a check at an interval, forever; failures are logged."""
    while True:
        try:
            await check()
        except MAILError as error:
            logger.warning("the health of other swarms could not be checked: %s", error.detail)
        except Exception:  # the loop must survive any failure
            logger.exception("the health of other swarms could not be checked")
        await asyncio.sleep(seconds)
