"""Scripted agents: deterministic stand-ins for a language model, in either tool format; and small swarms of them.

They follow rules (`mail.factories.rules`), or play a script:

    weather = scripted(lambda view: [respond(view.mail.sender, "sunny")])
    supervisor = scripted(turns([request("weather"), wait()], [complete("it is sunny")]))
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import ActionCore, ActionFunction, AgentCore, SwarmCore
from mail.factories.rules import (
    Call,
    ReceivedMessage,
    Rule,
    View,
    acknowledge,
    broadcast,
    call,
    complete,
    ignore,
    interrupt,
    output,
    read_message,
    read_messages,
    request,
    respond,
    rule_based,
    scripted,
    tool_results,
    wait,
)

__all__ = [
    "NAME",
    "Call",
    "ReceivedMessage",
    "Rule",
    "View",
    "acknowledge",
    "broadcast",
    "build_agent",
    "build_swarm",
    "call",
    "complete",
    "ignore",
    "interrupt",
    "output",
    "read_message",
    "read_messages",
    "request",
    "respond",
    "rule_based",
    "scripted",
    "tool_results",
    "turns",
    "wait",
]


def turns(*scripts: Sequence[Call]) -> Rule:
    """Return a rule that plays the n-th script for the n-th message that the agent remembers."""

    def rule(view: View) -> Sequence[Call]:
        n = len(view.messages) - 1
        assert n < len(scripts), f"the script ends after {len(scripts)} turns; unexpected: {view.mail}"
        return scripts[n]

    return rule


NAME = "example"


def build_swarm(
    agents: Mapping[str, Rule | AgentCore],
    *,
    actions: Mapping[str, ActionCore | ActionFunction] | None = None,
    tool_format: ToolFormat = "completions",
    **settings: Any,
) -> SwarmCore:
    """Return a swarm in which every agent may write to every other and call every action.

    The first agent is the entrypoint and may complete tasks. Give an `AgentCore` instead of a rule for an
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
    rule: Rule,
    *,
    targets: Sequence[str] = (),
    actions: Sequence[str] = (),
    supervises: bool = False,
    tool_format: ToolFormat = "completions",
    name: str = "call",
    **settings: Any,
) -> AgentCore:
    """Return an agent that follows a rule; one that `supervises` is an entrypoint and may complete tasks."""
    return AgentCore(
        function=scripted(rule, tool_format=tool_format, name=name),
        comm_targets=targets,
        actions=actions,
        tool_format=tool_format,
        **{"enable_entrypoint": supervises, "can_complete_tasks": supervises, **settings},
    )
