"""Reading swarms.json, from a file or from text."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from mail.core.protocol.error_text import did_you_mean
from mail.errors import ConfigurationError
from mail.swarms_json.specs import SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json

DEFAULT_SOURCE = "swarms.json"

PACKAGED_SOURCE = Path(__file__).parent.parent / "examples" / "swarms.json"
"""Fallback for the default source when the current directory has no such file."""


def load_swarm(name: str, source: str | Path = DEFAULT_SOURCE) -> SwarmSpec:
    """Return the swarm of that name in a file, checked. Raises ConfigurationError that names the file."""
    path = find_source(source)
    swarms = load_swarms_json_from_file(path)
    try:
        return pick_swarm(swarms, name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.detail}") from None


def find_source(source: str | Path = DEFAULT_SOURCE) -> Path:
    """Return the file to read for `source`: itself, or the packaged one (see PACKAGED_SOURCE)."""
    path = Path(source)
    return PACKAGED_SOURCE if path == Path(DEFAULT_SOURCE) and not path.exists() else path


def load_swarms_json_from_file(path: str | Path = DEFAULT_SOURCE) -> list[dict[str, Any]]:
    """Return the swarms in a file, unchecked. Raises ConfigurationError unless it contains a list of swarms."""
    if Path(path).suffix == ".py":
        raise ConfigurationError(
            f"{path}: is Python, not JSON; for the variable 'swarm' of this module, write "
            f"python::{Path(path).stem}:swarm"
        )
    try:
        return load_swarms_json_from_string(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from None
    except (UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def load_swarms_json_from_string(text: str) -> list[dict[str, Any]]:
    """Return the swarms in the text of a swarms.json file; see `load_swarms_json_from_file`."""
    swarms = _read_json(text)
    if not isinstance(swarms, list) or not all(isinstance(swarm, dict) for swarm in swarms):
        raise ConfigurationError("must be a JSON list of swarms, each a JSON object")
    return swarms


def load_swarm_json(text: str) -> dict[str, Any]:
    """Return the swarm in a text: one entry of swarms.json, or a list of just one. Raises ConfigurationError."""
    swarm = _read_json(text)
    if isinstance(swarm, list) and len(swarm) == 1:
        (swarm,) = swarm
    if not isinstance(swarm, dict):
        raise ConfigurationError("must be one swarm, as a JSON object")
    return swarm


def _read_json(text: str) -> Any:
    """Parse JSON that can be serialized again. Raises ConfigurationError."""
    try:
        value = json.loads(text)
        to_json(value)  # fails on lone surrogates and on values nested too deep
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is not valid JSON: {error}") from None
    return value


def pick_swarm(swarms: Sequence[Mapping[str, Any]], name: str) -> SwarmSpec:
    """Return the swarm of that name, checked. Raises ConfigurationError unless exactly one valid swarm has it."""
    found = [swarm for swarm in swarms if swarm.get("name") == name]
    if not found:
        names = [str(swarm.get("name")) for swarm in swarms]
        hint = did_you_mean(name, names) or f"; it has: {', '.join(names) or 'none'}"
        raise ConfigurationError(f"there is no swarm {name!r}{hint}")
    if len(found) > 1:
        raise ConfigurationError(f"there are {len(found)} swarms named {name!r}; give them different names")
    return validate_swarm_from_swarms_json(found[0])
