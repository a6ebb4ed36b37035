"""Actions that look at other MAIL servers."""

from mail.stdlib.interswarm.actions import (
    get_swarm_health,
    get_swarm_registry,
    list_known_swarms,
    ping_swarm,
)

__all__ = ["get_swarm_health", "get_swarm_registry", "list_known_swarms", "ping_swarm"]
