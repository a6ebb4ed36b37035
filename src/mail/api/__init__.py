"""The Python API: actions, agents and swarms.

    MAILAction           a tool that agents may call: a function and its schema; `@action` makes one
    MAILAgentTemplate    a template of an agent; `instantiate` builds a MAILAgent
    MAILSwarmTemplate    a template of a swarm; `instantiate` builds a MAILSwarm
    MAILSwarm            a swarm that runs, for one user, on the engine of `mail.core.engine.runtime`

The names are loaded on first use: an action needs no store, and a template no web framework.
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.api.actions import MAILAction as MAILAction
    from mail.api.actions import action as action
    from mail.api.agents import MAILAgent as MAILAgent
    from mail.api.agents import MAILAgentTemplate as MAILAgentTemplate
    from mail.api.overrides import ActionOverrideFunction as ActionOverrideFunction
    from mail.api.runtime import MAILRuntime as MAILRuntime
    from mail.api.swarms import MAILSwarm as MAILSwarm
    from mail.api.swarms import MAILSwarmTemplate as MAILSwarmTemplate
    from mail.core.turns.context import idempotency_key as idempotency_key

_HOMES = homes_of(
    {
        "mail.api.actions": "MAILAction action",
        "mail.api.agents": "MAILAgent MAILAgentTemplate",
        "mail.api.overrides": "ActionOverrideFunction",
        "mail.api.runtime": "MAILRuntime",
        "mail.api.swarms": "MAILSwarm MAILSwarmTemplate",
        "mail.core.turns.context": "idempotency_key",
    }
)

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
