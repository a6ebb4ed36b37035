"""Each minute: look after the tasks that are due, such as those with turns to take over, and with lost wake-ups."""

import logging
from typing import Any

from handlers import telemetry
from handlers.wiring import make_loop, make_system
from mail import startup
from mail.core.task.leases import AHEAD_SECONDS, QUIET_SECONDS

logger = logging.getLogger("mail.handlers.sweeper")

DELETION_SECONDS = 20.0
"""Seconds of each minute that deletions of callers get."""

_loop = make_loop()
_system = make_system()
startup.end()


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep; return the number of wake-ups published, under the key `wake_ups`, and of turns taken over."""
    telemetry.begin_invocation(context)
    return _loop.run_until_complete(_sweep())


async def _sweep() -> dict[str, int]:
    await _system.served.refresh()
    await _system.declare_schedules()
    swept = await _system.runtime.sweep(ahead=AHEAD_SECONDS, quiet_for=QUIET_SECONDS)
    await _system.resume_mail()
    await _system.runtime.deletions.work(seconds=DELETION_SECONDS)
    if swept.waiting:
        logger.warning("published %d lost wake-ups again: mail had been waiting", swept.waiting)
    return {"wake_ups": swept.waiting, "taken_over": swept.taken_over}
