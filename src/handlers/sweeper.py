"""Every minute: expire tasks past their deadline, and wake mailboxes whose wake-up was lost."""

import logging
from typing import Any

from handlers import telemetry
from handlers.wiring import make_loop, make_system
from mail.errors import StoreUnavailable

QUIET_SECONDS = 60.0
"""Seconds without a change after which a task is swept; a task that changed later is being worked on."""

logger = logging.getLogger("mail.handlers.sweeper")

_loop = make_loop()
_system = make_system()


def handler(_event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep; return the number of wake-ups published, under the key `tokens`."""
    telemetry.begin_invocation(context)
    return {"tokens": _loop.run_until_complete(_sweep())}


async def _sweep() -> int:
    await _system.served.refresh()
    try:
        await _system.runtime.expire_overdue()
    except StoreUnavailable:  # lost wake-ups can be recovered all the same
        logger.exception("deadlines could not be checked")
    wake_ups = await _system.runtime.recover(quiet_for=QUIET_SECONDS)
    if wake_ups:
        logger.warning("published %d lost wake-ups again: mail had been waiting", wake_ups)
    return wake_ups
