"""Swarms as people build them in Python: actions, agents, and the swarms they form.

    MAILAction           a tool that agents may call: a function and its schema; `@action` makes one
    MAILAgentTemplate    how to build an agent; `instantiate` builds a MAILAgent
    MAILSwarmTemplate    how to build a swarm; `instantiate` builds a MAILSwarm
    MAILSwarm            a swarm that runs, for one user, on the engine of `mail.core.engine.runtime`

The names are loaded when they are first used: an action needs no store, and no template needs a web framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mail.api.actions import MAILAction, action, idempotency_key
    from mail.api.agents import MAILAgent, MAILAgentTemplate
    from mail.api.overrides import ActionOverrideFunction
    from mail.api.runtime import MAILRuntime
    from mail.api.swarms import MAILSwarm
    from mail.api.templates import MAILSwarmTemplate

__all__ = [
    "ActionOverrideFunction",
    "MAILAction",
    "MAILAgent",
    "MAILAgentTemplate",
    "MAILRuntime",
    "MAILSwarm",
    "MAILSwarmTemplate",
    "action",
    "idempotency_key",
]

_HOMES = {
    "ActionOverrideFunction": "mail.api.overrides",
    "MAILAction": "mail.api.actions",
    "MAILAgent": "mail.api.agents",
    "MAILAgentTemplate": "mail.api.agents",
    "MAILRuntime": "mail.api.runtime",
    "MAILSwarm": "mail.api.swarms",
    "MAILSwarmTemplate": "mail.api.templates",
    "action": "mail.api.actions",
    "idempotency_key": "mail.api.actions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mail.api' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
