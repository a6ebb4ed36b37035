"""swarms.json: the description of a swarm as data, and its conversion to agents that run.

specs             the settings of swarms, agents and actions
load, validation  reading a file and validating it, without importing anything that it refers to
references        resolving `python::` and `url::` strings
build             calling the factories and importing the actions
current           the swarm that a server runs, and how an admin replaces it
schema            the JSON Schema
"""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports
from mail.swarms_json.build import build_swarm
from mail.swarms_json.load import (
    find_source,
    load_swarm,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    pick_swarm,
)
from mail.swarms_json.specs import ActionSpec, AgentSpec, SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json

if TYPE_CHECKING:
    from mail.swarms_json.utils import *  # noqa: F403

__all__ = [
    "ActionSpec",
    "AgentSpec",
    "SwarmSpec",
    "build_swarm",
    "find_source",
    "load_swarm",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
    "pick_swarm",
    "validate_swarm_from_swarms_json",
]

_UTILS = "mail.swarms_json.utils"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        f"build_{part}_from_swarms_json": _UTILS
        for part in ("action", "actions", "agent", "agents", "swarm", "swarms")
    }
    | {f"SwarmsJSON{kind}": _UTILS for kind in ("Action", "Agent", "File", "Swarm")},
)
