"""Agents: `Agent`, which fills in a template, `MAILAgentTemplate`, which builds a `MAILAgent`."""

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

from pydantic import ValidationError

from mail.api.actions import MAILAction, Setting
from mail.api.actions import action as make_action
from mail.api.tracebacks import without_frames
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.error_text import describe, did_you_mean
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.context import Context
from mail.core.task.guards import Guard
from mail.core.task.swarm import AgentCore, AgentFunction, History, ToolChoice
from mail.errors import ConfigurationError
from mail.factories import LiteLLMActionAgentFunction, LiteLLMSupervisorFunction
from mail.factories.base import check_model_options
from mail.factories.fallback import read_fallback
from mail.factories.options import needs_chat
from mail.factories.prompts import system_prompt
from mail.mcp.servers import MCPOption, MCPServer, read_servers
from mail.swarms_json.build import build_function, read_params, resolve_agent
from mail.swarms_json.references import resolve_params, resolver
from mail.swarms_json.skills import load_skills
from mail.swarms_json.specs import AgentOptions, AgentSpec, ContextOption, Factory
from mail.utils.parsing import read_python_string, target_address_is_interswarm

EXAMPLES = {
    "supervisor": "mail.examples.supervisor.agent",
    "weather": "mail.examples.weather_dummy.template",
    "math": "mail.examples.math_dummy.template",
    "consultant": "mail.examples.consultant_dummy.agent",
    "analyst": "mail.examples.analyst_dummy.agent",
}
"""The modules of the example agents; in each, `TEMPLATE` has the parameters except `name` and `comm_targets`."""


class BaseAgent:
    """Base class of agents and their templates, with the fields of their spec as attributes."""

    name = Setting[str]()
    factory = Setting[Factory]()
    comm_targets = Setting[list[str]]()
    agent_params = Setting[dict[str, Any]]()
    enable_entrypoint = Setting[bool]()
    enable_interswarm = Setting[bool]()
    can_complete_tasks = Setting[bool]()
    tool_format = Setting[ToolFormat]()
    exclude_tools = Setting[list[str]]()
    sequential = Setting[bool]()
    mcp = Setting[dict[str, MCPServer]]()
    strict_tools = Setting[bool | None]()
    approve = Setting[bool | list[str]]()
    description = Setting[str]()
    context = Setting[Context | Literal["off"]]()
    reminders = Setting[bool]()
    copies = Setting[int]()
    guards = Setting[list[Guard]]()

    def __init__(self, spec: AgentSpec, actions: Sequence[MAILAction]) -> None:
        self._spec = spec
        self.actions = list(actions)
        self._validate()

    @property
    def spec(self) -> AgentSpec:
        """The present settings of the agent."""
        return self._spec.but(actions=[action.name for action in self.actions])

    def _validate(self) -> None:
        """Raise ConfigurationError for an agent that no swarm could have."""
        for tool in self.exclude_tools:
            if tool not in MAIL_TOOLS:
                raise ConfigurationError(
                    f"{self._spec.where}: exclude_tools names {tool!r}, which is not a MAIL tool"
                    f"{did_you_mean(tool, MAIL_TOOLS)}"
                )

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


class MAILAgent(BaseAgent):
    """An agent that runs: `function` takes its history and returns its output.

    The other arguments are those of `MAILAgentTemplate`. Raises ConfigurationError for invalid settings.
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
        **options: Unpack[AgentOptions],
    ) -> None:
        if can_complete_tasks is None:
            can_complete_tasks = not isinstance(factory, str) and _supervises(factory)
        spec = read_agent(
            name,
            options,
            factory=factory,
            comm_targets=list(comm_targets),
            agent_params=dict(agent_params),
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=list(exclude_tools or ()),
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
        if any(isinstance(each, str) for each in self._spec.skills):
            raise ConfigurationError(
                f"agent {self.name!r}: its function was made without the skills; give them to its template"
            )
        super()._validate()


class MAILAgentTemplate(BaseAgent):
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
        allowed_prefixes: Collection[str] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        if can_complete_tasks is None:
            can_complete_tasks = _supervises(factory, allowed_prefixes)
        params = read_params(
            f"agent {name!r}", agent_params, resolver(allowed_prefixes), is_trusted=allowed_prefixes is None
        )
        spec = read_agent(
            name,
            options,
            factory=factory,
            comm_targets=list(comm_targets),
            agent_params=params,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=list(exclude_tools or ()),
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
        if spec.skills:
            spec = spec.but(skills=load_skills(spec.where, spec.skills, is_trusted=allowed_prefixes is None))
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
            spec = AgentSpec.model_validate_json(json_str or json_dump)
        except ValidationError as error:
            raise ConfigurationError(f"agent: {describe(error, AgentSpec)}") from None
        return cls.of_file(spec, actions_by_name or {}, allowed_prefixes=allowed_prefixes)

    @classmethod
    def of_file(
        cls,
        spec: AgentSpec,
        known: Mapping[str, MAILAction],
        *,
        swarm_servers: Mapping[str, MCPServer] = MappingProxyType({}),
        allowed_prefixes: Collection[str] | None = None,
    ) -> Self:
        """Return the template of an agent of a file, in a swarm with these actions and MCP servers.

        Raises ConfigurationError.
        """
        for name in spec.actions:
            if name not in known:
                hint = did_you_mean(name, known) or "; give it in actions_by_name"
                raise ConfigurationError(f"{spec.where}: {name!r} is not a known action{hint}")
        actions = [known[name] for name in spec.actions]
        spec = resolve_agent(
            spec.where,
            spec,
            resolver(allowed_prefixes),
            swarm_servers=swarm_servers,
            is_trusted=allowed_prefixes is None,
        )
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
            return build_function(
                f"agent {spec.name!r}",
                spec,
                [action.to_tool_dict(spec.tool_format) for action in actions],
                resolve=partial(read_python_string, allowed_prefixes=self._allowed_prefixes),
                instance_params=instance_params,
                print_llm_streams=print_llm_streams,
            )

        spec = self.spec.but(exclude_tools=sorted({*self.exclude_tools, *exclude_tools}))
        return MAILAgent.from_spec(spec, actions, build(spec), build)

    def _top_level_params(self) -> dict[str, Any]:
        """Return the parameters that the factory gets apart from `agent_params`."""
        return self.spec.wiring([action.to_tool_dict(self.tool_format) for action in self.actions])


def read_agent(name: str, options: AgentOptions, **settings: Any) -> AgentSpec:
    """Return the spec of an agent that is defined in Python.

    `options` and `settings` are fields of `AgentSpec`; Python may give `approve` and `mcp` in other forms. Raises
    ConfigurationError.
    """
    where, given = f"agent {name!r}", {**settings, **options}
    approve = options.get("approve", False)
    if isinstance(approve, str):
        raise ConfigurationError(
            f"{where}: approve is a list of names, such as [{approve!r}], or True for all"
        )
    if not isinstance(approve, bool):
        given["approve"] = list(approve)
    return AgentSpec.read(where, {**given, "name": name, "mcp": read_servers(where, options.get("mcp", ()))})


def template_for(agent: MAILAgent | MAILAgentTemplate, names: Iterable[str]) -> MAILAgentTemplate:
    """Return a template of an agent that may write only to agents with these names, and to other swarms."""
    known = set(names)
    targets = [
        target for target in agent.comm_targets if target in known or target_address_is_interswarm(target)
    ]
    return MAILAgentTemplate.from_spec(agent.spec.but(comm_targets=targets), agent.actions)


ALONE = ("send_request", "send_response", "send_interrupt", "send_broadcast")
"""MAIL tools of no use to an agent that can write to nobody."""


class Agent(BaseAgent):
    """An agent: a language model with a system prompt, actions and a team.

        writer = Agent("writer", "You write three clear sentences.", model="openai/gpt-5-mini")
        lead = Agent("lead", "You answer questions.", model="openai/gpt-5-mini", team=[writer])

    Args:
        name: its address in the swarm.
        system: its system prompt; the swarm adds how to answer, and whom the agent may write to.
        model: its language model, by its name in litellm: `openai/gpt-5-mini`. Of a list, calls go to the first one
            that can be used (docs/fallback.md).
        actions: the actions that it may call: made by `@action`, or functions that could be.
        team: the agents that it may write to, and which may write to it.
        function: an agent function, in place of a model: async, from a history and a tool choice to text and calls.
        factory: builds such a function from the wiring and `options`; or its import string.
        can_complete_tasks: whether it may complete tasks; by default only the lead of the swarm.
        tool_format: the API of the model: `responses`, or `completions`, the default if an option needs it.
        exclude_tools: MAIL tools that it may not call.
        comm_targets: further agents that it may write to; `agent@swarm` for those of other swarms.
        description: what it does, for people and for the agents that may write to it.
        sequential: whether its actions run one after the other.
        strict_tools: whether its text without a tool call is an error; None for the swarm's setting.
        approve: the names of its actions and MCP tools whose calls a person must approve; True for all.
        context: how its context is kept within the window of its model: a dictionary with some of `at`, `keep`, `model`
            and `results` (docs/context.md), or `off` to send all of it.
        reminders: whether it has the tool `remind_me`, with which a note comes back to it later (docs/long-work.md).
        copies: how many requests it works on at once, each with a history of its own; by default one after the other,
            in one history (docs/agents.md). Not for the lead.
        guards: made by `@guard`, they judge what it says and does before that leaves its turn (docs/guards.md).
        skills: folders of Agent Skills, of which its prompt has a line each and which it reads as needed
            (docs/skills.md).
        mcp: MCP servers whose tools it may call: URLs, commands as lists of words, or a dictionary as in `mcpServers`
            files (docs/mcp.md).
        options: options of the model call, such as `temperature` (docs/models.md); with `factory`, its parameters.

    Raises ConfigurationError for invalid settings.
    """

    @without_frames
    def __init__(
        self,
        name: str,
        system: str = "",
        *,
        model: str | Sequence[str] | None = None,
        actions: Iterable[MAILAction | Callable[..., Any]] = (),
        team: Iterable["Agent"] = (),
        function: AgentFunction | None = None,
        factory: Factory | None = None,
        can_complete_tasks: bool | None = None,
        tool_format: ToolFormat | None = None,
        exclude_tools: Sequence[str] = (),
        comm_targets: Sequence[str] = (),
        enable_interswarm: bool = False,
        description: str = "",
        sequential: bool = False,
        strict_tools: bool | None = None,
        approve: bool | Sequence[str] = False,
        context: ContextOption | None = None,
        reminders: bool = False,
        copies: int = 0,
        guards: Sequence[Guard] = (),
        skills: Sequence[str | os.PathLike[str]] = (),
        mcp: MCPOption = (),
        **options: Any,
    ) -> None:
        self.system = system
        self.model = model
        self.team = list(team)
        for member in self.team:
            if not isinstance(member, Agent):
                raise ConfigurationError(f"agent {name!r}: team must be agents, not {member!r}")
        self.function = function
        self.options = options
        if tool_format is None:
            tool_format = "completions" if model is not None and needs_chat(options) else "responses"
        given = [what for what in (model, function, factory) if what is not None]
        if len(given) != 1:
            raise ConfigurationError(
                f"agent {name!r}: give it one of model (such as 'openai/gpt-5-mini'), function and factory"
            )
        if model is not None:
            if "llm" in options:
                raise ConfigurationError(f"agent {name!r}: 'llm' is not an option: use model")
            first, _ = read_fallback(
                f"agent {name!r}", model, options.get("fallback"), tool_format=tool_format
            )
            check_model_options(f"agent {name!r}", first, tool_format, options)
        elif function is not None and options:
            raise ConfigurationError(
                f"agent {name!r}: a function takes no options, but got: {', '.join(options)}"
            )
        settings: AgentOptions = {
            "sequential": sequential,
            "mcp": mcp,
            "strict_tools": strict_tools,
            "approve": approve,
            "description": description,
            "reminders": reminders,
            "copies": copies,
            "guards": guards,
            "skills": skills,
        }
        if context is not None:
            settings["context"] = context
        spec = read_agent(
            name,
            settings,
            factory=LiteLLMActionAgentFunction if factory is None else factory,
            comm_targets=list(comm_targets),
            enable_interswarm=enable_interswarm,
            can_complete_tasks=bool(can_complete_tasks),
            tool_format=tool_format,
            exclude_tools=list(exclude_tools),
        )
        self._completes_as_lead = can_complete_tasks is None
        super().__init__(spec, [_as_action(name, each) for each in actions])

    def template(
        self,
        team: Mapping[str, str] = MappingProxyType({}),
        *,
        leads: bool = False,
        actions: Sequence[MAILAction] | None = None,
    ) -> MAILAgentTemplate:
        """Return the template of the agent, which may write to a team and has its own or these `actions`.

        `team` has what the other agents do, by name.
        """
        completes = self.can_complete_tasks or (leads and self._completes_as_lead)
        factory, params = self._factory(team, leads=leads, completes=completes)
        targets = list(dict.fromkeys([*team, *self.comm_targets]))
        alone = () if targets or self.enable_interswarm else ALONE
        spec = self._spec.but(
            factory=factory,
            comm_targets=targets,
            agent_params=resolve_params(params, resolver()),
            enable_entrypoint=leads,
            can_complete_tasks=completes,
            exclude_tools=[*self.exclude_tools, *alone],
        )
        return MAILAgentTemplate.from_spec(spec, self.actions if actions is None else actions)

    def _factory(
        self, team: Mapping[str, str], *, leads: bool, completes: bool
    ) -> tuple[Factory, dict[str, Any]]:
        """Return the factory of the agent's function, and its parameters."""
        if self.model is not None:
            kind = LiteLLMSupervisorFunction if leads else LiteLLMActionAgentFunction
            system = system_prompt(self.system, team, completes=completes)
            return kind, {"llm": self.model, "system": system, **self.options}
        if self.function is not None:
            function = self.function
            return lambda **_wiring: function, {}
        own = {"system": self.system} if self.system else {}
        return self.factory, {**own, **self.options}


def _as_action(agent: str, given: MAILAction | Callable[..., Any]) -> MAILAction:
    if isinstance(given, MAILAction):
        return given
    if not callable(given):
        raise ConfigurationError(f"agent {agent!r}: actions must be functions, not {given!r}")
    return make_action(given)


def wire(lead: Agent) -> dict[str, dict[str, str]]:
    """Return whom each agent of a swarm may write to within it: its team, and those whose team it is in.

    Values are descriptions, by agent name. Raises ConfigurationError if two agents have the same name.
    """
    teams: dict[str, dict[str, str]] = {}
    agents = reachable(lead)
    for agent in agents:
        if agent.name in teams:
            raise ConfigurationError(f"swarm {lead.name!r}: two agents are called {agent.name!r}")
        teams[agent.name] = {}
    for agent in agents:
        for member in agent.team:
            if member is not agent:
                teams[agent.name][member.name] = member.description
                teams[member.name][agent.name] = agent.description
    return teams


def reachable(lead: Agent) -> list[Agent]:
    """Return the lead, its team, the teams of those, and so on; each agent once, circles included."""
    found = {id(lead): lead}
    waiting = [lead]
    for agent in waiting:
        for member in agent.team:
            if id(member) not in found:
                found[id(member)] = member
                waiting.append(member)
    return list(found.values())
