"""The entries of swarms.json: typed, frozen, and closed to unknown fields."""

from typing import Any

from pydantic import ConfigDict, Field

from mail.core.record import Record
from mail.core.tools import ToolFormat


class Entry(Record):
    """What all entries share."""

    model_config = ConfigDict(strict=True)


class ActionEntry(Entry):
    """An action that agents of the swarm may call.

    Attributes:
        parameters: the JSON Schema of the arguments.
        function: reference to the Python function; a breakpoint tool needs none, as the user gives its result.
        idempotent: whether it may be repeated when a crash leaves its outcome unknown.
    """

    name: str = Field(min_length=1)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    function: str | None = None
    idempotent: bool = False


class AgentEntry(Entry):
    """An agent of the swarm.

    Attributes:
        factory: reference to what builds the agent's function.
        comm_targets: agents it may write to, `agent@swarm` for remote ones.
        actions: names of the swarm's actions that it may call.
        agent_params: what the factory gets besides the wiring; may hold references at any depth.
        exclude_tools: MAIL tools it may not call.
    """

    name: str = Field(min_length=1)
    factory: str
    comm_targets: list[str] = Field(default_factory=list)
    actions: list[str] = Field(default_factory=list)
    agent_params: dict[str, Any] = Field(default_factory=dict)
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    tool_format: ToolFormat = "responses"
    exclude_tools: list[str] = Field(default_factory=list)


class SwarmEntry(Entry):
    """A swarm.

    Attributes:
        action_imports: references to ready-made actions, which join `actions`.
        breakpoint_tools: actions whose call pauses the task until the user gives their result.
        exclude_tools: MAIL tools that no agent may call.
        task_message_limit: steps a task may take; None for the server's setting.
        public: whether other swarms are told of it.
    """

    name: str = Field(pattern=r"^[^:@]+$")
    version: str = Field(min_length=1)
    entrypoint: str
    agents: list[AgentEntry] = Field(min_length=1)
    actions: list[ActionEntry] = Field(default_factory=list)
    action_imports: list[str] = Field(default_factory=list)
    breakpoint_tools: list[str] = Field(default_factory=list)
    exclude_tools: list[str] = Field(default_factory=list)
    task_message_limit: int | None = Field(default=None, ge=1)
    description: str = ""
    keywords: list[str] = Field(default_factory=list)
    public: bool = False
    enable_interswarm: bool = False
    enable_db_agent_histories: bool = False
