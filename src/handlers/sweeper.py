"""Several times a minute: expire tasks past their deadline, take over turns, and repeat wake-ups that were lost."""

import logging
from typing import Any

from handlers import telemetry
from handlers.wiring import SWEEP_DELAYS, make_loop, make_system
from mail import startup
from mail.errors import StoreUnavailable

QUIET_SECONDS = 30.0
"""Seconds without a change after which a task is swept; a task that changed later is being worked on."""

logger = logging.getLogger("mail.handlers.sweeper")

_loop = make_loop()
_system = make_system()
startup.end()


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep; return the number of wake-ups published, under the key `wake_ups`, and of turns taken over."""
    telemetry.begin_invocation(context)
    return _loop.run_until_complete(_sweep(is_tick="Records" not in event))


async def _sweep(*, is_tick: bool) -> dict[str, int]:
    await _system.served.refresh()
    if is_tick:
        for step in (_system.queue.invoke_sweeper(SWEEP_DELAYS), _system.runtime.expire_overdue()):
            try:
                await step
            except StoreUnavailable:  # lost wake-ups can be recovered all the same
                logger.exception("a part of the sweep has failed; the next tick repeats it")
    taken_over = await _system.runtime.take_over()
    wake_ups = await _system.runtime.recover(quiet_for=QUIET_SECONDS)
    if wake_ups:
        logger.warning("published %d lost wake-ups again: mail had been waiting", wake_ups)
    return {"wake_ups": wake_ups, "taken_over": taken_over}
