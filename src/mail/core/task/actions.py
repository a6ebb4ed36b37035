"""Actions: the functions, outside MAIL, that agents may call as tools."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.tool_schemas import tool_declaration
from mail.core.task.forms import Form

ActionFunction = Callable[[dict[str, Any]], Awaitable[str]]
"""Takes the call's arguments, returns its result as text. Whatever it raises is told to the agent."""


@dataclass(frozen=True, slots=True)
class ActionCore:
    """An action, ready to run.

    Attributes:
        parameters: the JSON Schema of the arguments.
        idempotent: whether it may be repeated when a crash leaves its outcome unknown.
        form: what is filled in in place of running `function`; the action then is a form.
        reads_mail: whether the form needs the mail of the task so far.
    """

    name: str
    function: ActionFunction
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    idempotent: bool = False
    form: Form | None = None
    reads_mail: bool = False

    def to_tool_dict(self, style: ToolFormat = "responses") -> dict[str, Any]:
        """Declare the action as a tool."""
        return tool_declaration(self.name, self.description, dict(self.parameters), style)
