"""The settings of swarms, agents and actions, in swarms.json and in Python.

A spec is typed, frozen, and closed to unknown settings. References in a file are text until `build` resolves them; in
Python, a setting may be an object where a file has its import string. The descriptions appear in the JSON Schema,
`docs/swarms-schema.json`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)

from mail.actions.timing import Finishes
from mail.core.protocol import PROTOCOL_VERSION
from mail.core.protocol.clock import DURATION
from mail.core.protocol.error_text import describe
from mail.core.protocol.mail_tools import ReadMore
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.protocol.values import Value, fill, is_none
from mail.core.task.approvals import Approval
from mail.core.task.context import Context
from mail.core.task.guards import Guard
from mail.core.task.members import MEMBER_DAYS
from mail.core.task.permits import ModelLimits
from mail.core.task.skills import Skill
from mail.core.task.swarm import (
    MAX_COPIES,
    MAX_RETRIES,
    AgentCore,
    AgentFunction,
    ModelFunction,
    ToolSource,
)
from mail.errors import ConfigurationError
from mail.mcp.servers import MCPOption, MCPServers, tool_servers
from mail.swarms_json.secrets import as_options

BUILT_IN_PYTHON = "(built in Python)"
"""Placeholder for an object without an import string."""

Duration = (
    Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
    | Annotated[str, StringConstraints(pattern=rf"^{DURATION}$")]
)
"""Seconds, or text such as `3d`."""

OnUpdate = Literal["switch", "finish"]

Factory = str | Callable[..., Any]
"""A callable that builds an agent's function, or its import string."""


def _read_factory(given: object) -> object:
    if isinstance(given, str) or callable(given):
        return given
    raise ValueError("must be a function or its import string, such as python::package.module:name")


def _write_reference(given: object) -> str:
    return given if isinstance(given, str) else BUILT_IN_PYTHON


def _is_empty(value: Any) -> bool:
    """Return whether a field that was added later is left out, as with `is_none`."""
    return not value


def _read_context(given: object) -> object:
    if given == "off" or isinstance(given, Context):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("must be off, or settings: at, keep, model, results")
    try:
        return Context.model_validate(dict(given))
    except ValidationError as error:
        raise ValueError(describe(error, Context)) from None


class Spec(Value):
    """Base class of all specs. Settings may be secret, so errors don't quote them."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    KIND: ClassVar[str]

    @property
    def where(self) -> str:
        """The spec's name, as errors about it begin."""
        return f"{self.KIND} {self['name']!r}"

    def but(self, **changes: Any) -> Self:
        """Return these settings with changes. Raises ConfigurationError."""
        return self.read(self.where, {**dict(self), **changes})

    @classmethod
    def read(cls, where: str, settings: Mapping[str, Any]) -> Self:
        """Check settings; `where` begins the text of an error. Raises ConfigurationError that says what to change."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise ConfigurationError(f"{where}: {describe(error, cls)}") from None


class ActionSpec(Spec):
    """An action that agents of the swarm may call."""

    KIND = "action"

    name: str = Field(min_length=1, description="The tool's name.")
    description: str = Field(default="", description="The description that language models see.")
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="The JSON Schema of its arguments, which are checked before the function is called. By default "
        "that of the parameters of a function with type hints.",
    )
    function: str | None = Field(
        default=None,
        description="The Python function, as python::package.module:name. Optional for a breakpoint tool: the user "
        "provides its result.",
    )
    idempotent: bool = Field(
        default=False,
        description="Whether it may be repeated when a crash leaves its outcome unknown, and when it fails.",
    )
    read_only: bool = Field(
        default=False,
        exclude_if=_is_empty,
        description="Whether it changes nothing and costs nothing. Such an action may be repeated, too, and runs in "
        "every fork.",
    )
    sequential: bool = Field(
        default=False,
        description="Whether it runs alone: after the calls before it in its turn, and before those after it. Other "
        "actions of a turn run at the same time.",
    )
    finishes: Finishes = Field(
        default="now",
        exclude_if=lambda given: given == "now",
        description="`later` if it may return LATER, and its result comes to its callback after its turn.",
    )
    timeout: Duration | None = Field(
        default=None,
        exclude_if=is_none,
        description="Seconds that one attempt may take; without it, no limit but the turn's. Of an action that "
        "finishes later, the time until its result must come, also as text such as 3d.",
    )
    heartbeat: Duration | None = Field(
        default=None,
        exclude_if=is_none,
        description="Seconds, or text such as 10m, without a report after which a call that finishes later has failed.",
    )
    on_cancel: str | None = Field(
        default=None,
        exclude_if=is_none,
        description="A Python function that ends the work of a call that finishes later when its task ends before, as "
        "python::package.module:name.",
    )
    retries: int = Field(
        default=0,
        exclude_if=_is_empty,
        ge=0,
        le=MAX_RETRIES,
        description="The number of further attempts after one that has failed or timed out, with growing delays; only "
        "for an action that is idempotent or read_only.",
    )
    needs_approval: bool | str | Approval = Field(
        default=False,
        exclude_if=_is_empty,
        description="Whether a person must approve a call before the function runs: true, or a Python function of the "
        "call's arguments that returns a bool, as python::package.module:name; an object says who decides, in place "
        "of the task's owner.",
    )
    approval_timeout: float | None = Field(
        default=None,
        exclude_if=is_none,
        gt=0,
        le=10_000_000,
        allow_inf_nan=False,
        strict=False,
        description="Seconds after which an undecided call counts as rejected, unless needs_approval says otherwise; "
        "without it, never.",
    )


class GuardSpec(Spec):
    """A guard that a function makes."""

    KIND = "guard"

    factory: str = Field(description="The function that makes it, as python::package.module:name.")
    params: dict[str, Any] = Field(default_factory=dict, description="The arguments of the function.")


def _read_guards(given: object) -> list[Guard | GuardSpec | str]:
    if isinstance(given, str | Guard | Mapping) or not isinstance(given, Iterable):
        raise ValueError("must be a list of guards")
    try:
        return [each if isinstance(each, Guard | str) else GuardSpec.model_validate(each) for each in given]
    except ValidationError as error:
        raise ValueError(describe(error, GuardSpec)) from None


def _write_guards(guards: list[Guard | GuardSpec | str]) -> list[Any]:
    return [each.model_dump() if isinstance(each, GuardSpec) else _write_reference(each) for each in guards]


GuardList = Annotated[
    list[Any],
    PlainValidator(_read_guards, json_schema_input_type=list[str | GuardSpec]),
    PlainSerializer(_write_guards),
]
"""Guards made by `@guard`, as python::package.module:name, or functions that make them."""


def _read_skills(given: object) -> list[Skill | str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError("must be a list of folders")
    found = [each if isinstance(each, Skill) else os.fspath(each) for each in given]
    if not all(isinstance(each, Skill | str) and each for each in found):
        raise ValueError("must be a list of folders")
    return found


SkillList = Annotated[
    list[Any],
    PlainValidator(_read_skills, json_schema_input_type=list[str]),
    PlainSerializer(lambda skills: [each.folder if isinstance(each, Skill) else each for each in skills]),
]
"""Folders with skills, and the skills that were read from such folders."""


class AgentSpec(Spec):
    """An agent of the swarm."""

    KIND = "agent"

    name: str = Field(min_length=1, description="Its address; not 'all', and without '@', '#' and '~'.")
    factory: Annotated[
        Factory,
        PlainValidator(_read_factory, json_schema_input_type=str),
        PlainSerializer(_write_reference),
    ] = Field(description="The factory of the agent's function, as python::package.module:name.")
    comm_targets: list[str] = Field(
        default_factory=list, description="Agents it may write to, agent@swarm for those of other swarms."
    )
    actions: list[str] = Field(default_factory=list, description="Names of the swarm's actions it may call.")
    agent_params: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,  # may hold keys
        description="Further parameters of the factory, such as llm, fallback, system and temperature. Strings "
        "that begin with python:: or url:: are replaced by what they refer to, at any depth.",
    )
    enable_entrypoint: bool = Field(default=False, description="Whether users may write to it.")
    enable_interswarm: bool = Field(default=False, description="Whether it may write to other swarms.")
    can_complete_tasks: bool = Field(
        default=False, description="Whether it may complete tasks; this makes it a supervisor."
    )
    tool_format: ToolFormat = Field(
        default="responses", description="The API whose formats its function uses."
    )
    exclude_tools: list[str] = Field(default_factory=list, description="MAIL tools it may not call.")
    mcp: MCPServers = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="MCP servers whose tools it may call, by name; or a list of names in MAIL_MCP_SERVERS.",
    )
    sequential: bool = Field(
        default=False, description="Whether its actions run one after the other, in the order of its calls."
    )
    strict_tools: bool | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether text without a tool call is an error, instead of an answer; null for the swarm's setting.",
    )
    approve: bool | list[str] = Field(
        default=False,
        exclude_if=_is_empty,
        description="The names of the actions and MCP tools whose calls a person must approve; true for all.",
    )
    description: str = Field(
        default="",
        exclude_if=_is_empty,
        description="What it does, for people and for the agents that may write to it.",
    )
    context: Annotated[
        Context | Literal["off"],
        PlainValidator(_read_context, json_schema_input_type=Context | Literal["off"]),
    ] = Field(
        default_factory=Context,
        exclude_if=lambda context: context == Context(),
        description="How its context is kept within the window of its model: settings, or off to send all of it.",
    )
    copies: int = Field(
        default=0,
        ge=0,
        le=MAX_COPIES,
        exclude_if=_is_empty,
        description="How many requests it works on at once, each with a history of its own; 0 for one after the other, "
        "in one history. Not for agents that users write to, or that complete tasks.",
    )

    guards: GuardList = Field(
        default_factory=list,
        exclude_if=_is_empty,
        description="Guards that judge what it says and does, after those of the swarm.",
    )
    reminders: bool = Field(
        default=False,
        exclude_if=_is_empty,
        description="Whether its model is offered the tool `remind_me`, with which a note comes back to it later.",
    )
    skills: SkillList = Field(
        default_factory=list,
        exclude_if=_is_empty,
        description="Folders of Agent Skills, from the current folder: skills, or folders that contain some. Its "
        "prompt has their names and descriptions; it reads the rest with the tool `read_more`.",
    )

    def wiring(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the parameters that every factory gets; `tools` declare the agent's actions.

        `reminders` is only passed if it is set, as factories of MAIL 1.3.6 don't know it.
        """
        return {
            "name": self.name,
            "comm_targets": list(self.comm_targets),
            "tools": list(tools),
            "enable_entrypoint": self.enable_entrypoint,
            "enable_interswarm": self.enable_interswarm,
            "can_complete_tasks": self.can_complete_tasks,
            "tool_format": self.tool_format,
            "exclude_tools": sorted(
                {*self.exclude_tools, *([ReadMore.tool_name] if self.context == "off" else ())}
            ),
            **({"reminders": True} if self.reminders else {}),
        }

    def to_core(self, function: AgentFunction, tool_source: ToolSource | None = None) -> AgentCore:
        """Return the agent in the form that the engine runs."""
        has_context = isinstance(self.context, Context) and isinstance(function, ModelFunction)
        settings = fill(
            AgentCore,
            self,
            function=function,
            comm_targets=tuple(self.comm_targets),
            actions=tuple(self.actions),
            exclude_tools=frozenset(self.exclude_tools),
            tool_source=tool_source,
            mcp_servers=tuple(server.name for server in tool_servers(self.mcp)),
            strict_tools=bool(self.strict_tools),
            approve=self.approve if isinstance(self.approve, bool) else frozenset(self.approve),
            guards=tuple(self.guards),
            skills=tuple(self.skills),
            context=self.context if has_context else None,
            options=as_options(self.agent_params),
        )
        return AgentCore(**settings)

    @classmethod
    def of_core(cls, name: str, agent: AgentCore) -> Self:
        """Return the settings that show in an agent that runs: without its factory and what this got."""
        settings = fill(cls, agent, name=name, factory=BUILT_IN_PYTHON)
        for key, setting in settings.items():
            if isinstance(setting, frozenset | tuple):
                settings[key] = sorted(setting) if isinstance(setting, frozenset) else list(setting)
        settings["strict_tools"] = agent.strict_tools or None
        settings["context"] = agent.context or Context()
        return cls.model_validate(settings)


class ContextSettings(TypedDict, total=False):
    """The settings of an agent's context, as Python may give them; see `Context`."""

    at: float
    keep: float
    model: str | None
    results: int


ContextOption = Context | ContextSettings | Literal["off"]


class AgentOptions(TypedDict, total=False):
    """The settings of an agent that MAIL 1.3.6 didn't have, as keyword arguments in Python; see `AgentSpec`."""

    sequential: bool
    mcp: MCPOption
    strict_tools: bool | None
    approve: bool | Sequence[str]
    description: str
    context: ContextOption
    reminders: bool
    copies: int
    guards: Sequence[Guard]
    skills: Sequence[str | os.PathLike[str]]


def _read_members(members: dict[str, str]) -> dict[str, str]:
    """Check the addresses of members, if there are any. Raises ValueError."""
    if members:
        from mail.mail2.addresses import Address

        for name, text in members.items():
            try:
                kind = Address.parse(text).kind
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if kind == "daemon":
                raise ValueError(f"{name}: {text!r} is the address of a daemon, which answers nothing")
    return members


class SwarmSpec(Spec):
    """A swarm."""

    KIND = "swarm"

    name: str = Field(pattern=r"^[^:@]+$", description="Its name among swarms, without ':' and '@'.")
    version: str = Field(
        default=PROTOCOL_VERSION,
        min_length=1,
        description="Its own version; by default that of the protocol.",
    )
    code: str = Field(
        default="",
        exclude_if=_is_empty,
        description="The version of its code, such as a commit, which is recorded with the tasks' turns.",
    )
    on_update: OnUpdate = Field(
        default="switch",
        exclude_if=lambda given: given == "switch",
        description="Whether running and paused tasks `switch` to this version from their next turn on, or `finish` "
        "their runs on the version that they began with.",
    )
    entrypoint: str = Field(description="The agent that users write to; it needs enable_entrypoint.")
    agents: list[AgentSpec] = Field(
        min_length=1, description="At least one of them needs can_complete_tasks."
    )
    actions: list[ActionSpec] = Field(default_factory=list, description="Actions declared here.")
    action_imports: list[str] = Field(
        default_factory=list,
        description="Ready-made actions, as python::package.module:name of an object made by @mail.action.",
    )
    breakpoint_tools: list[str] = Field(
        default_factory=list,
        description="Actions whose call pauses the task until the user provides their result.",
    )
    exclude_tools: list[str] = Field(default_factory=list, description="MAIL tools that no agent may call.")
    mcp: MCPServers = Field(
        default_factory=dict, exclude_if=_is_empty, description="MCP servers whose tools all agents may call."
    )
    task_message_limit: int | None = Field(
        default=None, ge=1, description="Maximum number of steps of a task; null for the server's setting."
    )
    failing_call_limit: int | None = Field(
        default=None,
        ge=0,
        exclude_if=is_none,
        description="How often the same call of an action may fail with the same error before its agent's turn fails; "
        "0 for no limit, null for the server's setting.",
    )
    guards: GuardList = Field(
        default_factory=list,
        exclude_if=_is_empty,
        description="Guards that judge what all agents say and do, before it leaves their turns.",
    )
    model_limits: dict[str, ModelLimits] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="The limits of providers, by a model's name or a pattern such as anthropic/*; those of mail.toml "
        "take precedence.",
    )
    members: Annotated[dict[str, str], AfterValidator(_read_members)] = Field(
        default_factory=dict,
        exclude_if=_is_empty,
        description="People and agents outside of the swarm, by the names under which comm_targets and agents write to "
        "them: MAIL 2.0 addresses, such as user:ann@mail.example.com.",
    )
    member_days: float = Field(
        default=MEMBER_DAYS,
        gt=0,
        le=365,
        exclude_if=lambda given: given == MEMBER_DAYS,
        description="Days after which a request to a member expires.",
    )
    strict_tools: bool = Field(
        default=False,
        exclude_if=_is_empty,
        description="Whether text of an agent without a tool call is an error. By default it is taken as the answer it "
        "was meant for.",
    )
    output_schema: dict[str, Any] | None = Field(
        default=None,
        exclude_if=is_none,
        description="The JSON Schema that final answers must fit; a message may give another.",
    )
    output_type: Annotated[
        Any,
        PlainSerializer(_write_reference),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ] = Field(
        default=None,
        exclude_if=is_none,
        description="Instead of output_schema: a pydantic model, dataclass or other type, as "
        "python::package.module:name.",
    )
    description: str = Field(default="", description="The description that users and other swarms see.")
    keywords: list[str] = Field(default_factory=list, description="Keywords for finding it.")
    public: bool = Field(default=False, description="Whether it is visible to other swarms.")
    enable_interswarm: bool = Field(default=False, description="Whether it exchanges mail with other swarms.")
    enable_db_agent_histories: bool = Field(
        default=False, description="Has no effect: agents' histories are always kept in the database."
    )

    @property
    def answer_type(self) -> Any:
        """The type of answers, or their JSON Schema; None if they are text."""
        return self.output_schema if self.output_type is None else self.output_type


class SwarmOptions(TypedDict, total=False):
    """The settings of a swarm that MAIL 1.3.6 didn't have, as keyword arguments in Python; see `SwarmSpec`."""

    code: str
    on_update: OnUpdate
    failing_call_limit: int | None
    model_limits: dict[str, ModelLimits] | dict[str, dict[str, int]]
    strict_tools: bool
    members: dict[str, str]
    member_days: float
    guards: Sequence[Guard]
