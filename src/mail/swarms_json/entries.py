"""The entries of swarms.json: typed, frozen, and closed to unknown fields.

The descriptions are those of the JSON Schema, `docs/swarms-schema.json`.
"""

from typing import Any

from pydantic import ConfigDict, Field

from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.protocol.values import Value


class Entry(Value):
    """What all entries share."""

    model_config = ConfigDict(strict=True)


class ActionEntry(Entry):
    """An action that agents of the swarm may call."""

    name: str = Field(min_length=1, description="The tool's name.")
    description: str = Field(default="", description="What language models are told of it.")
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="The JSON Schema of its arguments, which are checked before the function is called.",
    )
    function: str | None = Field(
        default=None,
        description="The Python function, as python::package.module:name. A breakpoint tool needs none: the user "
        "gives its result.",
    )
    idempotent: bool = Field(
        default=False, description="Whether it may be repeated when a crash leaves its outcome unknown."
    )


class AgentEntry(Entry):
    """An agent of the swarm."""

    name: str = Field(min_length=1, description="Its address; not 'all', and without '@' and '#'.")
    factory: str = Field(description="What builds the agent's function, as python::package.module:name.")
    comm_targets: list[str] = Field(
        default_factory=list, description="Agents it may write to, agent@swarm for those of other swarms."
    )
    actions: list[str] = Field(default_factory=list, description="Names of the swarm's actions it may call.")
    agent_params: dict[str, Any] = Field(
        default_factory=dict,
        description="What the factory gets besides, such as llm and system. Strings that begin with python:: or "
        "url:: are replaced by what they refer to, at any depth.",
    )
    enable_entrypoint: bool = Field(default=False, description="Whether users may write to it.")
    enable_interswarm: bool = Field(default=False, description="Whether it may write to other swarms.")
    can_complete_tasks: bool = Field(
        default=False, description="Whether it may finish tasks, that is, supervises."
    )
    tool_format: ToolFormat = Field(
        default="responses", description="The API in whose shapes its function speaks."
    )
    exclude_tools: list[str] = Field(default_factory=list, description="MAIL tools it may not call.")


class SwarmEntry(Entry):
    """A swarm."""

    name: str = Field(pattern=r"^[^:@]+$", description="Its name among swarms, without ':' and '@'.")
    version: str = Field(min_length=1, description="Its own version.")
    entrypoint: str = Field(description="The agent that users write to; it needs enable_entrypoint.")
    agents: list[AgentEntry] = Field(
        min_length=1, description="At least one of them needs can_complete_tasks."
    )
    actions: list[ActionEntry] = Field(default_factory=list, description="Actions declared here.")
    action_imports: list[str] = Field(
        default_factory=list,
        description="Ready-made actions, as python::package.module:name of what @mail.action has made.",
    )
    breakpoint_tools: list[str] = Field(
        default_factory=list,
        description="Actions whose call pauses the task until the user gives their result.",
    )
    exclude_tools: list[str] = Field(default_factory=list, description="MAIL tools that no agent may call.")
    task_message_limit: int | None = Field(
        default=None, ge=1, description="Steps a task may take; null for the server's setting."
    )
    description: str = Field(default="", description="What other swarms and people are told of it.")
    keywords: list[str] = Field(default_factory=list, description="By which others may find it.")
    public: bool = Field(default=False, description="Whether other swarms are told of it.")
    enable_interswarm: bool = Field(default=False, description="Whether it exchanges mail with other swarms.")
    enable_db_agent_histories: bool = Field(
        default=False, description="Has no effect: agents' histories are always kept in the database."
    )
