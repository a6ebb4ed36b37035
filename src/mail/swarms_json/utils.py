"""Loading swarms.json, and checking a swarm before anything of it is imported."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.problems import describe
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.actions import ActionCore
from mail.errors import ConfigurationError
from mail.swarms_json.entries import SwarmEntry
from mail.swarms_json.wiring import assemble, not_built

DEFAULT_SOURCE = "swarms.json"

PACKAGED_SOURCE = Path(__file__).parent.parent / "examples" / "swarms.json"
"""Used where the source is the default one and the current directory has none."""


def load_swarm(name: str, source: str | Path = DEFAULT_SOURCE) -> SwarmEntry:
    """The swarm of that name in a file, checked. Raises ConfigurationError that names the file."""
    path = find_source(source)
    swarms = load_swarms_json_from_file(path)
    try:
        return pick_swarm(swarms, name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.detail}") from error


def find_source(source: str | Path = DEFAULT_SOURCE) -> Path:
    """The file that `source` means: itself, or the packaged one (see PACKAGED_SOURCE)."""
    path = Path(source)
    return PACKAGED_SOURCE if path == Path(DEFAULT_SOURCE) and not path.exists() else path


def load_swarms_json_from_file(path: str | Path = DEFAULT_SOURCE) -> list[dict[str, Any]]:
    """The swarms in a file, as they are written there. Raises ConfigurationError where it holds no list of swarms."""
    try:
        return load_swarms_json_from_string(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def load_swarms_json_from_string(text: str) -> list[dict[str, Any]]:
    """The swarms in the text of a swarms.json file; see `load_swarms_json_from_file`."""
    swarms = _read_json(text)
    if not isinstance(swarms, list) or not all(isinstance(swarm, dict) for swarm in swarms):
        raise ConfigurationError("must be a JSON list of swarms, each a JSON object")
    return swarms


def load_swarm_json(text: str) -> dict[str, Any]:
    """The one swarm in a text: an entry of swarms.json, or a list of just one. Raises ConfigurationError."""
    swarm = _read_json(text)
    if isinstance(swarm, list) and len(swarm) == 1:
        (swarm,) = swarm
    if not isinstance(swarm, dict):
        raise ConfigurationError("must be one swarm, as a JSON object")
    return swarm


def _read_json(text: str) -> Any:
    """The value of a text of JSON that can be written again. Raises ConfigurationError."""
    try:
        value = json.loads(text)
        to_json(value)
    except (
        ValueError,
        RecursionError,
    ) as error:  # to write: for lone surrogates, and what is nested too deep
        raise ConfigurationError(f"is not valid JSON: {error}") from error
    return value


def pick_swarm(swarms: Sequence[Mapping[str, Any]], name: str) -> SwarmEntry:
    """The one swarm of that name, checked. Raises ConfigurationError when there is none or it isn't valid."""
    found = [swarm for swarm in swarms if swarm.get("name") == name]
    if not found:
        names = [str(swarm.get("name")) for swarm in swarms]
        hint = did_you_mean(name, names) or f"; it has: {', '.join(names) or 'none'}"
        raise ConfigurationError(f"there is no swarm {name!r}{hint}")
    if len(found) > 1:
        raise ConfigurationError(f"there are {len(found)} swarms named {name!r}; give them different names")
    return validate_swarm_from_swarms_json(found[0])


def validate_swarm_from_swarms_json(swarm: Any) -> SwarmEntry:
    """Check a swarm as swarms.json describes it: every field, and how the parts fit together. Imports nothing.

    Agents' actions that may come from `action_imports` are only checked by `build_swarm`. Raises
    ConfigurationError that says what to change.
    """
    try:
        entry = SwarmEntry.model_validate(swarm)
    except ValidationError as error:
        name = f"swarm {swarm['name']!r}: " if isinstance(swarm, Mapping) and "name" in swarm else ""
        raise ConfigurationError(f"{name}{describe(error, SwarmEntry)}") from error
    functions = {agent.name: not_built for agent in entry.agents}
    assemble(entry, functions, [ActionCore(name, _not_imported) for name in _action_names(entry)])
    return entry


def _action_names(entry: SwarmEntry) -> list[str]:
    declared = [action.name for action in entry.actions]
    if not entry.action_imports:
        return declared
    used = {name for agent in entry.agents for name in agent.actions} | set(entry.breakpoint_tools)
    return declared + sorted(used.difference(declared, MAIL_TOOLS))


async def _not_imported(_arguments: dict[str, Any]) -> str:
    raise NotImplementedError
