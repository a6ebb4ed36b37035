"""The tools that a caller lends to a task: an agent calls them, the task pauses, and the caller gives their results.

They are breakpoint tools that belong to one generation of one task and to no swarm. The agent that reads the caller's
words, the task's entrypoint, is offered them besides its own; `caller_tools` is how it finds them.
"""

from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT, ToolFormat
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.tool_schemas import tool_declaration
from mail.core.protocol.values import Value
from mail.errors import BadClientTools

TOOL_NAME = r"^[a-zA-Z0-9_-]{1,64}$"
"""What every provider takes as the name of a tool."""


class ClientTool(Value):
    """A tool that the caller runs.

    Attributes:
        parameters: the JSON Schema of its arguments.
        strict: whether a model must keep to that schema; None where the caller didn't say.
    """

    name: str = Field(pattern=TOOL_NAME)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class ClientTools(Value):
    """What a caller lends for one generation.

    Attributes:
        required: names of tools of which the generation's first turn must call one; empty: it need not.
        parallel: whether one turn may call several of them.
    """

    tools: tuple[ClientTool, ...] = ()
    required: tuple[str, ...] = ()
    parallel: bool = True

    def holds(self, name: str) -> bool:
        """Whether a tool of this name is among them."""
        return any(tool.name == name for tool in self.tools)

    def offer(self, *, first_turn: bool) -> "Offer":
        """What the agent is offered in a turn."""
        if not (first_turn and self.required):
            return Offer(self.tools)
        return Offer(tuple(tool for tool in self.tools if tool.name in self.required), is_demand=True)

    def check(self, taken: Collection[str]) -> None:
        """Raise BadToolbox for two tools of one name, or for a name that is `taken` by a tool of the swarm or of MAIL."""
        names = [tool.name for tool in self.tools]
        if double := sorted({name for name in names if names.count(name) > 1}):
            raise BadClientTools(f"there are several tools with the name {', '.join(double)}")
        reserved = {*MAIL_TOOLS, *BUILTIN_TOOLS, TEXT_OUTPUT, *taken}
        if clash := [name for name in names if name in reserved]:
            raise BadClientTools(
                f"the swarm has tools of its own with the name {', '.join(clash)}; rename yours"
            )


@dataclass(frozen=True, slots=True)
class Offer:
    """The caller's tools in one turn.

    Attributes:
        is_demand: whether one of them must be called, and nothing else may be.
    """

    tools: tuple[ClientTool, ...] = ()
    is_demand: bool = False


NO_OFFER = Offer()

OFFER: ContextVar[Offer] = ContextVar("OFFER", default=NO_OFFER)
"""The tools that the caller of the task offers to the agent in the turn that is being run."""


def caller_tools(style: ToolFormat = "completions") -> list[dict[str, Any]]:
    """Declare the tools that the caller of the task lends to the agent whose turn it is; to others, none.

    To call one pauses the task until the caller has given its result, which the agent then finds in its history.
    """
    declarations = []
    for tool in OFFER.get().tools:
        declaration = tool_declaration(tool.name, tool.description, tool.parameters, style)
        if tool.strict is not None:
            (declaration if style == "responses" else declaration["function"])["strict"] = tool.strict
        declarations.append(declaration)
    return declarations
