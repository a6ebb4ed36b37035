"""What a draft makes of a swarm, and how the two differ. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mail.core.protocol.error_text import did_you_mean
from mail.core.task.swarm import AgentCore, DraftableFunction, SwarmCore, ToolingFunction
from mail.core.task.swarm_drafts import AgentChanges, Revision
from mail.errors import BadRequest, ConfigurationError


def change_swarm(swarm: SwarmCore, agents: Mapping[str, AgentChanges]) -> SwarmCore:
    """Return the swarm with these changes, as its new version. Raises BadRequest if it can't take one."""
    for name in agents:
        if name not in swarm.agents:
            raise BadRequest(f"the swarm has no agent {name!r}{did_you_mean(name, swarm.agents)}")
    changed = {
        name: _change_agent(swarm, name, agent, agents[name]) if name in agents else agent
        for name, agent in swarm.agents.items()
    }
    entry = None if swarm.entry is None else change_entry(swarm.entry, agents)
    try:
        return replace(swarm, agents=changed, entry=entry, kept_as="")
    except ConfigurationError as error:
        raise BadRequest(error.detail) from error


def as_draft(swarm: SwarmCore, agents: Mapping[str, AgentChanges]) -> SwarmCore:
    """Return the swarm with these changes for tasks that try them, which stay on it. Raises BadRequest."""
    changes = {name: each.model_dump(mode="json", exclude_defaults=True) for name, each in agents.items()}
    return replace(change_swarm(swarm, agents), draft={"base": swarm.digest, "agents": changes})


def rebuild(version: SwarmCore, base: SwarmCore) -> SwarmCore | None:
    """Return a draft that was read, so that its agents run; None if the code has changed what it is made of.

    Raises BadRequest if the base can't take its changes any more.
    """
    assert version.draft is not None
    agents = {name: AgentChanges.model_validate(each) for name, each in version.draft["agents"].items()}
    made = as_draft(base, agents)
    return made if made.digest == version.digest else None


def change_entry(entry: Mapping[str, Any], agents: Mapping[str, AgentChanges]) -> dict[str, Any]:
    """Return an entry of swarms.json with these changes."""
    return {**entry, "agents": [_change_entry(each, agents.get(each["name"])) for each in entry["agents"]]}


def _change_entry(agent: Mapping[str, Any], changes: AgentChanges | None) -> Mapping[str, Any]:
    if changes is None:
        return agent
    params = {**agent["agent_params"], **changes.set_options}
    if changes.llm is not None:
        params = {name: each for name, each in params.items() if name != "fallback"} | {"llm": changes.llm}
    if changes.system is not None:
        params["system"] = changes.system
    actions = agent.get("actions", []) if changes.actions is None else list(changes.actions)
    return {**agent, "agent_params": params, "actions": actions}


def _change_agent(swarm: SwarmCore, name: str, agent: AgentCore, changes: AgentChanges) -> AgentCore:
    function = agent.function
    if not isinstance(function, DraftableFunction) or not isinstance(function, ToolingFunction):
        raise BadRequest(f"agent {name!r} can't be changed by a draft: it calls no language model")
    actions = agent.actions if changes.actions is None else changes.actions
    for action in actions:
        if action not in swarm.actions:
            raise BadRequest(
                f"agent {name!r}: {action!r} is not an action of the swarm{did_you_mean(action, swarm.actions)}"
            )
    try:
        changed = function.redraft(
            llm=changes.llm,
            system=changes.system,
            options=changes.set_options,
            tools=_tools(swarm, agent, function.tools, actions),
        )
    except ConfigurationError as error:
        raise BadRequest(error.detail) from error
    return replace(
        agent,
        function=changed,
        actions=tuple(actions),
        options={**agent.options, **changes.set_options},
    )


def _tools(
    swarm: SwarmCore, agent: AgentCore, tools: Sequence[dict[str, Any]], actions: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the tools of an agent that may call these actions."""
    gone = {*agent.actions} - {*actions}
    added = [swarm.actions[name] for name in actions if name not in agent.actions]
    kept = [
        tool for tool in tools if tool.get("function", tool).get("name") not in gone
    ]  # a provider's has none
    return [*kept, *(action.to_tool_dict(agent.tool_format) for action in added)]


def differences(base: SwarmCore, revision: Revision) -> str:
    """Return how the agents differ with and without a draft, as a unified diff. Raises BadRequest."""
    from difflib import unified_diff

    changed = change_swarm(base, revision.agents)
    lines = [
        line
        for name in revision.agents
        for line in unified_diff(
            [*_lines(base.agents[name])],
            [*_lines(changed.agents[name])],
            f"{name} ({base.digest})",
            f"{name} (draft)",
            lineterm="",
        )
    ]
    return "\n".join(lines)


def _lines(agent: AgentCore) -> Iterator[str]:
    """Yield the settings of an agent that a draft can change."""
    yield f"llm = {json.dumps(agent.model, ensure_ascii=False)}"
    yield f"actions = {json.dumps(sorted(agent.actions), ensure_ascii=False)}"
    for name, each in sorted(agent.options.items()):
        yield f"{name} = {json.dumps(each, ensure_ascii=False)}"
    yield "system:"
    yield from (agent.system_prompt or "").splitlines()
