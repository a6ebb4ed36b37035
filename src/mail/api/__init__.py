"""The Python API: actions, agents and swarms.

    MAILAction           a tool that agents may call: a function and its schema; `@action` makes one
    MAILAgentTemplate    a template of an agent; `instantiate` builds a MAILAgent
    MAILSwarmTemplate    a template of a swarm; `instantiate` builds a MAILSwarm
    MAILSwarm            a swarm that runs, for one user, on the engine of `mail.core.engine.runtime`

The names are loaded on first use: an action needs no store, and a template no web framework.
"""

from typing import TYPE_CHECKING

from mail.lazy import lazy_exports

if TYPE_CHECKING:
    from mail.api.actions import MAILAction, action, idempotency_key
    from mail.api.agents import MAILAgent, MAILAgentTemplate
    from mail.api.overrides import ActionOverrideFunction
    from mail.api.runtime import MAILRuntime
    from mail.api.swarms import MAILSwarm, MAILSwarmTemplate

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

_MODULES = {
    "ActionOverrideFunction": "mail.api.overrides",
    "MAILAction": "mail.api.actions",
    "MAILAgent": "mail.api.agents",
    "MAILAgentTemplate": "mail.api.agents",
    "MAILRuntime": "mail.api.runtime",
    "MAILSwarm": "mail.api.swarms",
    "MAILSwarmTemplate": "mail.api.swarms",
    "action": "mail.api.actions",
    "idempotency_key": "mail.api.actions",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
