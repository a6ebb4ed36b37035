"""Looking after peers: whether they answer, how fast, again and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import MAILError, PeerError
from mail.net.http import PeerHTTP
from mail.net.registration import LOOK_SECONDS, target_of

AT_ONCE = 16
"""How many peers are looked at at a time."""

logger = logging.getLogger(__name__)


async def ask(http: PeerHTTP, record: PeerRecord) -> float | None:
    """The seconds that a peer takes to say that it is well; None where it doesn't, or is another one."""
    try:
        answer = await http.get(target_of(record), "/health", seconds=LOOK_SECONDS)
    except PeerError as error:
        logger.debug("swarm %s: %s", record.name, error.detail)
        return None
    told = answer.json()
    name = told.get("swarm_name", record.name) if isinstance(told, dict) else None
    return answer.seconds if answer.is_success and name == record.name else None


async def look_at(
    peers: Sequence[PeerRecord], look: Callable[[PeerRecord], Awaitable[PeerHealth]]
) -> dict[str, PeerHealth]:
    """Look at all peers, some at a time; returns how each is."""
    places = asyncio.Semaphore(AT_ONCE)

    async def look_in_turn(record: PeerRecord) -> PeerHealth:
        async with places:
            return await look(record)

    seen = await asyncio.gather(*map(look_in_turn, peers))
    return {record.name: health for record, health in zip(peers, seen, strict=True)}


async def forever(check: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Check, wait, and so on; trouble is logged, and does not end it."""
    while True:
        try:
            await check()
        except MAILError as error:
            logger.warning("the health of other swarms could not be checked: %s", error.detail)
        except Exception:  # the loop must outlive whatever it meets
            logger.exception("the health of other swarms could not be checked")
        await asyncio.sleep(seconds)
