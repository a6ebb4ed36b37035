"""swarms.json: the description of a swarm as data, and its conversion to agents that run.

entries           the fields of the file, and the specs made of them
load, validation  reading a file and validating it, without importing anything that it refers to
references        resolving `python::` and `url::` strings
build             calling the factories and importing the actions
signatures        schemas of actions from the signatures of their functions
current           the swarm that a server runs, and how an admin replaces it
schema            the JSON Schema
"""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports
from mail.swarms_json.build import build_swarm
from mail.swarms_json.entries import ActionEntry, AgentEntry, SwarmEntry
from mail.swarms_json.load import (
    find_source,
    load_swarm,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    pick_swarm,
)
from mail.swarms_json.validation import validate_swarm_from_swarms_json

if TYPE_CHECKING:
    from mail.swarms_json.utils import *  # noqa: F403

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

_UTILS = "mail.swarms_json.utils"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        f"build_{part}_from_swarms_json": _UTILS
        for part in ("action", "actions", "agent", "agents", "swarm", "swarms")
    }
    | {f"SwarmsJSON{kind}": _UTILS for kind in ("Action", "Agent", "File", "Swarm")},
)
