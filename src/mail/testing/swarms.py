"""Small swarms for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import ActionCore, ActionFunction, AgentCore, SwarmCore
from mail.testing.agents import Policy, scripted

NAME = "example"


def build_swarm(
    agents: Mapping[str, Policy | AgentCore],
    *,
    actions: Mapping[str, ActionCore | ActionFunction] | None = None,
    tool_format: ToolFormat = "completions",
    **settings: Any,
) -> SwarmCore:
    """Return a swarm in which every agent may write to every other and call every action.

    The first agent is the entrypoint and may complete tasks. Give an `AgentCore` instead of a policy for an
    agent that differs; other settings are those of `SwarmCore`.
    """
    cores = {
        name: function if isinstance(function, ActionCore) else ActionCore(name, function)
        for name, function in (actions or {}).items()
    }
    settings.setdefault("entrypoint", next(iter(agents)))
    return SwarmCore(
        agents={
            name: agent
            if isinstance(agent, AgentCore)
            else build_agent(
                agent,
                targets=[other for other in agents if other != name],
                actions=list(cores),
                supervises=name == settings["entrypoint"],
                tool_format=tool_format,
                name=name,
            )
            for name, agent in agents.items()
        },
        actions=cores,
        **{"name": NAME, "version": "1.0.0", **settings},
    )


def build_agent(
    policy: Policy,
    *,
    targets: Sequence[str] = (),
    actions: Sequence[str] = (),
    supervises: bool = False,
    tool_format: ToolFormat = "completions",
    name: str = "call",
    **settings: Any,
) -> AgentCore:
    """Return an agent that plays a policy; one that `supervises` is an entrypoint and may complete tasks."""
    return AgentCore(
        function=scripted(policy, tool_format=tool_format, name=name),
        comm_targets=targets,
        actions=actions,
        tool_format=tool_format,
        **{"enable_entrypoint": supervises, "can_complete_tasks": supervises, **settings},
    )
