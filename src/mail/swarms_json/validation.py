"""Checking the settings of agents and swarms, without importing anything that they refer to."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pydantic import ValidationError

from mail.core.protocol.error_text import describe, problems
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.swarm import ActionCore
from mail.errors import SwarmInvalid
from mail.swarms_json.build import assemble
from mail.swarms_json.specs import SwarmSpec


def validate_swarm_from_swarms_json(swarm: Any) -> SwarmSpec:
    """Check a swarm in the format of swarms.json: every field, and how they fit together. Imports nothing.

    Agents' actions that may come from `action_imports` are only checked by `build_swarm`. Raises
    ConfigurationError that says what to change; it is a SwarmInvalid if it knows where.
    """
    try:
        entry = SwarmSpec.model_validate(swarm)
    except ValidationError as error:
        name = f"swarm {swarm['name']!r}: " if isinstance(swarm, Mapping) and "name" in swarm else ""
        raise SwarmInvalid(f"{name}{describe(error, SwarmSpec)}", problems(error, SwarmSpec)) from None
    if not isinstance(entry.output_type, str | None):
        problem = "must be the import string of a type; give a JSON Schema as output_schema"
        raise SwarmInvalid(f"{entry.where}: output_type: {problem}", [("output_type", problem)])
    check_swarm(
        entry if entry.output_type is None else entry.but(output_type=_NotImported),
        [ActionCore(name, _stand_in) for name in _action_names(entry)],
    )
    return entry


def check_swarm(spec: SwarmSpec, actions: Sequence[ActionCore]) -> None:
    """Raise ConfigurationError if agents and actions don't fit together, with a hint at mistyped names."""
    assemble(spec, actions, {agent.name: _stand_in for agent in spec.agents})


class _NotImported(TypedDict):
    """Stands in for the type of answers."""


async def _stand_in(*_: Any) -> Any:
    """Stand in for the function of an agent or an action."""
    raise NotImplementedError


def _action_names(entry: SwarmSpec) -> list[str]:
    declared = [action.name for action in entry.actions]
    if not entry.action_imports:
        return declared
    used = {name for agent in entry.agents for name in agent.actions} | set(entry.breakpoint_tools)
    return declared + sorted(used.difference(declared, MAIL_TOOLS))
