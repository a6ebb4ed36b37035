"""From an entry of swarms.json to a swarm that runs: factories are called, actions are imported."""

import logging
from collections.abc import Collection, Mapping
from inspect import signature
from typing import Any

from mail.core.actions import ActionCore
from mail.core.agents import AgentFunction, SwarmCore
from mail.errors import ConfigurationError
from mail.swarms_json.actions import build_actions
from mail.swarms_json.entries import AgentEntry, SwarmEntry
from mail.swarms_json.references import Resolve, resolve_references, resolver
from mail.swarms_json.wiring import DEFAULT_TASK_MESSAGE_LIMIT, assemble, excluded_tools

logger = logging.getLogger(__name__)


def build_swarm(
    entry: SwarmEntry,
    *,
    task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
    user_token: str = "",
    allowed_prefixes: Collection[str] | None = None,
    print_llm_streams: bool = True,
) -> SwarmCore:
    """Import everything that the entry refers to and build its agents.

    Args:
        task_message_limit: the server's setting; the entry's own goes first.
        user_token: what the factories get as the token of the user they work for.
        allowed_prefixes: the modules that the entry may import from; None for all.
        print_llm_streams: the server's setting; False silences every factory that takes the parameter.

    Raises ConfigurationError for a reference that leads nowhere, or parts that don't fit together.
    """
    resolve = resolver(allowed_prefixes)
    actions = build_actions(entry, resolve)
    by_name = {action.name: action for action in actions}
    functions = {
        agent.name: _build_agent(
            entry, agent, by_name, user_token, resolve, print_llm_streams=print_llm_streams
        )
        for agent in entry.agents
    }
    return assemble(entry, functions, actions, task_message_limit=task_message_limit)


def _build_agent(
    entry: SwarmEntry,
    agent: AgentEntry,
    actions: Mapping[str, ActionCore],
    user_token: str,
    resolve: Resolve,
    *,
    print_llm_streams: bool,
) -> AgentFunction:
    """Call the agent's factory (seed 000, docs/factories.md: Instance Parameters vs. Top-Level Wiring)."""
    where = f"swarm {entry.name!r}, agent {agent.name!r}"
    wiring = {
        "name": agent.name,
        "comm_targets": list(agent.comm_targets),
        # A name that is no action is reported by `assemble`, with a hint.
        "tools": [actions[name].to_tool_dict(agent.tool_format) for name in agent.actions if name in actions],
        "enable_entrypoint": agent.enable_entrypoint,
        "enable_interswarm": agent.enable_interswarm,
        "can_complete_tasks": agent.can_complete_tasks,
        "tool_format": agent.tool_format,
        "exclude_tools": sorted(excluded_tools(entry, agent)),
    }
    params: dict[str, Any] = resolve_references(agent.agent_params, resolve)
    for name in sorted(wiring.keys() & params.keys()):
        logger.warning("%s: %r in agent_params is ignored; set it on the agent itself", where, name)
    factory = resolve(agent.factory)
    params = {name: value for name, value in params.items() if name not in wiring}
    if not print_llm_streams and _takes(factory, "print_llm_streams"):
        params["print_llm_streams"] = False
    if not _takes(factory, "exclude_tools"):  # older than the others, some factories don't know it
        del wiring["exclude_tools"]
    try:
        function = factory(**{"user_token": user_token, **params, **wiring})
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{where}: its factory {agent.factory!r} refused: {error}") from error
    if not callable(function):
        raise ConfigurationError(f"{where}: its factory {agent.factory!r} returned no function")
    return function  # type: ignore[no-any-return]  # a factory is foreign code


def _takes(factory: Any, parameter: str) -> bool:
    """Whether a factory can be called with this parameter."""
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):  # a callable that doesn't tell
        return True
    return parameter in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
