"""Documented import path of the functions that load and check swarms.json."""

from mail.swarms_json.check import validate_swarm_from_swarms_json
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

__all__ = [
    "DEFAULT_SOURCE",
    "PACKAGED_SOURCE",
    "find_source",
    "load_swarm",
    "load_swarm_json",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
    "pick_swarm",
    "validate_swarm_from_swarms_json",
]
