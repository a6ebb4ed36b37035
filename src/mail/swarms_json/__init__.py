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
from mail.swarms_json.build import build_swarm as build_swarm
from mail.swarms_json.load import find_source as find_source
from mail.swarms_json.load import load_swarm as load_swarm
from mail.swarms_json.load import load_swarms_json_from_file as load_swarms_json_from_file
from mail.swarms_json.load import load_swarms_json_from_string as load_swarms_json_from_string
from mail.swarms_json.load import pick_swarm as pick_swarm
from mail.swarms_json.specs import ActionSpec as ActionSpec
from mail.swarms_json.specs import AgentSpec as AgentSpec
from mail.swarms_json.specs import SwarmSpec as SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json as validate_swarm_from_swarms_json

if TYPE_CHECKING:
    from mail.swarms_json.utils import *  # noqa: F403


_UTILS = "mail.swarms_json.utils"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        f"build_{part}_from_swarms_json": _UTILS
        for part in ("action", "actions", "agent", "agents", "swarm", "swarms")
    }
    | {f"SwarmsJSON{kind}": _UTILS for kind in ("Action", "Agent", "File", "Swarm")},
)
