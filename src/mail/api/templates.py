"""`MAILSwarmTemplate`: how to build a swarm."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgentTemplate
from mail.api.base import UNVERSIONED, SwarmParts
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError
from mail.swarms_json.actions import build_actions
from mail.swarms_json.entries import SwarmEntry
from mail.swarms_json.references import resolver
from mail.swarms_json.utils import (
    DEFAULT_SOURCE,
    load_swarm,
    load_swarm_json,
    validate_swarm_from_swarms_json,
)

if TYPE_CHECKING:
    from mail.api.runtime import UserRole
    from mail.api.swarms import MAILSwarm

DEFAULT_USER = "default"


class MAILSwarmTemplate(SwarmParts[MAILAgentTemplate]):
    """How to build a swarm, for any number of users.

    Args:
        version: of the swarm itself.
        actions: the swarm's actions; those of its agents belong to it in any case.
        entrypoint: the agent that users write to.
        breakpoint_tools: tools whose call pauses the task until the user gives their result.
        exclude_tools: MAIL tools that no agent may call.
        task_message_limit: steps a task may take; None for the default.
        public: whether other swarms are told of it.
        enable_db_agent_histories: has no effect; histories are always kept in the store.

    Raises ConfigurationError where the parts don't fit together.
    """

    def __init__(
        self,
        name: str,
        version: str = UNVERSIONED,
        agents: Sequence[MAILAgentTemplate] = (),
        actions: Sequence[MAILAction] = (),
        entrypoint: str = "",
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        public: bool = False,
        enable_db_agent_histories: bool = False,
    ) -> None:
        super().__init__(
            name,
            version,
            agents,
            actions,
            entrypoint,
            enable_interswarm=enable_interswarm,
            breakpoint_tools=breakpoint_tools,
            exclude_tools=exclude_tools,
            task_message_limit=task_message_limit,
            description=description,
            keywords=keywords,
            public=public,
            enable_db_agent_histories=enable_db_agent_histories,
        )

    @classmethod
    def from_swarm_json(cls, json_str: str, *, allowed_prefixes: Collection[str] | None = None) -> Self:
        """The template that an entry of swarms.json describes; its references are resolved at once.

        With `allowed_prefixes` they may only lead to these modules, and to public URLs. Raises ConfigurationError.
        """
        return cls._from_entry(
            validate_swarm_from_swarms_json(load_swarm_json(json_str)), allowed_prefixes=allowed_prefixes
        )

    @classmethod
    def from_swarm_json_file(cls, swarm_name: str, json_filepath: str | Path = DEFAULT_SOURCE) -> Self:
        """The template of the swarm of that name in a swarms.json file. Raises ConfigurationError."""
        return cls._from_entry(load_swarm(swarm_name, json_filepath))

    @classmethod
    def _from_entry(cls, entry: SwarmEntry, *, allowed_prefixes: Collection[str] | None = None) -> Self:
        cores = build_actions(entry, resolver(allowed_prefixes))
        actions = {core.name: MAILAction.from_core(core) for core in cores}
        agents = [
            MAILAgentTemplate.from_entry(agent, actions, allowed_prefixes=allowed_prefixes)
            for agent in entry.agents
        ]
        given = {name: value for name, value in entry.items() if name != "action_imports"}
        return cls(**{**given, "agents": agents, "actions": list(actions.values())})

    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        user_id: str = DEFAULT_USER,
        user_role: "UserRole" = "user",
        base_url: str | None = None,
        registry_file: str | None = None,
        print_llm_streams: bool = True,
        *,
        database: Store | str = ":memory:",
    ) -> "MAILSwarm":
        """Build the swarm for a user.

        Args:
            instance_params: what every agent's factory gets for this instance, such as `user_token`.
            user_role: `agent` for another swarm.
            base_url: by which other swarms reach this one, where `enable_interswarm` is on.
            registry_file: where the swarms that it knows are kept; by default nowhere.
            print_llm_streams: False silences all agents.
            database: where tasks are kept: a store, or what `[server.storage] database` takes. The default is in
                memory.

        Raises ConfigurationError for a factory that can't be found or refuses.
        """
        from mail import bootstrap
        from mail.api.interswarm import LOCAL_URL
        from mail.api.swarms import MAILSwarm

        registry = None
        if self.enable_interswarm:
            registry = bootstrap.interswarm_registry(
                self.name,
                base_url or LOCAL_URL,
                registry_file,
                description=self.description,
                keywords=self.keywords,
                public=self.public,
            )
        return MAILSwarm(
            name=self.name,
            version=self.version,
            agents=[
                agent.instantiate(
                    instance_params, exclude_tools=self.exclude_tools, print_llm_streams=print_llm_streams
                )
                for agent in self.agents
            ],
            actions=self.actions,
            entrypoint=self.entrypoint,
            user_id=user_id,
            user_role=user_role,
            swarm_registry=registry,
            enable_interswarm=self.enable_interswarm,
            breakpoint_tools=self.breakpoint_tools,
            exclude_tools=self.exclude_tools,
            task_message_limit=self.task_message_limit,
            description=self.description,
            keywords=self.keywords,
            enable_db_agent_histories=self.enable_db_agent_histories,
            print_llm_streams=print_llm_streams,
            database=database,
        )

    def to_core(
        self, instance_params: Mapping[str, Any] | None = None, *, print_llm_streams: bool = True
    ) -> SwarmCore:
        """The swarm as the engine takes it, its agents built: what a server runs for all its users."""
        agents = [
            agent.instantiate(
                instance_params or {}, exclude_tools=self.exclude_tools, print_llm_streams=print_llm_streams
            )
            for agent in self.agents
        ]
        return self._assemble({agent.name: agent.function for agent in agents})

    def get_subswarm(
        self, names: Sequence[str], name_suffix: str, entrypoint: str | None = None
    ) -> "MAILSwarmTemplate":
        """A template with these agents only, called `<name>-<name_suffix>`.

        They may write to each other as before, and to other swarms. The entrypoint stays, or becomes the first
        agent that can be one. Raises ConfigurationError where no entrypoint or no supervisor is left.
        """
        return MAILSwarmTemplate(**self._subswarm(names, name_suffix, entrypoint))

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Let agent i write to agent j where row i has a 1 in column j, and nowhere else in the swarm."""
        for agent, targets in zip(self.agents, self._targets_in(adj), strict=True):
            agent.comm_targets = targets

    def start_server(
        self,
        port: int = 8000,
        host: str = "0.0.0.0",  # noqa: S104  # the documented default
        launch_ui: bool = False,
        ui_port: int = 3000,
        open_browser: bool = False,
        *,
        ui_path: str | Path | None = None,
    ) -> None:
        """Serve the swarm over HTTP until the process is told to stop, as `mail server` does.

        Everything else is as `mail.toml` says. With `launch_ui`, the development server of a web interface is
        started besides (`npm run dev` in `ui_path`, by default in `ui`), where there is one.

        Raises MAILError where it can't start.
        """
        from mail.api.serving import serve_template

        if not 0 <= port <= 65535:
            raise ConfigurationError(f"port must be a number from 0 to 65535, not {port}")
        serve_template(
            self,
            port=port,
            host=host,
            ui_path=Path(ui_path or "ui") if launch_ui else None,
            ui_port=ui_port,
            open_browser=open_browser,
        )
