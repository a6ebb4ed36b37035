"""What would keep the agents of a swarm from working: missing packages, keys and variables, and unknown models.

Nothing is called over the network. An agent makes this import what calls its model; litellm takes seconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

from mail.core.task.swarm import SwarmCore
from mail.mcp.tools import MCPTools
from mail.swarms_json import SwarmSpec

NEEDED: Mapping[str, str] = MappingProxyType({"mail.stdlib.mcp": "mcp"})
"""Modules of ready-made actions, and the packages without which these fail."""


@dataclass(frozen=True, slots=True)
class CheckedAgent:
    """The result for one agent.

    Attributes:
        model: its language model; None for an agent without one.
        way: the way to the model, by the extra that installs it.
        fallback: its other models, and the ways to them.
        tools: the names of its actions.
        problems: one line each, with the remedy.
    """

    name: str
    model: str | None
    way: str | None
    fallback: Mapping[str, str]
    tools: tuple[str, ...]
    problems: tuple[str, ...]


def check_agents(swarm: SwarmCore, entry: SwarmSpec | None = None) -> Iterator[CheckedAgent]:
    """Check each agent; `entry` is the entry that the swarm was built from, if any."""
    missing = {} if entry is None else _missing_packages(entry)
    for name, agent in swarm.agents.items():
        find_problems = getattr(agent.function, "problems", None)
        problems = [] if find_problems is None else list(find_problems())
        problems += [
            f"the tool {tool!r} needs {missing[tool]}: pip install {missing[tool]}"
            for tool in agent.actions
            if tool in missing
        ]
        if isinstance(agent.tool_source, MCPTools):
            problems += agent.tool_source.problems()
        model = getattr(agent.function, "llm", None)
        others = dict(getattr(agent.function, "ways", {}))
        way = others.pop(model, None)
        yield CheckedAgent(name, model or None, way, others, tuple(agent.actions), tuple(problems))


def _missing_packages(entry: SwarmSpec) -> dict[str, str]:
    """Return the packages that actions need and that are not installed, by the actions' names."""
    references = {action.name: action.function for action in entry.actions if action.function is not None}
    references |= {reference.rpartition(":")[2]: reference for reference in entry.action_imports}
    return {
        name: package
        for name, reference in references.items()
        for module, package in NEEDED.items()
        if f"{reference.removeprefix('python::')}.".startswith((f"{module}.", f"{module}:"))
        and find_spec(package) is None
    }
