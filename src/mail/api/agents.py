"""Agents: how they are built (`MAILAgentTemplate`), and built (`MAILAgent`)."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self, get_args

from pydantic import ValidationError

from mail.api.actions import MAILAction
from mail.api.examples import EXAMPLES, load_example
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.problems import describe
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.swarm import AgentCore, AgentFunction, History, ToolChoice
from mail.errors import ConfigurationError
from mail.swarms_json.agents import agent_wiring, make_function
from mail.swarms_json.entries import AgentEntry
from mail.swarms_json.references import resolve_params, resolver
from mail.utils.parsing import read_python_string, target_address_is_interswarm

Factory = str | Callable[..., Any]
"""What builds an agent's function, or its import string."""


class _Agent:
    """What a template and its agent share: who the agent is, and its place in the swarm."""

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
    ) -> None:
        self.name = name
        self.factory = factory
        self.comm_targets = list(comm_targets)
        self.actions = list(actions)
        self.agent_params = dict(agent_params)
        self.enable_entrypoint = enable_entrypoint
        self.enable_interswarm = enable_interswarm
        self.can_complete_tasks = self._supervises() if can_complete_tasks is None else can_complete_tasks
        self.tool_format: ToolFormat = tool_format
        self.exclude_tools = list(exclude_tools or ())
        self._validate()

    def entry(self) -> AgentEntry:
        """The agent as swarms.json would describe it, as far as it can: a factory that is no text is only named."""
        factory = self.factory if isinstance(self.factory, str) else repr(self.factory)
        return AgentEntry(
            name=self.name,
            factory=factory,
            comm_targets=self.comm_targets,
            actions=[action.name for action in self.actions],
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=self.exclude_tools,
        )

    def _supervises(self) -> bool:
        """Whether the agent can complete tasks where nobody says so: if its factory makes supervisors."""
        return getattr(self.factory, "supervises", False) is True

    def _validate(self) -> None:
        """Raise ConfigurationError for an agent that could be in no swarm."""
        where = f"agent {self.name!r}"
        if self.tool_format not in get_args(ToolFormat):
            raise ConfigurationError(
                f"{where}: tool_format {self.tool_format!r} is none of {get_args(ToolFormat)}"
            )
        for tool in self.exclude_tools:
            if tool not in MAIL_TOOLS:
                raise ConfigurationError(
                    f"{where}: exclude_tools names {tool!r}, which is no MAIL tool{did_you_mean(tool, MAIL_TOOLS)}"
                )
        if not isinstance(self.factory, str) and not callable(self.factory):
            raise ConfigurationError(
                f"{where}: its factory {self.factory!r} is no function, and no import string"
            )
        try:
            self.entry()
        except ValidationError as error:
            raise ConfigurationError(f"{where}: {describe(error, AgentEntry)}") from error

    def _template(self, names: Iterable[str] | None = None) -> "MAILAgentTemplate":
        """A template of this agent; with `names`, it may only write to those, and to other swarms."""
        known = None if names is None else set(names)
        return MAILAgentTemplate(
            name=self.name,
            factory=self.factory,
            comm_targets=[
                target
                for target in self.comm_targets
                if known is None or target in known or target_address_is_interswarm(target)
            ],
            actions=self.actions,
            agent_params=self.agent_params,
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=self.exclude_tools,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class MAILAgent(_Agent):
    """An agent that runs: `function` is called with its history, and returns what it does.

    Raises ConfigurationError for parts that can't be right.
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
    ) -> None:
        self.function = function
        super().__init__(
            name,
            factory,
            comm_targets,
            actions,
            agent_params,
            enable_entrypoint,
            enable_interswarm,
            can_complete_tasks,
            tool_format,
            exclude_tools,
        )
        self._instance: dict[str, Any] | None = None

    def __call__(
        self, messages: History, tool_choice: ToolChoice = "required"
    ) -> Awaitable[tuple[str | None, list[AgentToolCall]]]:
        """One step of the agent: from its history to text and tool calls."""
        return self.function(messages, tool_choice)

    def to_core(self) -> AgentCore:
        """The agent as the engine takes it."""
        return AgentCore(
            function=self.function,
            comm_targets=tuple(self.comm_targets),
            actions=tuple(action.name for action in self.actions),
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=frozenset(self.exclude_tools),
        )

    def rewire(self, comm_targets: Sequence[str]) -> None:
        """Let the agent write to others than before, and tell it so.

        Its function knows whom it may write to; one that a template has built is built anew.
        """
        self.comm_targets = list(comm_targets)
        if self._instance is not None:
            self.function = self._template().instantiate(**self._instance).function

    def _to_template(self, names: list[str]) -> "MAILAgentTemplate":
        """A template of this agent for a swarm of these agents only."""
        return self._template(names)

    def _validate(self) -> None:
        if not callable(self.function):
            raise ConfigurationError(f"agent {self.name!r}: its function {self.function!r} can't be called")
        super()._validate()


class MAILAgentTemplate(_Agent):
    """How to build an agent.

    Args:
        factory: builds the agent's function from its wiring, `agent_params` and the instance's parameters; or the
            import string of what does.
        comm_targets: agents it may write to, `agent@swarm` for remote ones.
        actions: what it may call.
        agent_params: what the factory gets besides; `python::` and `url::` references in it are resolved at once, in
            `system` also one to a Python object without its prefix.
        can_complete_tasks: whether it may finish tasks; the default is what its factory makes, and only those of
            `mail.factories.supervisor` make supervisors (seed 000, docs/factories.md).
        tool_format: which API's shapes it speaks.
        exclude_tools: MAIL tools it may not call.
        allowed_prefixes: the modules that references may lead to; None for all.

    Raises ConfigurationError for parts that can't be right.
    """

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
    ) -> None:
        self._allowed_prefixes = allowed_prefixes
        super().__init__(
            name,
            factory,
            comm_targets,
            actions,
            resolve_params(agent_params, resolver(allowed_prefixes)),
            enable_entrypoint,
            enable_interswarm,
            can_complete_tasks,
            tool_format,
            exclude_tools,
        )

    @classmethod
    def from_swarm_json(
        cls,
        json_str: str,
        actions_by_name: Mapping[str, MAILAction] | None = None,
        *,
        allowed_prefixes: Collection[str] | None = None,
    ) -> Self:
        """The template that an entry of `agents` in swarms.json describes.

        `actions_by_name` are the swarm's actions, to which the entry refers. Raises ConfigurationError.
        """
        try:
            entry = AgentEntry.model_validate_json(json_str)
        except ValidationError as error:
            raise ConfigurationError(f"agent: {describe(error, AgentEntry)}") from error
        return cls.from_entry(entry, actions_by_name or {}, allowed_prefixes=allowed_prefixes)

    @classmethod
    def from_entry(
        cls,
        entry: AgentEntry,
        known: Mapping[str, MAILAction],
        *,
        allowed_prefixes: Collection[str] | None = None,
    ) -> Self:
        """The template that a checked entry describes, in a swarm with these actions. Raises ConfigurationError."""
        for name in entry.actions:
            if name not in known:
                hint = did_you_mean(name, known) or "; give it in actions_by_name"
                raise ConfigurationError(f"agent {entry.name!r}: {name!r} is no known action{hint}")
        return cls(
            **{
                **dict(entry.items()),
                "actions": [known[name] for name in entry.actions],
                "allowed_prefixes": allowed_prefixes,
            }
        )

    @classmethod
    def from_example(cls, name: str, comm_targets: Sequence[str]) -> Self:
        """The template of an example agent: `supervisor`, `weather`, `math`, `consultant` or `analyst`.

        Raises ConfigurationError for another name.
        """
        if name not in EXAMPLES:
            hint = did_you_mean(name, EXAMPLES) or f"; there are: {', '.join(EXAMPLES)}"
            raise ConfigurationError(f"there is no example agent {name!r}{hint}")
        return cls(name=name, comm_targets=comm_targets, **load_example(name))

    def _supervises(self) -> bool:
        if not isinstance(self.factory, str):
            return super()._supervises()
        try:
            factory = read_python_string(self.factory, allowed_prefixes=self._allowed_prefixes)
        except ConfigurationError:  # `instantiate` tells it, as it may be found until then
            return False
        return getattr(factory, "supervises", False) is True

    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        *,
        exclude_tools: Sequence[str] = (),
        print_llm_streams: bool = True,
    ) -> MAILAgent:
        """Build the agent.

        Args:
            instance_params: what the factory gets for this instance, such as `user_token`.
            exclude_tools: what the swarm hides from all its agents.
            print_llm_streams: False silences a factory that takes the parameter.

        Raises ConfigurationError for a factory that can't be found or refuses.
        """
        factory = self.factory
        if isinstance(factory, str):
            factory = read_python_string(factory, allowed_prefixes=self._allowed_prefixes)
        hidden = sorted({*self.exclude_tools, *exclude_tools})
        function = make_function(
            f"agent {self.name!r}",
            factory,
            wiring={**self._top_level_params(), "exclude_tools": hidden},
            params=self.agent_params,
            instance_params=instance_params,
            print_llm_streams=print_llm_streams,
        )
        agent = MAILAgent(
            name=self.name,
            factory=self.factory,
            actions=self.actions,
            function=function,
            comm_targets=self.comm_targets,
            agent_params=self.agent_params,
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=hidden,
        )
        agent._instance = {
            "instance_params": instance_params,
            "exclude_tools": exclude_tools,
            "print_llm_streams": print_llm_streams,
        }
        return agent

    def _top_level_params(self) -> dict[str, Any]:
        """What the factory is told of the agent's place in the swarm."""
        return agent_wiring(
            name=self.name,
            comm_targets=self.comm_targets,
            tools=[action.to_tool_dict(self.tool_format) for action in self.actions],
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=frozenset(self.exclude_tools),
        )
