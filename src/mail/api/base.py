"""What a swarm and its template have in common: their parts, how these fit together, and who may write to whom."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgent, MAILAgentTemplate
from mail.core.protocol.problems import describe
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.swarm import AgentFunction, SwarmCore
from mail.errors import ConfigurationError
from mail.swarms_json.entries import SwarmEntry
from mail.swarms_json.wiring import assemble, not_built
from mail.utils.parsing import target_address_is_interswarm

UNVERSIONED = "0"
"""The version of a swarm that says none."""


class SwarmParts[Agent: (MAILAgent, MAILAgentTemplate)]:
    """The parts of a swarm. Raises ConfigurationError where they don't fit together."""

    def __init__(
        self,
        name: str,
        version: str,
        agents: Sequence[Agent],
        actions: Sequence[MAILAction],
        entrypoint: str,
        *,
        enable_interswarm: bool,
        breakpoint_tools: Sequence[str],
        exclude_tools: Sequence[str],
        task_message_limit: int | None,
        description: str,
        keywords: Sequence[str],
        public: bool,
        enable_db_agent_histories: bool,
    ) -> None:
        self.name = name
        self.version = version
        self.agents: list[Agent] = list(agents)
        self.actions = list(actions)
        self.entrypoint = entrypoint
        self.enable_interswarm = enable_interswarm
        self.breakpoint_tools = list(breakpoint_tools)
        self.exclude_tools = list(exclude_tools)
        self.task_message_limit = task_message_limit
        self.description = description
        self.keywords = list(keywords)
        self.public = public
        self.enable_db_agent_histories = enable_db_agent_histories
        self._validate()

    def _validate(self) -> None:
        """Raise ConfigurationError where the parts don't fit together, with a hint at mistyped names."""
        self._assemble({agent.name: not_built for agent in self.agents})

    def _assemble(self, functions: Mapping[str, AgentFunction]) -> SwarmCore:
        """The swarm as the engine takes it."""
        return assemble(self._entry(), functions, [action.to_core() for action in self._all_actions()])

    def _entry(self) -> SwarmEntry:
        """The swarm as swarms.json would describe it, but for its actions."""
        try:
            return SwarmEntry(
                name=self.name,
                version=self.version,
                entrypoint=self.entrypoint,
                agents=[agent.entry() for agent in self.agents],
                breakpoint_tools=self.breakpoint_tools,
                exclude_tools=self.exclude_tools,
                task_message_limit=self.task_message_limit,
                description=self.description,
                keywords=self.keywords,
                public=self.public,
                enable_interswarm=self.enable_interswarm,
                enable_db_agent_histories=self.enable_db_agent_histories,
            )
        except ValidationError as error:
            raise ConfigurationError(f"swarm {self.name!r}: {describe(error, SwarmEntry)}") from error

    def _all_actions(self) -> list[MAILAction]:
        """The swarm's actions and those of its agents, each once."""
        actions = [*self.actions, *(action for agent in self.agents for action in agent.actions)]
        return list({id(action): action for action in actions}.values())

    def _build_adjacency_matrix(self) -> tuple[list[list[int]], list[str]]:
        """Who may write to whom, and the agents' names: row i has a 1 in column j if agent i may write to agent j."""
        names = [agent.name for agent in self.agents]
        rows = [[int(self._may_write(agent, name)) for name in names] for agent in self.agents]
        return rows, names

    def _may_write(self, agent: Agent, name: str) -> bool:
        return name in agent.comm_targets or f"{name}@{self.name}" in agent.comm_targets

    def _targets_in(self, adj: Sequence[Sequence[int]]) -> list[list[str]]:
        """Each agent's `comm_targets` by a matrix; those in other swarms stay. Raises ConfigurationError."""
        names = [agent.name for agent in self.agents]
        if len(adj) != len(names) or any(len(row) != len(names) for row in adj):
            raise ConfigurationError(
                f"swarm {self.name!r}: the matrix must have {len(names)} rows of {len(names)} columns, for {names}"
            )
        return [
            [name for name, may in zip(names, row, strict=True) if may]
            + [target for target in agent.comm_targets if self._is_remote(target)]
            for agent, row in zip(self.agents, adj, strict=True)
        ]

    def _is_remote(self, target: str) -> bool:
        return target_address_is_interswarm(target) and not target.endswith(f"@{self.name}")

    def _subswarm(self, names: Sequence[str], name_suffix: str, entrypoint: str | None) -> dict[str, Any]:
        """The parameters of a template with some of the agents only."""
        known = {agent.name: agent for agent in self.agents}
        for name in names:
            if name not in known:
                raise ConfigurationError(
                    f"swarm {self.name!r}: there is no agent {name!r}{did_you_mean(name, known)}"
                )
        kept = [agent for agent in self.agents if agent.name in names]
        actions = {id(action): action for agent in kept for action in agent.actions}
        callable_tools = {action.name for action in actions.values()}
        return {
            "name": f"{self.name}-{name_suffix}",
            "version": self.version,
            "agents": [agent._template(names) for agent in kept],
            "actions": list(actions.values()),
            "entrypoint": entrypoint or self._entrypoint_among(kept),
            "enable_interswarm": self.enable_interswarm,
            "breakpoint_tools": [
                tool
                for tool in self.breakpoint_tools
                if tool in callable_tools or tool not in {action.name for action in self._all_actions()}
            ],
            "exclude_tools": self.exclude_tools,
            "task_message_limit": self.task_message_limit,
            "description": self.description,
            "keywords": self.keywords,
            "public": self.public,
            "enable_db_agent_histories": self.enable_db_agent_histories,
        }

    def _entrypoint_among(self, agents: Sequence[Agent]) -> str:
        """The swarm's entrypoint if it is there, else the first agent that can be one."""
        possible = [agent.name for agent in agents if agent.enable_entrypoint]
        if not possible:
            raise ConfigurationError(
                f"swarm {self.name!r}: none of these agents has enable_entrypoint: {[agent.name for agent in agents]}"
            )
        return self.entrypoint if self.entrypoint in possible else possible[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
