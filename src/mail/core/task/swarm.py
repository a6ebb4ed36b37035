"""A swarm, ready to run: its agents, their actions, and their forms.

A form is an action that sends a message instead of running a function: the agent fills it in like any tool call, a
program words the message, and the effect is that of a MAIL tool. So it costs no turn of its own, and has no effect if
the turn is not committed.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cached_property
from hashlib import sha256
from math import inf
from types import CoroutineType
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from mail.core.protocol.address import EVERYONE, is_swarm_name
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.error_text import did_you_mean, explain
from mail.core.protocol.json_schema import model_of
from mail.core.protocol.mail_tools import MAIL_TOOLS, MAILTool, SendRequest
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.output_schema import OutputSchema, check_schema
from mail.core.protocol.tool_schemas import tool_declaration
from mail.core.protocol.values import value
from mail.core.task.approvals import MOST_REVIEWERS_IN_ALL, Approval
from mail.core.task.callbacks import LONGEST_WAIT, CallResult, Later, Polled
from mail.core.task.context import Context
from mail.core.task.failing_calls import FAILING_CALL_LIMIT
from mail.core.task.guards import MAX_GUARDS, Guard, Guards
from mail.core.task.mailboxes import agent_of, copies_of
from mail.core.task.members import MEMBER_DAYS
from mail.core.task.permits import ModelLimits
from mail.core.task.skills import Skill, Skills
from mail.core.task.task import DRAFT_MARK
from mail.errors import AgentUnavailable, BadRequest, ConfigurationError

History = list[dict[str, Any]]
"""An agent's conversation with its model, as provider messages (or Responses items), oldest first."""

ToolChoice = str | dict[str, Any]

AgentOutput = tuple[str | None, list[AgentToolCall]]
"""The output of one step of an agent: text, if any, and tool calls."""

AgentFunction = Callable[[History, ToolChoice], Awaitable[AgentOutput]]
"""One step of an agent: from its history and the tool choice to text and tool calls.

The list is a copy, but its entries belong to the engine: copy an entry before changing it.
"""

AGENT_FUNCTION = (
    "an agent function is async, takes a history and a tool choice, and returns (text or None, "
    "[AgentToolCall, …])"
)
"""The contract of agent functions, for error messages."""


@runtime_checkable
class ModelFunction(Protocol):
    """An agent function that calls a language model.

    Attributes:
        llm: the model, by its name in litellm: `openai/gpt-5-mini`.
    """

    llm: str


@runtime_checkable
class WindowedFunction(Protocol):
    """An agent function that knows the window of its model, and can summarize for it.

    Attributes:
        fixed_size: the bytes that its model gets in every call besides the history: system prompt and tools.
    """

    fixed_size: int

    async def window(self) -> int | None:
        """Return how many tokens the model can read in a call; None if that is not known."""

    async def summarize(self, text: str, model: str | None) -> str:
        """Return the summary of a transcript, by another `model` if given; empty if there is none."""


@runtime_checkable
class PromptedFunction(Protocol):
    """An agent function with a system prompt."""

    system: str


@runtime_checkable
class ToolingFunction(Protocol):
    """An agent function that knows the `tools` of its model, besides those that a turn adds."""

    tools: list[dict[str, Any]]

    def offered_tools(self) -> list[dict[str, Any]]:
        """Return the tools that its model gets in the turn that is running."""


@runtime_checkable
class DraftableFunction(Protocol):
    """An agent function of which there can be drafts."""

    def redraft(
        self, *, llm: str | None, system: str | None, options: Mapping[str, Any], tools: list[dict[str, Any]]
    ) -> "AgentFunction":
        """Return a copy with these tools and what else is given. Raises ConfigurationError for an unknown option."""


@value
class FormResult:
    """The effect of a form that was filled in.

    Attributes:
        tool: the MAIL tool that takes effect.
        routing_info: sent with the message; a response answers the open request with the same one, if any.
        settles: whether the message closes the recipient's request; by default, responses do and requests don't.
    """

    tool: MAILTool
    routing_info: dict[str, Any] | None = None
    settles: bool | None = None


@value
class UserQuestion(FormResult):
    """A question to the task's owner; it pauses the task as a breakpoint does.

    The owner resumes it as at any breakpoint, or with a message whose subject is one of `answer_subjects`; case and
    whitespace are ignored. The answer that the agent reads has the first of them as its subject.
    """

    tool: SendRequest
    answer_subjects: tuple[str, ...] = ()


@value
class FormContext:
    """The context in which a form is filled in.

    Attributes:
        agent: the name of the agent.
        timestamp: the current time, in ISO 8601.
        mail: the task's messages so far, if the action `reads_mail`.
    """

    agent: str
    timestamp: str
    mail: Sequence[MAILMessage] = ()


Form = Callable[[dict[str, Any], FormContext], FormResult]
"""A pure function of the call's arguments; raises ToolCallFault for invalid ones."""


ActionFunction = Callable[[dict[str, Any]], Awaitable[str | Later | Polled]]
"""Takes the call's arguments and returns its result as text, or LATER; the agent is notified of any exception."""

CancelFunction = Callable[[dict[str, Any]], Awaitable[object]]
"""Called with the arguments of a call that was cancelled."""

MAX_RETRIES = 10
"""Maximum of `ActionCore.retries`."""

MAX_COPIES = 64
"""Maximum of `AgentCore.copies`, so that a task stays small."""

ApprovalPredicate = Callable[[dict[str, Any]], Awaitable[bool]]
"""Takes the call's arguments and returns whether a person must approve it; an error counts as yes."""


@value
class ActionCore:
    """An action, ready to run.

    Attributes:
        parameters: the JSON Schema of the arguments.
        idempotent: whether it may be repeated if a crash leaves its outcome unknown.
        read_only: whether it changes nothing and costs nothing: it may be repeated, too, and runs in every fork.
        sequential: whether it runs alone: after the calls before it in its turn, and before those after it.
        form: computes the effect if the action is a form; `function` is not run then.
        reads_mail: whether the form needs the task's messages so far.
        needs_approval: whether a person must approve a call before it runs: each, or those that a predicate selects.
        reviewers: who decides on these calls, or answers those of a breakpoint tool; None for the task's owner.
        approval_timeout: seconds after which an undecided call counts as rejected, unless `reviewers` say otherwise;
            None for never.
        model: checks the arguments in place of `parameters`, as the function does; None if these say everything.
        timeout: seconds that one attempt may take; None for no limit but the turn's.
        retries: the number of further attempts after one that has failed or timed out.
        finish_within: seconds within which a call must finish that returns LATER; None if it finishes in its turn.
        heartbeat: seconds without a heartbeat after which such a call fails; None if it needs none.
        on_cancel: is called with the arguments of such a call when its task ends before it does; None for nothing.

    Raises ConfigurationError for an invalid timeout, and for retries of an action that may not be repeated.
    """

    name: str
    function: ActionFunction
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    idempotent: bool = False
    read_only: bool = False
    sequential: bool = False
    form: Form | None = None
    reads_mail: bool = False
    needs_approval: bool | ApprovalPredicate = False
    approval_timeout: float | None = None
    reviewers: Approval | None = None
    model: type[BaseModel] | None = None
    timeout: float | None = None
    retries: int = 0
    finish_within: float | None = None
    heartbeat: float | None = None
    on_cancel: CancelFunction | None = None

    def __post_init__(self) -> None:
        if self.on_cancel is not None and self.finish_within is None:
            raise ConfigurationError(
                f"action {self.name!r}: on_cancel is only for actions with finishes='later'"
            )
        rule = self.reviewers
        if rule and (rule.escalate_to or rule.otherwise == "approve") and self.approval_timeout is None:
            raise ConfigurationError(
                f"action {self.name!r}: escalate_to and otherwise say what happens after its approval_timeout; set that"
            )
        timeout, retries = self.timeout, self.retries
        if timeout is not None and (isinstance(timeout, bool) or not 0 < timeout < inf):
            raise ConfigurationError(f"action {self.name!r}: timeout must be a number of seconds above 0")
        for name, seconds in (("timeout", self.finish_within), ("heartbeat", self.heartbeat)):
            if seconds is not None and (isinstance(seconds, bool) or not 0 < seconds <= LONGEST_WAIT):
                raise ConfigurationError(
                    f"action {self.name!r}: {name} of an action that finishes later must be above 0, and at most 366 "
                    "days"
                )
        if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
            raise ConfigurationError(
                f"action {self.name!r}: retries must be a number from 0 to {MAX_RETRIES}"
            )
        if retries and not self.may_repeat:
            raise ConfigurationError(
                f"action {self.name!r}: retries would repeat what an attempt has done before it failed; "
                "declare the action idempotent (or read_only) if that does no harm, or leave out retries"
            )

    @property
    def may_repeat(self) -> bool:
        """Whether it may run again after an attempt that failed, or whose outcome a crash leaves unknown."""
        return self.idempotent or self.read_only

    def find_problem(self, arguments: Mapping[str, Any]) -> str:
        """Return why the model or the schema refuses these arguments; empty if it takes them."""
        try:
            (self.model or model_of(self.name, self.parameters)).model_validate(dict(arguments))
        except ValidationError as error:
            return explain(error)
        except ConfigurationError:  # a schema that only its function can read
            return ""
        except Exception as error:  # noqa: BLE001  # of a validator, which is foreign code
            return f"{type(error).__name__}: {error}"
        return ""

    def to_tool_dict(self, style: ToolFormat = "responses") -> dict[str, Any]:
        """Declare the action as a tool."""
        return tool_declaration(self.name, self.description, dict(self.parameters), style)

    def specify(self) -> dict[str, Any]:
        """Return its settings for the specification of its swarm."""
        return _settings(self, "function", "form", "model")


@value
class ProvidedTools:
    """The tools that a `ToolSource` provides for one turn.

    Attributes:
        actions: run the tools, by the names that the agent knows.
        problems: why further tools are missing or can't be called now, in words for the agent.
    """

    actions: Mapping[str, ActionCore] = field(default_factory=dict)
    problems: Sequence[str] = ()


class ToolSource(Protocol):
    """Provides an agent with tools that may change while it runs, such as those of MCP servers."""

    async def tools(self) -> ProvidedTools:
        """Return the tools for a turn that begins now. Never raises for tools that can't be reached."""

    def known(self) -> ProvidedTools:
        """Return the tools of the latest turn of this process, or of its start; none before."""

    async def poll(self, polled: Polled) -> CallResult | Polled:
        """Ask a server for the result of a call that it works on. May raise anything: it is asked again later."""

    async def cancel(self, polled: Polled) -> None:
        """Tell a server that nobody waits for the result of a call any more. May raise, too."""

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next call opens them again."""


@value
class AgentCore:
    """An agent, ready to run.

    Attributes:
        actions: names of the swarm's actions that it may call.
        comm_targets: agents it may write to, `agent@swarm` for remote ones; broadcasts are exempt.
        enable_entrypoint: whether users may write to it.
        can_complete_tasks: whether it is a supervisor, which may call `task_complete`.
        exclude_tools: MAIL tools it may not call.
        sequential: whether its actions run one after the other, in the order of its calls.
        tool_source: provides further tools, if any.
        mcp_servers: names of the MCP servers whose tools it provides.
        strict_tools: whether text without a tool call is an error (`mail.core.decisions.text_answers`).
        approve: actions whose calls a person must approve, whatever the actions say; True for all.
        description: what it does, for people and for the agents that may write to it.
        context: how its context is kept within the window of its model; None to give the model all of it.
        options: the parameters of its factory as JSON, without secrets.
        reminders: whether its model is offered the tool `remind_me`; any agent function may call it.
        copies: how many requests it works on at once, each with a history of its own; 0 for one after the other, in one
            history.
        guards: judge what it says and does, after those of the swarm (`SwarmCore.guards_of`).
        skills: what it may read, besides their names and descriptions in its prompt.
        discovers: whether it may look for other swarms, which happens outside of the task.
        runs_calls: whether the engine runs any of its calls, as those of actions.
    """

    function: AgentFunction
    comm_targets: Sequence[str] = ()
    actions: Sequence[str] = ()
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    tool_format: ToolFormat = "completions"
    exclude_tools: frozenset[str] = frozenset()
    sequential: bool = False
    tool_source: ToolSource | None = None
    mcp_servers: Sequence[str] = ()
    strict_tools: bool = False
    approve: bool | frozenset[str] = False
    description: str = ""
    context: Context | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    reminders: bool = False
    copies: int = 0
    guards: Guards = ()
    skills: Skills = ()
    discovers: bool = field(init=False, repr=False, compare=False)
    runs_calls: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.discovers = self.enable_interswarm and self.can_complete_tasks  # type: ignore[misc]  # while it is made
        reads_more = self.context is not None
        self.runs_calls = bool(self.actions or self.tool_source or reads_more or self.discovers)  # type: ignore[misc]

    @property
    def model(self) -> str | None:
        """Return the name of the agent's language model; None if it has none, or if its function doesn't name it."""
        return self.function.llm if isinstance(self.function, ModelFunction) else None

    @property
    def system_prompt(self) -> str | None:
        """Return the agent's system prompt; None if it has none, or if its function doesn't show it."""
        return self.function.system if isinstance(self.function, PromptedFunction) else None

    def declared_tools(self, actions: Mapping[str, ActionCore]) -> list[dict[str, Any]]:
        """Return the declarations of its tools, besides those that a turn adds: all of them, or only its actions."""
        if isinstance(self.function, ToolingFunction):
            return self.function.tools
        return [actions[name].to_tool_dict(self.tool_format) for name in self.actions]

    def specify(self, actions: Mapping[str, ActionCore]) -> dict[str, Any]:
        """Return its settings for the specification of its swarm."""
        function = {"llm": self.model, "system": self.system_prompt, "tools": self.declared_tools(actions)}
        return {**_settings(self, "function", "tool_source"), "function": function}

    async def step(self, history: History, choice: ToolChoice) -> AgentOutput:
        """Call the agent's function. Raises AgentUnavailable if it returns anything but its contract says."""
        step: object = self.function(history, choice)
        # the first check is quick, and usually enough
        if type(step) is not CoroutineType and not isinstance(step, Awaitable):
            raise _useless(step)
        output = await step
        match output:
            case (str() | None as text, [*calls]):
                for call in calls:
                    if not isinstance(call, AgentToolCall):
                        raise _useless(output)
                return text, calls
        raise _useless(output)


@value(slots=False)
class SwarmCore:
    """A swarm, ready to run.

    Attributes:
        version: its own name for its version.
        code: what it says about the version of its code, such as a commit; empty if it says nothing.
        entry: the entry of swarms.json that it was built from, without secrets; None if it was built in Python.
        is_loaded: whether an admin has loaded that entry over HTTP.
        finishes: whether tasks finish their runs on the version that they began with, when this one replaces it.
        kept_as: its digest, if it is an earlier version that was read or built again.
        draft: what a draft has changed in it, as JSON (`mail.core.task.swarm_drafts.Revision`); None if nobody tries it
            as a draft. Its tasks stay on it.
        breakpoint_tools: tools whose call pauses the task until the user returns the result.
        task_message_limit: steps a task may take before its supervisor must finish it.
        failing_call_limit: how often the same call of an action may fail with the same error before its agent's turn
            fails; 0 for no limit.
        model_limits: the limits of models, by their names or patterns such as `anthropic/*`.
        protocol: the text that the `help` tool returns for `get_full_protocol`.
        output_schema: the JSON Schema of answers to which nobody has given another.
        output_check: checks answers that fit this schema; raises ToolCallFault.
        guards: judge what all agents say and do.
        members: where people and agents outside are reached, by the names under which agents write to them.
        member_days: days after which a request to one of them expires.
        copies: the mailboxes of the copies of each agent that has some.

    Raises ConfigurationError if its members contradict each other.
    """

    name: str
    version: str
    entrypoint: str
    agents: Mapping[str, AgentCore]
    actions: Mapping[str, ActionCore] = field(default_factory=dict)
    breakpoint_tools: frozenset[str] = frozenset()
    task_message_limit: int = 15
    failing_call_limit: int = FAILING_CALL_LIMIT
    model_limits: Mapping[str, ModelLimits] = field(default_factory=dict)
    description: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    protocol: str = ""
    output_schema: OutputSchema | None = None
    output_check: Callable[[str], None] | None = None
    code: str = ""
    entry: Mapping[str, Any] | None = None
    is_loaded: bool = False
    finishes: bool = False
    kept_as: str = ""
    draft: Mapping[str, Any] | None = None
    guards: Guards = ()
    members: Mapping[str, str] = field(default_factory=dict)
    member_days: float = MEMBER_DAYS
    copies: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_swarm_name(self.name):
            raise ConfigurationError(
                f"swarm {self.name!r}: a swarm's name has 1 to 128 printable characters, none of ':', '@' and '#'"
            )
        entrypoint = self.agents.get(self.entrypoint)
        if entrypoint is None:
            raise ConfigurationError(
                f"swarm {self.name!r}: the entrypoint {self.entrypoint!r} is not an "
                f"agent{did_you_mean(self.entrypoint, self.agents)}"
            )
        if not entrypoint.enable_entrypoint:
            raise ConfigurationError(
                f"swarm {self.name!r}: set enable_entrypoint on agent {self.entrypoint!r}"
            )
        if not any(agent.can_complete_tasks for agent in self.agents.values()):
            raise ConfigurationError(f"swarm {self.name!r}: set can_complete_tasks on at least one agent")
        if clash := MAIL_TOOLS.keys() & self.actions.keys():
            raise ConfigurationError(
                f"swarm {self.name!r}: actions can't take the names of MAIL tools: {sorted(clash)}"
            )
        if self.task_message_limit < 1:
            raise ConfigurationError(f"swarm {self.name!r}: task_message_limit must be at least 1")
        if self.failing_call_limit < 0:
            raise ConfigurationError(f"swarm {self.name!r}: failing_call_limit must be at least 0")
        rules = [action.reviewers for action in self.actions.values() if action.reviewers is not None]
        if len({name for rule in rules for name in (*rule.by, *rule.escalate_to)}) > MOST_REVIEWERS_IN_ALL:
            raise ConfigurationError(
                f"swarm {self.name!r}: its actions may name {MOST_REVIEWERS_IN_ALL} different reviewers in all"
            )
        for name, action in self.actions.items():
            if name not in self.breakpoint_tools:
                continue
            rule = action.reviewers
            if rule is None and (action.needs_approval or action.approval_timeout is not None):
                raise ConfigurationError(
                    f"swarm {self.name!r}: breakpoint tool {name!r} is answered, not run: name an Approval(by=…) as "
                    "its needs_approval, or leave out needs_approval and approval_timeout"
                )
            if rule and (rule.otherwise == "approve" or callable(action.needs_approval)):
                raise ConfigurationError(
                    f"swarm {self.name!r}: the reviewers of breakpoint tool {name!r} answer it: leave out when and "
                    "otherwise"
                )
        for name in self.members:
            self._check_member(name)
        for name, agent in self.agents.items():
            self._check_agent(name, agent)
        self.copies = {  # type: ignore[misc]  # while it is made
            name: copies_of(name, agent.copies) for name, agent in self.agents.items() if agent.copies
        }
        if self.output_schema is not None:
            try:
                check_schema(self.output_schema)
            except BadRequest as error:
                raise ConfigurationError(f"swarm {self.name!r}: {error.detail}") from error

    @cached_property
    def digest(self) -> str:
        """The digest of its specification, by which tasks name this version of the swarm."""
        return self.kept_as or digest_of(self.specify(), is_draft=self.draft is not None)

    def specify(self) -> str:
        """Return its specification as JSON that is the same in every process: what its tasks are run by, but no code.

        `mail.core.task.versions` reads it.
        """
        specification = {
            **_settings(self, *_NOT_SPECIFIED),
            **({"members": dict(self.members), "member_days": self.member_days} if self.members else {}),
            **({} if self.draft is None else {"draft": self.draft}),
            "actions": {name: action.specify() for name, action in self.actions.items()},
            "agents": {name: agent.specify(self.actions) for name, agent in self.agents.items()},
        }
        return json.dumps(specification, sort_keys=True, separators=(",", ":"), default=_as_json)

    @property
    def entrypoints(self) -> list[str]:
        """The names of the agents that people may write to."""
        return [name for name, agent in self.agents.items() if agent.enable_entrypoint]

    def describe_entrypoint(self, name: str) -> str:
        """Return what callers read about an entrypoint: of the default one, the description of the swarm."""
        if name == self.entrypoint:
            return self.description or f"Ask the swarm {self.name}."
        return self.agents[name].description or f"Write to the agent {name}."

    async def warm_up(self) -> None:
        """Look for the tools of all agents' sources, so that first turns don't wait and problems are logged early."""
        for agent in self.agents.values():
            if agent.tool_source is not None:
                await agent.tool_source.tools()

    async def aclose(self) -> None:
        """Close what the agents' tools keep open; see `ToolSource.aclose`."""
        for agent in self.agents.values():
            if agent.tool_source is not None:
                await agent.tool_source.aclose()

    def agent(self, mailbox: str) -> AgentCore:
        """Return the agent of a mailbox; an agent that always fails if this version of the swarm lacks it."""
        agents = self.agents
        return agents.get(mailbox) or agents.get(agent_of(mailbox)) or AgentCore(function=_gone)

    def has(self, mailbox: str) -> bool:
        """Return whether a mailbox belongs to an agent of this version of the swarm."""
        return agent_of(mailbox) in self.agents

    def hands_over(self, mailbox: str, entrypoint: str) -> bool:
        """Return whether mail in this mailbox waits for a copy of its agent, in a task with this entrypoint.

        An agent at which another swarm begins a task has no copies in that: it answers in one history.
        """
        return mailbox in self.copies and mailbox != entrypoint

    def known_tool(self, agent: str, name: str) -> ActionCore | None:
        """Return a tool that an agent's source had last (`ToolSource.known`); None if it had none with this name."""
        source = self.agent(agent).tool_source
        return None if source is None else source.known().actions.get(name)

    def guards_of(self, agent: AgentCore) -> Guards:
        """Return the guards that judge an agent, in their order."""
        return (*self.guards, *agent.guards) if self.guards else agent.guards

    def closing_agent(self, entrypoint: str) -> str:
        """Return the agent that must finish a task begun at `entrypoint`: itself, or the first agent that can."""
        supervisors = [name for name, agent in self.agents.items() if agent.can_complete_tasks]
        return entrypoint if entrypoint in supervisors else supervisors[0]

    def runs_as_action(self, agent: AgentCore, tool: str) -> bool:
        """Return whether the engine runs this tool for the agent; users run breakpoint tools, and forms are not run."""
        return tool in agent.actions and tool not in self.breakpoint_tools and self.actions[tool].form is None

    def asked_by(self, tool: str) -> ActionCore | None:
        """Return the action of a breakpoint tool that asks reviewers; None for any other tool."""
        action = self.actions.get(tool) if tool in self.breakpoint_tools else None
        return None if action is None or action.reviewers is None else action

    def form(self, agent: AgentCore, tool: str) -> ActionCore | None:
        """Return the form with this name that the agent may fill in, if any."""
        if not agent.actions:
            return None
        action = self.actions.get(tool) if tool in agent.actions else None
        return action if action is not None and action.form is not None else None

    def _check_member(self, name: str) -> None:
        if name in (EVERYONE, "user") or not name or not {*"@#~!:"}.isdisjoint(name) or name in self.agents:
            raise ConfigurationError(
                f"swarm {self.name!r}: member {name!r}: its name is neither 'all' nor 'user' nor an agent's, and "
                "contains none of '@', '#', '~', '!' and ':'"
            )

    def _check_agent(self, name: str, agent: AgentCore) -> None:
        where = f"swarm {self.name!r}, agent {name!r}"
        if name == EVERYONE or not name or not {"@", "#", "~"}.isdisjoint(name) or name.startswith("!"):
            raise ConfigurationError(
                f"{where}: an agent's name is not 'all', contains none of '@', '#' and '~', and doesn't begin with '!'"
            )
        if agent.copies and (agent.enable_entrypoint or agent.can_complete_tasks):
            raise ConfigurationError(
                f"{where}: copies are for agents that answer other agents; set none for one that people write to, or "
                "that completes tasks"
            )
        if isinstance(agent.copies, bool) or not 0 <= agent.copies <= MAX_COPIES:
            raise ConfigurationError(f"{where}: copies must be a number from 0 to {MAX_COPIES}")
        for target in agent.comm_targets:
            local, _, swarm = target.partition("@")
            if swarm in ("", self.name) and local not in self.agents and target not in self.members:
                raise ConfigurationError(
                    f"{where}: comm_target {target!r} is not an agent"
                    f"{' or a member' if self.members else ''}{did_you_mean(local, [*self.agents, *self.members])}"
                )
        for action in agent.actions:
            if action not in self.actions:
                raise ConfigurationError(
                    f"{where}: {action!r} is not an action of the swarm{did_you_mean(action, self.actions)}"
                )
        if unknown := agent.exclude_tools - MAIL_TOOLS.keys():
            raise ConfigurationError(
                f"{where}: exclude_tools has names that are not MAIL tools: {sorted(unknown)}"
            )
        if guards := self.guards_of(agent):
            self._check_guards(where, agent, guards)

    def _check_guards(self, where: str, agent: AgentCore, guards: Guards) -> None:
        if wrong := [each for each in guards if not isinstance(each, Guard)]:
            raise ConfigurationError(f"{where}: guards are made by @guard, unlike {wrong[0]!r}")
        names = [guard.name for guard in guards]
        if len(guards) > MAX_GUARDS or len({*names}) < len(names):
            raise ConfigurationError(
                f"{where}: there may be {MAX_GUARDS} guards, with different names; these are {', '.join(names)}"
            )


def digest_of(specification: str, *, is_draft: bool = False) -> str:
    """Return the digest by which a specification is kept, and by which tasks refer to it."""
    return DRAFT_MARK * is_draft + sha256(specification.encode()).hexdigest()[:12]


_NOT_SPECIFIED = (
    *("agents", "actions", "model_limits", "description", "keywords", "public", "protocol", "output_check"),
    *("finishes", "kept_as", "draft", "members", "member_days"),
)
"""What the specification of a swarm leaves out, as no task is run by it, or has apart."""


def _settings(core: "ActionCore | AgentCore | SwarmCore", *left_out: str) -> dict[str, Any]:
    return {
        each.name: getattr(core, each.name)
        for each in fields(core)
        if each.init and each.name not in left_out
    }


def _as_json(setting: object) -> object:
    """Return what a specification says of a setting; an object's own text could differ between processes."""
    if isinstance(setting, Guard):
        return {"name": setting.name, "on": sorted(setting.on), "fails_open": setting.fails_open}
    if isinstance(setting, Skill):
        return {"name": setting.name, "digest": setting.digest}
    if isinstance(setting, frozenset):
        return sorted(setting)
    return setting.model_dump() if isinstance(setting, BaseModel) else f"({type(setting).__qualname__})"


def _useless(output: object) -> AgentUnavailable:
    """Return the error for invalid output of an agent function; it names types only, as values may be secret."""
    items = output if isinstance(output, tuple | list) else ()
    inside = f" of {', '.join(type(item).__name__ for item in items)}" if items else ""
    return AgentUnavailable(f"its agent function returned {type(output).__name__}{inside}; {AGENT_FUNCTION}")


async def _gone(_history: History, _choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
    raise AgentUnavailable("the swarm no longer has an agent with this name")
