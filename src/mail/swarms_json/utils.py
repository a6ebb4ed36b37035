"""Documented import path of the functions that load, check and read swarms.json."""

from collections.abc import Sequence
from typing import Any

from mail.swarms_json.load import (
    DEFAULT_SOURCE,
    PACKAGED_SOURCE,
    find_source,
    load_swarm,
    load_swarm_json,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    pick_swarm,
)
from mail.swarms_json.specs import ActionSpec, AgentSpec, SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json

__all__ = [
    "DEFAULT_SOURCE",
    "PACKAGED_SOURCE",
    "SwarmsJSONAction",
    "SwarmsJSONAgent",
    "SwarmsJSONFile",
    "SwarmsJSONSwarm",
    "build_action_from_swarms_json",
    "build_actions_from_swarms_json",
    "build_agent_from_swarms_json",
    "build_agents_from_swarms_json",
    "build_swarm_from_swarms_json",
    "build_swarms_from_swarms_json",
    "find_source",
    "load_swarm",
    "load_swarm_json",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
    "pick_swarm",
    "validate_swarm_from_swarms_json",
]

SwarmsJSONAction = ActionSpec
SwarmsJSONAgent = AgentSpec
SwarmsJSONSwarm = SwarmSpec
SwarmsJSONFile = list[SwarmSpec]
"""The documented names of the entries of swarms.json."""

build_swarm_from_swarms_json = validate_swarm_from_swarms_json


def build_swarms_from_swarms_json(swarms: Sequence[Any]) -> SwarmsJSONFile:
    """Return the entries of a whole file. Raises ConfigurationError."""
    return [validate_swarm_from_swarms_json(swarm) for swarm in swarms]


def build_agent_from_swarms_json(agent: Any) -> SwarmsJSONAgent:
    """Return an entry of `agents`. Raises ConfigurationError."""
    return SwarmsJSONAgent.read("agent", agent)


def build_agents_from_swarms_json(agents: Sequence[Any]) -> list[SwarmsJSONAgent]:
    """Return the entries of `agents`. Raises ConfigurationError."""
    return [build_agent_from_swarms_json(agent) for agent in agents]


def build_action_from_swarms_json(action: Any) -> SwarmsJSONAction:
    """Return an entry of `actions`. Raises ConfigurationError."""
    return SwarmsJSONAction.read("action", action)


def build_actions_from_swarms_json(actions: Sequence[Any]) -> list[SwarmsJSONAction]:
    """Return the entries of `actions`. Raises ConfigurationError."""
    return [build_action_from_swarms_json(action) for action in actions]
