"""Agents and the swarm they form: what the engine needs to know of them, and nothing else."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mail.core.protocol.address import EVERYONE, is_swarm_name
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.actions import ActionCore
from mail.errors import AgentUnavailable, ConfigurationError

History = list[dict[str, Any]]
"""What an agent has read, said and been told, as provider messages (or Responses items), oldest first."""

ToolChoice = str | dict[str, Any]

AgentOutput = tuple[str | None, list[AgentToolCall]]
"""What an agent says and does in one step: text, if there is any, and tool calls."""

AgentFunction = Callable[[History, ToolChoice], Awaitable[AgentOutput]]
"""One step of an agent: from its history and the tool choice to text and tool calls.

The list is the agent's own, but its entries are those that the engine keeps: copy one before changing it.
"""

AGENT_FUNCTION = "an agent function is async, takes a history and a tool choice, and returns (text or None, [AgentToolCall, …])"
"""What an agent function is, for whoever has written something else."""


@dataclass(frozen=True, slots=True)
class AgentCore:
    """An agent, ready to run.

    Attributes:
        actions: names of the swarm's actions that it may call.
        comm_targets: agents it may write to, `agent@swarm` for remote ones; broadcasts are exempt.
        enable_entrypoint: whether users may write to it.
        can_complete_tasks: whether it may call `task_complete`, that is, supervises.
        exclude_tools: MAIL tools it may not call.
    """

    function: AgentFunction
    comm_targets: Sequence[str] = ()
    actions: Sequence[str] = ()
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    tool_format: ToolFormat = "completions"
    exclude_tools: frozenset[str] = frozenset()

    async def step(self, history: History, choice: ToolChoice) -> AgentOutput:
        """Call the agent's function. Raises AgentUnavailable, which says what it must return, for anything else."""
        step: object = self.function(history, choice)
        if not isinstance(step, Awaitable):
            raise _useless(step)
        output = await step
        match output:
            case (str() | None as text, list() | tuple() as calls) if all(
                isinstance(call, AgentToolCall) for call in calls
            ):
                return text, [*calls]
        raise _useless(output)


@dataclass(frozen=True, slots=True)
class SwarmCore:
    """A swarm, ready to run: who is in it, and what it says of itself.

    Attributes:
        breakpoint_tools: tools whose call pauses the task until the user gives their result.
        task_message_limit: steps a task may take before its supervisor must finish it.
        protocol: the text that the `help` tool gives for `get_full_protocol`.

    Raises ConfigurationError when the parts don't fit together.
    """

    name: str
    version: str
    entrypoint: str
    agents: Mapping[str, AgentCore]
    actions: Mapping[str, ActionCore] = field(default_factory=dict)
    breakpoint_tools: frozenset[str] = frozenset()
    task_message_limit: int = 15
    description: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    protocol: str = ""

    def __post_init__(self) -> None:
        if not is_swarm_name(self.name):
            raise ConfigurationError(
                f"swarm {self.name!r}: a swarm's name has 1 to 128 printable characters, none of ':', '@' and '#'"
            )
        entrypoint = self.agents.get(self.entrypoint)
        if entrypoint is None:
            raise ConfigurationError(
                f"swarm {self.name!r}: the entrypoint {self.entrypoint!r} is no agent{did_you_mean(self.entrypoint, self.agents)}"
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
        for name, agent in self.agents.items():
            self._check_agent(name, agent)

    def agent(self, name: str) -> AgentCore:
        """The agent with this name; where a newer version of the swarm has lost it, one that always fails."""
        return self.agents.get(name) or AgentCore(function=_gone)

    def closing_agent(self, entrypoint: str) -> str:
        """Who must finish a task that came in at `entrypoint`: that agent if it can, else the first that can."""
        supervisors = [name for name, agent in self.agents.items() if agent.can_complete_tasks]
        return entrypoint if entrypoint in supervisors else supervisors[0]

    def runs_as_action(self, agent: AgentCore, tool: str) -> bool:
        """Whether the engine runs this tool for the agent; a breakpoint tool is run by the user, a form by nobody."""
        return tool in agent.actions and tool not in self.breakpoint_tools and self.actions[tool].form is None

    def form(self, agent: AgentCore, tool: str) -> ActionCore | None:
        """The form by this name that the agent may fill in, if there is one."""
        action = self.actions.get(tool) if tool in agent.actions else None
        return action if action is not None and action.form is not None else None

    def _check_agent(self, name: str, agent: AgentCore) -> None:
        where = f"swarm {self.name!r}, agent {name!r}"
        if name == EVERYONE or not name or "@" in name or "#" in name or name.startswith("!"):
            raise ConfigurationError(
                f"{where}: an agent's name is not 'all', holds neither '@' nor '#', and doesn't begin with '!'"
            )
        for target in agent.comm_targets:
            local, _, swarm = target.partition("@")
            if swarm in ("", self.name) and local not in self.agents:
                raise ConfigurationError(
                    f"{where}: comm_target {target!r} is no agent{did_you_mean(local, self.agents)}"
                )
        for action in agent.actions:
            if action not in self.actions:
                raise ConfigurationError(
                    f"{where}: {action!r} is no action of the swarm{did_you_mean(action, self.actions)}"
                )
        if unknown := agent.exclude_tools - MAIL_TOOLS.keys():
            raise ConfigurationError(f"{where}: exclude_tools names no MAIL tool: {sorted(unknown)}")


def _useless(output: object) -> AgentUnavailable:
    """The error for what no agent function may return; it tells types only, as the values may be secret."""
    parts = output if isinstance(output, tuple | list) else ()
    inside = f" of {', '.join(type(part).__name__ for part in parts)}" if parts else ""
    return AgentUnavailable(f"its agent function returned {type(output).__name__}{inside}; {AGENT_FUNCTION}")


async def _gone(_history: History, _choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
    raise LookupError("the swarm has no agent of this name any more")
