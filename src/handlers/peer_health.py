"""Every minute: check other swarms, delete expired registry entries, and keep the keys of the identity provider."""

import logging
from typing import Any

from handlers import telemetry
from handlers.wiring import make_loop, make_system
from mail import startup
from mail.bootstrap import write_metrics
from mail.errors import AuthServiceUnavailable

logger = logging.getLogger("mail.handlers.peer_health")

_loop = make_loop()
_system = make_system()
startup.end()


def handler(_event: dict[str, Any], context: Any) -> dict[str, int]:
    """Check all swarms; return how many answered (`active`) and how many did not (`silent`)."""
    telemetry.begin_invocation(context)
    _loop.run_until_complete(_keep_keys())
    seen = _loop.run_until_complete(_system.registry.check_health())
    active = sum(health.is_active for health in seen.values())
    silent = len(seen) - active
    if seen:
        write_metrics({"ActivePeers": active, "SilentPeers": silent})
    return {"active": active, "silent": silent}


async def _keep_keys() -> None:
    if _system.identity is not None:
        try:
            await _system.identity.provider.keep()
        except AuthServiceUnavailable as error:
            logger.warning("the keys of the identity provider can't be stored: %s", error.detail)
