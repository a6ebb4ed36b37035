"""Every minute: check the health of other swarms, and delete expired registry entries."""

from typing import Any

from handlers import telemetry
from handlers.wiring import make_loop, make_system
from mail import startup
from mail.bootstrap import write_metrics

_loop = make_loop()
_system = make_system()
startup.end()


def handler(_event: dict[str, Any], context: Any) -> dict[str, int]:
    """Check all swarms; return how many answered (`active`) and how many did not (`silent`)."""
    telemetry.begin_invocation(context)
    seen = _loop.run_until_complete(_system.registry.check_health())
    active = sum(health.is_active for health in seen.values())
    silent = len(seen) - active
    if seen:
        write_metrics({"ActivePeers": active, "SilentPeers": silent})
    return {"active": active, "silent": silent}
