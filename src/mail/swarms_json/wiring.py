"""How the parts of a swarm fit together: one way to put them together, and so one place where it is checked.

Most checks are `SwarmCore`'s own. Here are those that need the lists of swarms.json: `SwarmCore` has mappings,
in which a double name would be lost.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.swarm import (
    ActionCore,
    AgentCore,
    AgentFunction,
    AgentOutput,
    History,
    SwarmCore,
    ToolChoice,
)
from mail.errors import ConfigurationError
from mail.swarms_json.entries import ActionEntry, AgentEntry, SwarmEntry

logger = logging.getLogger(__name__)

DEFAULT_TASK_MESSAGE_LIMIT = 15

BUILT_IN_PYTHON = "(built in Python)"
"""Stands for a factory that has no name."""


def assemble(
    entry: SwarmEntry,
    functions: Mapping[str, AgentFunction],
    actions: Iterable[ActionCore],
    *,
    task_message_limit: int = DEFAULT_TASK_MESSAGE_LIMIT,
) -> SwarmCore:
    """The swarm of an entry, given its agents' functions and its actions.

    `task_message_limit` is the server's; the entry's own goes first. Raises ConfigurationError where the
    parts don't fit together.
    """
    actions = list(actions)
    where = f"swarm {entry.name!r}"
    _require_unique(f"{where}: agents", (agent.name for agent in entry.agents))
    _require_unique(f"{where}: actions", (action.name for action in actions))
    by_name = {action.name: action for action in actions}
    for tool in entry.breakpoint_tools:
        if tool not in by_name and tool not in MAIL_TOOLS:
            hint = did_you_mean(tool, [*by_name, *MAIL_TOOLS])
            raise ConfigurationError(f"{where}: breakpoint tool {tool!r} is no action of the swarm{hint}")
    return SwarmCore(
        name=entry.name,
        version=entry.version,
        entrypoint=entry.entrypoint,
        agents={agent.name: _agent(entry, agent, functions[agent.name]) for agent in entry.agents},
        actions=by_name,
        breakpoint_tools=frozenset(entry.breakpoint_tools),
        task_message_limit=entry.task_message_limit or task_message_limit,
        description=entry.description,
        keywords=tuple(entry.keywords),
        public=entry.public,
    )


def describe_swarm(swarm: SwarmCore) -> SwarmEntry:
    """An entry for a swarm that was built in Python: who is in it and may do what, but not what it was built of."""
    return SwarmEntry(
        name=swarm.name,
        version=swarm.version,
        entrypoint=swarm.entrypoint,
        agents=[
            AgentEntry(
                name=name,
                factory=BUILT_IN_PYTHON,
                comm_targets=list(agent.comm_targets),
                actions=list(agent.actions),
                enable_entrypoint=agent.enable_entrypoint,
                enable_interswarm=agent.enable_interswarm,
                can_complete_tasks=agent.can_complete_tasks,
                tool_format=agent.tool_format,
                exclude_tools=sorted(agent.exclude_tools),
            )
            for name, agent in swarm.agents.items()
        ],
        actions=[
            ActionEntry(
                name=action.name,
                description=action.description,
                parameters=dict(action.parameters),
                idempotent=action.idempotent,
            )
            for action in swarm.actions.values()
        ],
        breakpoint_tools=sorted(swarm.breakpoint_tools),
        task_message_limit=swarm.task_message_limit,
        description=swarm.description,
        keywords=list(swarm.keywords),
        public=swarm.public,
    )


def warn_of_inert_setting(where: str) -> None:
    """Say in the log that `enable_db_agent_histories`, which was set, does nothing."""
    logger.warning(
        "%s: enable_db_agent_histories has no effect: agents' histories are always kept in the database",
        where,
    )


def excluded_tools(entry: SwarmEntry, agent: AgentEntry) -> frozenset[str]:
    """The MAIL tools that the agent may not call: its own list and the swarm's."""
    return frozenset((*entry.exclude_tools, *agent.exclude_tools))


async def not_built(_history: History, _choice: ToolChoice) -> AgentOutput:
    """Stands for an agent's function while only the wiring is checked."""
    raise NotImplementedError


def _agent(entry: SwarmEntry, agent: AgentEntry, function: AgentFunction) -> AgentCore:
    return AgentCore(
        function=function,
        comm_targets=tuple(agent.comm_targets),
        actions=tuple(agent.actions),
        enable_entrypoint=agent.enable_entrypoint,
        enable_interswarm=agent.enable_interswarm,
        can_complete_tasks=agent.can_complete_tasks,
        tool_format=agent.tool_format,
        exclude_tools=excluded_tools(entry, agent),
    )


def _require_unique(what: str, names: Iterable[str]) -> None:
    double = sorted(name for name, count in Counter(names).items() if count > 1)
    if double:
        raise ConfigurationError(
            f"{what} must have different names, but there are several: {', '.join(double)}"
        )
