"""Overrides of agents and actions, for one step or one runtime."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from mail.core.task.swarm import ActionCore, AgentFunction, SwarmCore
from mail.errors import BadRequest

ActionOverrideFunction = Callable[[str, dict[str, Any]], Awaitable[str | None] | str | None]
"""Called with an action's name and arguments, in place of the action's own function. Its return value is the action's
result; None lets the action run after all."""

WRAPPED = ("supervisor_fn", "action_agent_fn", "_mail_agent")
"""Attributes in which known wrappers keep the agent function that they wrap."""


@runtime_checkable
class CallsModel(Protocol):
    """An agent function that calls a language model."""

    llm: str

    def but(self, *, llm: str | None = None, system: str | None = None) -> AgentFunction:
        """Return a copy of the agent with another model or system prompt."""


def with_model(agent: str, function: AgentFunction, llm: str | None, system: str | None) -> AgentFunction:
    """Return the function with another model or system prompt, if given. Raises BadRequest if it calls no model."""
    if llm is None and system is None:
        return function
    if not isinstance(function, CallsModel):
        raise BadRequest(f"agent {agent!r} takes no other model or system prompt: it calls no language model")
    return function.but(llm=llm, system=system)


def silent(function: AgentFunction) -> AgentFunction:
    """Return a copy of the function that prints no streams; the functions that it wraps are silenced too."""
    quiet: Any = copy(function)
    if hasattr(quiet, "print_llm_streams"):
        quiet.print_llm_streams = False
    for name in WRAPPED:
        if callable(getattr(quiet, name, None)):
            setattr(quiet, name, silent(getattr(quiet, name)))
    return quiet  # type: ignore[no-any-return]


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


def _with_override(
    action: ActionCore, override: ActionOverrideFunction
) -> Callable[[dict[str, Any]], Awaitable[str]]:
    async def run(arguments: dict[str, Any]) -> str:
        result = override(action.name, arguments)
        if isinstance(result, Awaitable):
            result = await result
        return await action.function(arguments) if result is None else result

    return run
