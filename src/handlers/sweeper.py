"""Each minute: ends tasks whose deadline has passed, and wakes mailboxes whose token was lost."""

import logging
from typing import Any

from handlers import telemetry
from handlers.wiring import make_loop, make_system
from mail.errors import StoreUnavailable

QUIET_SECONDS = 60.0
"""A task in which something happened later than this is being worked on, and needs no sweep."""

logger = logging.getLogger("mail.handlers.sweeper")

_loop = make_loop()
_system = make_system()


def handler(_event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep once; returns how many tokens were published."""
    telemetry.begin_invocation(context)
    return {"tokens": _loop.run_until_complete(_sweep())}


async def _sweep() -> int:
    await _system.served.refresh()
    try:
        await _system.runtime.expire_overdue()
    except StoreUnavailable:  # no reason to leave lost mail lying
        logger.exception("deadlines could not be looked at")
    tokens = await _system.runtime.recover(quiet_for=QUIET_SECONDS)
    if tokens:
        logger.warning("published %d tokens anew: mail had been waiting", tokens)
    return tokens
