"""Tools that the caller of a task runs: an agent calls them, the task pauses, and the caller returns their results.

They are breakpoint tools of one generation of one task. Only the task's entrypoint may call them, besides its own
tools; an agent function finds them with `caller_tools` (`mail.core.turns.tools`).
"""

from collections.abc import Collection
from typing import Any

from pydantic import Field

from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.output_schema import OutputSchema
from mail.core.protocol.values import Value, value
from mail.errors import BadClientTools

MAX_TOOL_NAME = 64

TOOL_NAME = rf"^[a-zA-Z0-9_-]{{1,{MAX_TOOL_NAME}}}$"
"""The tool names that every provider accepts."""

RESERVED = frozenset({*MAIL_TOOLS, *BUILTIN_TOOLS, TEXT_OUTPUT})
"""The names of tools that a caller can't have, besides those of the swarm's own."""


class ClientTool(Value):
    """A tool that the caller runs.

    Attributes:
        parameters: the JSON Schema of its arguments.
        strict: whether a model must keep to that schema; None if unspecified.
    """

    name: str = Field(pattern=TOOL_NAME)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None

    def renamed(self, name: str) -> "ClientTool":
        """Return the tool under another name."""
        return ClientTool(**{**vars(self), "name": name})


class ClientTools(Value):
    """The caller's tools for one generation.

    Attributes:
        required: names of the tools of which the first turn must call one; empty for none.
        parallel: whether one turn may call several of them.
    """

    tools: tuple[ClientTool, ...] = ()
    required: tuple[str, ...] = ()
    parallel: bool = True

    def holds(self, name: str) -> bool:
        """Return whether one of them has this name."""
        return any(tool.name == name for tool in self.tools)

    def in_turn(self, *, is_first: bool) -> "TurnTools":
        """Return those that the agent may call in a turn."""
        if not (is_first and self.required):
            return TurnTools(self.tools)
        return TurnTools(tuple(tool for tool in self.tools if tool.name in self.required), is_required=True)

    def optional(self) -> "ClientTools":
        """Return them without a requirement, for a run that has had its first turn."""
        return ClientTools(tools=self.tools, parallel=self.parallel)

    def check(self, taken: Collection[str]) -> None:
        """Raise BadClientTools for duplicate names, and for names of MAIL tools or those `taken` by the swarm."""
        names = [tool.name for tool in self.tools]
        if double := sorted({name for name in names if names.count(name) > 1}):
            raise BadClientTools(f"there are several tools with the name {', '.join(double)}")
        if clash := [name for name in names if name in RESERVED or name in taken]:
            raise BadClientTools(
                f"the swarm has tools of its own with the name {', '.join(clash)}; rename yours"
            )


@value
class TurnTools:
    """The caller's tools in one turn.

    Attributes:
        is_required: whether the agent must call one of them, and nothing else.
        output_schema: the JSON Schema that the task's answer must fit, if it has one.
    """

    tools: tuple[ClientTool, ...] = ()
    is_required: bool = False
    output_schema: OutputSchema | None = None


NO_CLIENT_TOOLS = TurnTools()
