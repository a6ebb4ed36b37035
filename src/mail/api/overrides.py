"""Overrides of a swarm's actions and output, for one call or one runtime."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from mail.core.task.callbacks import Later, Polled
from mail.core.task.swarm import ActionCore, ActionFunction, SwarmCore
from mail.factories.variants import silent

ActionOverrideFunction = Callable[[str, dict[str, Any]], Awaitable[str | None] | str | None]
"""Called with an action's name and arguments, in place of the action's own function. Its return value is the action's
result; None lets the action run after all."""


def silent_swarm(swarm: SwarmCore) -> SwarmCore:
    """Return the swarm with agents that print nothing."""
    agents = {name: replace(agent, function=silent(agent.function)) for name, agent in swarm.agents.items()}
    return replace(swarm, agents=agents)


def with_actions(swarm: SwarmCore, override: ActionOverrideFunction) -> SwarmCore:
    """Return the swarm with the functions of all its actions replaced by `override`."""
    actions: Mapping[str, ActionCore] = {
        name: replace(action, function=_with_override(action, override))
        for name, action in swarm.actions.items()
    }
    return replace(swarm, actions=actions)


def _with_override(action: ActionCore, override: ActionOverrideFunction) -> ActionFunction:
    async def run(arguments: dict[str, Any]) -> str | Later | Polled:
        result = override(action.name, arguments)
        if isinstance(result, Awaitable):
            result = await result
        return await action.function(arguments) if result is None else result

    return run
