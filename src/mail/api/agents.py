"""Agents (`MAILAgent`) and the templates that build them (`MAILAgentTemplate`)."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Self, get_args

from pydantic import ValidationError

from mail.api.actions import MAILAction
from mail.api.tracebacks import without_frames
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.error_text import describe, did_you_mean
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.swarm import AgentCore, AgentFunction, History, ToolChoice
from mail.errors import ConfigurationError
from mail.mcp.servers import MCPOption, ToolServer, read_servers, tool_servers
from mail.swarms_json.build import agent_spec, build_function, read_params
from mail.swarms_json.entries import AgentEntry, AgentSpec, Factory
from mail.swarms_json.references import resolver
from mail.swarms_json.validation import check_agent
from mail.utils.parsing import read_python_string, target_address_is_interswarm

EXAMPLES = {
    "supervisor": "mail.examples.supervisor.agent",
    "weather": "mail.examples.weather_dummy.template",
    "math": "mail.examples.math_dummy.template",
    "consultant": "mail.examples.consultant_dummy.agent",
    "analyst": "mail.examples.analyst_dummy.agent",
}
"""The modules of the example agents; in each, `TEMPLATE` has the parameters except `name` and `comm_targets`."""


class _Agent:
    """Base class of agents and their templates: the settings, as public attributes."""

    def __init__(self, spec: AgentSpec, actions: Sequence[MAILAction]) -> None:
        self.name = spec.name
        self.factory = spec.factory
        self.comm_targets = list(spec.comm_targets)
        self.actions = list(actions)
        self.agent_params = dict(spec.agent_params)
        self.enable_entrypoint = spec.enable_entrypoint
        self.enable_interswarm = spec.enable_interswarm
        self.can_complete_tasks = spec.can_complete_tasks
        self.tool_format: ToolFormat = spec.tool_format
        self.exclude_tools = list(spec.exclude_tools)
        self.sequential = spec.sequential
        self.mcp = spec.mcp
        self.strict_tools = spec.strict_tools
        self.approve = spec.approve
        self.description = spec.description
        self._validate()

    @property
    def spec(self) -> AgentSpec:
        """The present settings of the agent."""
        return AgentSpec(
            name=self.name,
            factory=self.factory,
            comm_targets=self.comm_targets,
            actions=[action.name for action in self.actions],
            agent_params=self.agent_params,
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=self.exclude_tools,
            sequential=self.sequential,
            mcp=self.mcp,
            strict_tools=self.strict_tools,
            approve=self.approve,
            description=self.description,
        )

    def _validate(self) -> None:
        """Raise ConfigurationError for an agent that no swarm could have."""
        where = f"agent {self.name!r}"
        if self.tool_format not in get_args(ToolFormat):
            raise ConfigurationError(
                f"{where}: tool_format must be one of {get_args(ToolFormat)}, not {self.tool_format!r}"
            )
        for tool in self.exclude_tools:
            if tool not in MAIL_TOOLS:
                raise ConfigurationError(
                    f"{where}: exclude_tools names {tool!r}, which is not a MAIL tool{did_you_mean(tool, MAIL_TOOLS)}"
                )
        if not isinstance(self.factory, str) and not callable(self.factory):
            raise ConfigurationError(
                f"{where}: its factory {self.factory!r} is neither a function nor an import string"
            )
        check_agent(self.spec)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _supervises(factory: Factory, allowed_prefixes: Collection[str] | None = None) -> bool:
    """Return whether a factory makes supervisors, which can complete tasks by default."""
    if isinstance(factory, str):
        try:
            factory = read_python_string(factory, allowed_prefixes=allowed_prefixes)
        except ConfigurationError:  # `instantiate` reports it, as the module may exist by then
            return False
    return getattr(factory, "supervises", False) is True


class MAILAgent(_Agent):
    """An agent that runs: `function` takes its history and returns its output.

    Raises ConfigurationError for invalid settings.
    """

    def __init__(
        self,
        name: str,
        factory: Factory,
        actions: Sequence[MAILAction],
        function: AgentFunction,
        comm_targets: Sequence[str],
        agent_params: Mapping[str, Any],
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool | None = None,
        tool_format: ToolFormat = "responses",
        exclude_tools: Sequence[str] | None = None,
        *,
        sequential: bool = False,
        mcp: MCPOption = (),
        strict_tools: bool | None = None,
        approve: bool | Sequence[str] = False,
        description: str = "",
    ) -> None:
        is_supervisor = not isinstance(factory, str) and _supervises(factory)
        spec = AgentSpec(
            name=name,
            factory=factory,
            comm_targets=list(comm_targets),
            agent_params=dict(agent_params),
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=is_supervisor if can_complete_tasks is None else can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=list(exclude_tools or ()),
            sequential=sequential,
            mcp=read_servers(f"agent {name!r}", mcp),
            strict_tools=strict_tools,
            approve=read_approve(f"agent {name!r}", approve),
            description=description,
        )
        self._set_up(spec, actions, function)

    @classmethod
    def from_spec(
        cls,
        spec: AgentSpec,
        actions: Sequence[MAILAction],
        function: AgentFunction,
        rebuild: Callable[[AgentSpec], AgentFunction] | None = None,
    ) -> Self:
        """Return the agent with these settings; `rebuild` builds its function again for changed ones."""
        agent = cls.__new__(cls)
        agent._set_up(spec, actions, function, rebuild)
        return agent

    def _set_up(
        self,
        spec: AgentSpec,
        actions: Sequence[MAILAction],
        function: AgentFunction,
        rebuild: Callable[[AgentSpec], AgentFunction] | None = None,
    ) -> None:
        self.function = function
        self._rebuild = rebuild
        super().__init__(spec, actions)

    def __call__(
        self, messages: History, tool_choice: ToolChoice = "required"
    ) -> Awaitable[tuple[str | None, list[AgentToolCall]]]:
        """Run one step of the agent; return its text and its tool calls."""
        return self.function(messages, tool_choice)

    def to_core(self) -> AgentCore:
        """Return the agent in the form that the engine runs."""
        return self.spec.to_core(self.function)

    def rewire(self, comm_targets: Sequence[str]) -> None:
        """Replace the agents that this one may write to.

        Its function was built with the previous list; a function that a template built is built again.
        """
        self.comm_targets = list(comm_targets)
        if self._rebuild is not None:
            self.function = self._rebuild(self.spec)

    def _to_template(self, names: list[str]) -> "MAILAgentTemplate":
        """Return a template of this agent for a swarm of these agents only."""
        return template_for(self, names)

    def _validate(self) -> None:
        if not callable(self.function):
            raise ConfigurationError(f"agent {self.name!r}: its function {self.function!r} can't be called")
        super()._validate()


class MAILAgentTemplate(_Agent):
    """A template for building an agent.

    Args:
        factory: builds the agent's function from its wiring, `agent_params` and the instance's parameters; or its
            import string.
        comm_targets: agents it may write to, `agent@swarm` for remote ones.
        actions: actions it may call.
        agent_params: further parameters of the factory; `python::` and `url::` references are resolved immediately.
            In `system` a reference to a Python object may omit its prefix.
        can_complete_tasks: whether it may complete tasks; by default only if its factory makes supervisors, as those
            of `mail.factories.supervisor` do.
        tool_format: the API whose formats it uses.
        exclude_tools: MAIL tools it may not call.
        sequential: whether its actions run one after the other, instead of at the same time.
        mcp: MCP servers whose tools it may call (see `mail.mcp.servers.read_servers`).
        strict_tools: whether text without a tool call is an error, instead of an answer; None for the swarm's setting.
        approve: the names of its actions and MCP tools whose calls a person must approve; True for all.
        description: what it does, for people and for the agents that may write to it.
        allowed_prefixes: the modules that references may name; None for all.

    Raises ConfigurationError for invalid settings.
    """

    @without_frames
    def __init__(
        self,
        name: str,
        factory: Factory,
        comm_targets: Sequence[str],
        actions: Sequence[MAILAction],
        agent_params: Mapping[str, Any],
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool | None = None,
        tool_format: ToolFormat = "responses",
        exclude_tools: Sequence[str] | None = None,
        *,
        sequential: bool = False,
        mcp: MCPOption = (),
        strict_tools: bool | None = None,
        approve: bool | Sequence[str] = False,
        description: str = "",
        allowed_prefixes: Collection[str] | None = None,
    ) -> None:
        if can_complete_tasks is None:
            can_complete_tasks = _supervises(factory, allowed_prefixes)
        spec = AgentSpec(
            name=name,
            factory=factory,
            comm_targets=list(comm_targets),
            agent_params=read_params(
                f"agent {name!r}",
                agent_params,
                resolver(allowed_prefixes),
                is_trusted=allowed_prefixes is None,
            ),
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=list(exclude_tools or ()),
            sequential=sequential,
            mcp=read_servers(f"agent {name!r}", mcp),
            strict_tools=strict_tools,
            approve=read_approve(f"agent {name!r}", approve),
            description=description,
        )
        self._set_up(spec, actions, allowed_prefixes)

    @classmethod
    def from_spec(
        cls,
        spec: AgentSpec,
        actions: Sequence[MAILAction],
        *,
        allowed_prefixes: Collection[str] | None = None,
    ) -> Self:
        """Return the template with these settings, whose references are resolved already."""
        template = cls.__new__(cls)
        template._set_up(spec, actions, allowed_prefixes)
        return template

    def _set_up(
        self, spec: AgentSpec, actions: Sequence[MAILAction], allowed_prefixes: Collection[str] | None
    ) -> None:
        self._allowed_prefixes = allowed_prefixes
        super().__init__(spec, actions)

    @classmethod
    @without_frames
    def from_swarm_json(
        cls,
        json_str: str = "",
        actions_by_name: Mapping[str, MAILAction] | None = None,
        *,
        json_dump: str = "",
        allowed_prefixes: Collection[str] | None = None,
    ) -> Self:
        """Return the template that an entry of `agents` in swarms.json describes.

        `actions_by_name` are the swarm's actions, to which the entry refers. `json_dump` is an alias of `json_str`.
        Raises ConfigurationError.
        """
        try:
            entry = AgentEntry.model_validate_json(json_str or json_dump)
        except ValidationError as error:
            raise ConfigurationError(f"agent: {describe(error, AgentEntry)}") from None
        return cls.from_entry(entry, actions_by_name or {}, allowed_prefixes=allowed_prefixes)

    @classmethod
    def from_entry(
        cls,
        entry: AgentEntry,
        known: Mapping[str, MAILAction],
        *,
        allowed_prefixes: Collection[str] | None = None,
        mcp: tuple[ToolServer, ...] | None = None,
    ) -> Self:
        """Return the template of a checked entry, in a swarm with these actions. Raises ConfigurationError.

        `mcp` are its MCP servers with those of the swarm.
        """
        for name in entry.actions:
            if name not in known:
                hint = did_you_mean(name, known) or "; give it in actions_by_name"
                raise ConfigurationError(f"agent {entry.name!r}: {name!r} is not a known action{hint}")
        if mcp is None:
            mcp = tool_servers(f"agent {entry.name!r}", entry.mcp, is_trusted=allowed_prefixes is None)
        spec = agent_spec(entry, resolver(allowed_prefixes), mcp, is_trusted=allowed_prefixes is None)
        actions = [known[name] for name in entry.actions]
        return cls.from_spec(spec, actions, allowed_prefixes=allowed_prefixes)

    @classmethod
    def from_example(cls, name: str, comm_targets: Sequence[str]) -> Self:
        """Return the template of an example agent: `supervisor`, `weather`, `math`, `consultant` or `analyst`.

        Raises ConfigurationError for another name.
        """
        if name not in EXAMPLES:
            hint = did_you_mean(name, EXAMPLES) or f"; there are: {', '.join(EXAMPLES)}"
            raise ConfigurationError(f"there is no example agent {name!r}{hint}")
        parameters: dict[str, Any] = import_module(EXAMPLES[name]).TEMPLATE
        return cls(name=name, comm_targets=comm_targets, **parameters)

    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        *,
        exclude_tools: Sequence[str] = (),
        print_llm_streams: bool = True,
    ) -> MAILAgent:
        """Build the agent.

        Args:
            instance_params: parameters of the factory for this instance, such as `user_token`.
            exclude_tools: MAIL tools that no agent of the swarm may call.
            print_llm_streams: False silences a factory that takes the parameter.

        Raises ConfigurationError if the factory can't be imported or rejects its parameters.
        """
        actions = list(self.actions)

        def build(spec: AgentSpec) -> AgentFunction:
            if isinstance(spec.factory, str):
                factory = read_python_string(spec.factory, allowed_prefixes=self._allowed_prefixes)
                spec = replace(spec, factory=factory)
            return build_function(
                f"agent {spec.name!r}",
                spec,
                [action.to_tool_dict(spec.tool_format) for action in actions],
                instance_params=instance_params,
                print_llm_streams=print_llm_streams,
            )

        spec = replace(self.spec, exclude_tools=sorted({*self.exclude_tools, *exclude_tools}))
        return MAILAgent.from_spec(spec, actions, build(spec), build)

    def _top_level_params(self) -> dict[str, Any]:
        """Return the parameters that the factory gets apart from `agent_params`."""
        return self.spec.wiring([action.to_tool_dict(self.tool_format) for action in self.actions])


def read_approve(where: str, approve: bool | Sequence[str]) -> bool | list[str]:
    """Return the names of actions to approve, or whether all are. Raises ConfigurationError for a text."""
    if isinstance(approve, str):
        raise ConfigurationError(
            f"{where}: approve is a list of names, such as [{approve!r}], or True for all"
        )
    return approve if isinstance(approve, bool) else list(approve)


def template_for(agent: MAILAgent | MAILAgentTemplate, names: Iterable[str]) -> MAILAgentTemplate:
    """Return a template of an agent that may write only to agents with these names, and to other swarms."""
    known = set(names)
    targets = [
        target for target in agent.comm_targets if target in known or target_address_is_interswarm(target)
    ]
    return MAILAgentTemplate.from_spec(replace(agent.spec, comm_targets=targets), agent.actions)
