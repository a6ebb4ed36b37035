"""Scripted language models, for tests of your own swarms: each turn of an agent plays the next reply of its script.

    template = with_scripts(
        MAILSwarmTemplate.from_swarm_json_file("my-swarm"),
        {"assistant": [[call("now")], "It is noon."]},
    )

A reply is a text, or the calls of one turn. The engine takes a text as that of a model that calls no tool
(`mail.core.decisions.text_answers`). In swarms.json, `scripted_model` is a factory:

    "factory": "python::mail.testing:scripted_model",
    "agent_params": {"script": [[{"tool": "now", "args": {}}], "It is noon."]}
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, overload

from mail.api.facade import Swarm
from mail.api.swarms import MAILSwarmTemplate
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.core.task.documents import IN_MEMORY
from mail.core.task.swarm import AgentFunction, History, ToolChoice
from mail.errors import AgentUnavailable, ConfigurationError
from mail.testing.agents import Call, output

Reply = str | Sequence[Call | Mapping[str, Any]]
"""A text, or calls: of `call(…)`, or as `{"tool": …, "args": {…}}`."""


@overload
def with_scripts[Output](
    swarm: Swarm[Output], scripts: Mapping[str, Sequence[Reply]], *, database: str = IN_MEMORY
) -> Swarm[Output]: ...
@overload
def with_scripts(swarm: MAILSwarmTemplate, scripts: Mapping[str, Sequence[Reply]]) -> MAILSwarmTemplate: ...
def with_scripts(
    swarm: Swarm[Any] | MAILSwarmTemplate,
    scripts: Mapping[str, Sequence[Reply]],
    *,
    database: str = IN_MEMORY,
) -> Swarm[Any] | MAILSwarmTemplate:
    """Return a copy of a swarm whose agents play scripts, by their names; the other agents stay as they are.

    The copy of a `Swarm` keeps its tasks in memory, so that a test leaves none among real ones, or in `database`.

    Raises ConfigurationError for a name that no agent has.
    """
    if isinstance(swarm, Swarm):
        found = swarm.with_template(_scripted(swarm.template, scripts))
        found.database = database
        return found
    return _scripted(swarm, scripts)


def _scripted(template: MAILSwarmTemplate, scripts: Mapping[str, Sequence[Reply]]) -> MAILSwarmTemplate:
    names = [agent.name for agent in template.agents]
    for name in scripts:
        if name not in names:
            raise ConfigurationError(
                f"swarm {template.name!r}: there is no agent {name!r}{did_you_mean(name, names)}"
            )
    found = copy(template)
    found.agents = [copy(agent) for agent in template.agents]
    for agent in found.agents:
        if agent.name in scripts:
            agent.factory = scripted_model
            agent.agent_params = {"script": scripts[agent.name]}
    return found


def scripted_model(
    *, name: str, script: Sequence[Reply], tool_format: ToolFormat = "responses", **_wiring: Any
) -> AgentFunction:
    """Return the function of an agent that plays a script. It is a factory, for templates and for swarms.json."""

    async def function(history: History, tool_choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
        played = _replies(history)
        if played >= len(script):
            raise AgentUnavailable(f"the script of {name!r} ends after {played} replies")
        reply = script[played]
        if isinstance(reply, str):
            return reply, []
        calls = [
            each if isinstance(each, Call) else Call(each["tool"], each.get("args", {})) for each in reply
        ]
        return None, output(calls, tool_format=tool_format, prefix=f"{name}{len(history)}")

    return function


def _replies(history: History) -> int:
    """Return how many replies of a scripted agent a history has; the ids of one reply's calls differ by their ends."""
    ids = [call["id"] for entry in history for call in entry.get("tool_calls") or ()]
    ids += [entry["call_id"] for entry in history if entry.get("type") == "function_call"]
    texts = sum(entry.get("role") == "assistant" and not entry.get("tool_calls") for entry in history)
    return int(texts) + len({each.rpartition(".")[0] for each in ids})
