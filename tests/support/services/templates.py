"""Agents and swarms of `mail.api` for tests: their agents play policies."""

from collections.abc import Callable, Sequence
from typing import Any

from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.testing.agents import Rule, rule_based


def agent(
    name: str,
    policy: Rule | Callable[..., Any] = lambda _: [],
    *,
    targets: Sequence[str] = (),
    supervises: bool = False,
    actions: Sequence[MAILAction] = (),
    factory: Any = None,
    **fields: Any,
) -> MAILAgentTemplate:
    """An agent template; one that `supervises` is an entrypoint and may complete tasks."""
    settings = {
        "enable_entrypoint": supervises,
        "can_complete_tasks": supervises,
        "tool_format": "completions",
        "agent_params": {},
    }
    return MAILAgentTemplate(
        name=name,
        factory=factory or rule_based(policy),
        comm_targets=list(targets),
        actions=list(actions),
        **{**settings, **fields},
    )


def template(*agents: MAILAgentTemplate, **fields: Any) -> MAILSwarmTemplate:
    """A swarm template; the first agent is the entrypoint."""
    given = {"name": "team", "version": "1", "actions": [], "entrypoint": agents[0].name, **fields}
    return MAILSwarmTemplate(agents=list(agents), **given)
