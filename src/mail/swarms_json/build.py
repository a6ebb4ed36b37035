"""From an entry of swarms.json to a swarm that runs: factories are called, actions are imported."""

from collections.abc import Collection, Mapping

from mail.core.task.swarm import ActionCore, AgentFunction, SwarmCore
from mail.swarms_json.actions import build_actions
from mail.swarms_json.agents import agent_wiring, make_function
from mail.swarms_json.entries import AgentEntry, SwarmEntry
from mail.swarms_json.references import Resolve, resolve_params, resolver
from mail.swarms_json.wiring import (
    DEFAULT_TASK_MESSAGE_LIMIT,
    assemble,
    excluded_tools,
    warn_of_inert_setting,
)


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
    if entry.enable_db_agent_histories:
        warn_of_inert_setting(f"swarm {entry.name!r}")
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
    # A name that is no action is reported by `assemble`, with a hint.
    tools = [actions[name].to_tool_dict(agent.tool_format) for name in agent.actions if name in actions]
    return make_function(
        f"swarm {entry.name!r}, agent {agent.name!r}",
        resolve(agent.factory),
        wiring=agent_wiring(
            name=agent.name,
            comm_targets=agent.comm_targets,
            tools=tools,
            enable_entrypoint=agent.enable_entrypoint,
            enable_interswarm=agent.enable_interswarm,
            can_complete_tasks=agent.can_complete_tasks,
            tool_format=agent.tool_format,
            exclude_tools=excluded_tools(entry, agent),
        ),
        params=resolve_params(agent.agent_params, resolve),
        instance_params={"user_token": user_token},
        print_llm_streams=print_llm_streams,
    )
