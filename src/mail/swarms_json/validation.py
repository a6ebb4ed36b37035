"""Checking the settings of agents and swarms, without importing anything that they refer to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from mail.core.protocol.error_text import describe, problems
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.swarm import ActionCore, AgentOutput, History, ToolChoice
from mail.errors import ConfigurationError, SwarmInvalid
from mail.swarms_json.build import assemble, swarm_spec
from mail.swarms_json.entries import SwarmEntry, SwarmSpec


def validate_swarm_from_swarms_json(swarm: Any) -> SwarmEntry:
    """Check a swarm in the format of swarms.json: every field, and how they fit together. Imports nothing.

    Agents' actions that may come from `action_imports` are only checked by `build_swarm`. Raises
    ConfigurationError that says what to change; it is a SwarmInvalid if it knows where.
    """
    try:
        entry = SwarmEntry.model_validate(swarm)
    except ValidationError as error:
        name = f"swarm {swarm['name']!r}: " if isinstance(swarm, Mapping) and "name" in swarm else ""
        raise SwarmInvalid(f"{name}{describe(error, SwarmEntry)}", problems(error, SwarmEntry)) from error
    actions = [ActionCore(name, _not_imported) for name in _action_names(entry)]
    _require_fit(swarm_spec(entry, entry.agents, actions))
    return entry


def check_swarm(spec: SwarmSpec) -> None:
    """Raise ConfigurationError for a swarm whose settings are wrong or don't fit together."""
    written = replace(spec, actions=[], output_type=None)
    try:
        SwarmEntry.model_validate(written, from_attributes=True)
    except ValidationError as error:
        raise ConfigurationError(f"swarm {spec.name!r}: {describe(error, SwarmEntry)}") from error
    _require_fit(spec)


def _require_fit(spec: SwarmSpec) -> None:
    """Raise ConfigurationError if agents and actions don't fit together, with a hint at mistyped names."""
    assemble(spec, {agent.name: _not_built for agent in spec.agents})


async def _not_built(_history: History, _choice: ToolChoice) -> AgentOutput:
    """Stand in for an agent's function."""
    raise NotImplementedError


async def _not_imported(_arguments: dict[str, Any]) -> str:
    """Stand in for an action's function."""
    raise NotImplementedError


def _action_names(entry: SwarmEntry) -> list[str]:
    declared = [action.name for action in entry.actions]
    if not entry.action_imports:
        return declared
    used = {name for agent in entry.agents for name in agent.actions} | set(entry.breakpoint_tools)
    return declared + sorted(used.difference(declared, MAIL_TOOLS))
