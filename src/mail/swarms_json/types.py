"""The documented names of the entries of swarms.json."""

from mail.swarms_json.entries import ActionEntry, AgentEntry, SwarmEntry

SwarmsJSONAction = ActionEntry
SwarmsJSONAgent = AgentEntry
SwarmsJSONSwarm = SwarmEntry
SwarmsJSONFile = list[SwarmEntry]
