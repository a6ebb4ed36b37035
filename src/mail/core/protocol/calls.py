"""A tool call as an agent makes it, and its result as the agent reads it, in either API's format."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mail.core.protocol.values import Value

ToolFormat = Literal["completions", "responses"]
"""Which API's shapes an agent speaks: OpenAI Chat Completions or OpenAI Responses."""

TEXT_OUTPUT = "text_output"
"""The name under which an agent function reports that the model wrote text and called no tool."""

BUILTIN_TOOLS = frozenset({"web_search_call", "code_interpreter_call"})
"""Tools that the provider has already run; the engine only reports them."""


class AgentToolCall(Value):
    """One tool call of one turn.

    `completion` is the assistant message that made the call (Chat Completions), `responses` the output
    items that did (Responses); one of them must be there, as it is what goes into the agent's history.
    All calls of one turn usually share it.
    """

    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str
    completion: dict[str, Any] = Field(default_factory=dict)
    responses: list[dict[str, Any]] = Field(default_factory=list)
    reasoning: list[str] | None = None
    preamble: str | None = None

    @model_validator(mode="after")
    def _has_its_origin(self) -> Self:
        if not self.completion and not self.responses:
            raise ValueError("a tool call needs the completion or the responses it came from")
        return self

    @property
    def turns(self) -> list[dict[str, Any]]:
        """What the model said, in the form in which its history is kept."""
        return [self.completion] if self.completion else self.responses

    @property
    def tool_format(self) -> ToolFormat:
        """The API in whose shapes the call was made."""
        return "completions" if self.completion else "responses"

    def create_response_msg(self, content: str) -> dict[str, str]:
        """The history entry that gives this call its result, in the call's own format."""
        return tool_result(self.tool_format, self.tool_call_id, content)


def tool_result(tool_format: ToolFormat, call_id: str, content: str) -> dict[str, str]:
    """The history entry that gives a tool call its result."""
    if tool_format == "completions":
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    return {"type": "function_call_output", "call_id": call_id, "output": content}
