"""swarms.json: what a swarm consists of, as data, and how it is turned into agents that run."""

from mail.swarms_json.build import build_swarm
from mail.swarms_json.entries import ActionEntry, AgentEntry, SwarmEntry
from mail.swarms_json.utils import (
    find_source,
    load_swarm,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    pick_swarm,
    validate_swarm_from_swarms_json,
)

__all__ = [
    "ActionEntry",
    "AgentEntry",
    "SwarmEntry",
    "build_swarm",
    "find_source",
    "load_swarm",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
    "pick_swarm",
    "validate_swarm_from_swarms_json",
]
