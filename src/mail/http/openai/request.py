"""The body of `POST /responses`: the fields of OpenAI's request that apply to a swarm.

Fields that tune one model, such as `temperature`, are ignored. Features that would change the meaning of an answer and
are not supported (images, tools that OpenAI runs, conversations, output schemas) are refused.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mail.core.task.client_tools import TOOL_NAME, ClientTool, ClientTools
from mail.http.bodies import Given
from mail.http.openai.errors import RefusedRequest


class TextPart(Given):
    """A piece of text."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalPart(Given):
    """A model's refusal in a conversation."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


_PART_TYPES = ("input_text", "output_text", "text", "refusal")

Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]


def _as_parts(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in _PART_TYPES:
            raise PydanticCustomError(
                "unsupported_part", "agents take text only, no {kind}", {"kind": repr(kind[:40])}
            )
    return content


Content = Annotated[list[Part], BeforeValidator(_as_parts)]


def text_of(content: list[TextPart | RefusalPart]) -> str:
    """Return the text of all content items."""
    return "\n\n".join(part.text for part in content)


class MessageItem(Given):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCall(Given):
    """An earlier call of one of the caller's tools."""

    call_id: str
    name: str
    arguments: str


class FunctionCallOutput(Given):
    """The output of such a call."""

    call_id: str
    output: Content


class Reasoning(Given):
    """A model's reasoning, which is ignored."""


def _type_of_item(item: Any) -> str:
    return str(item.get("type") or "message") if isinstance(item, dict) else "message"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")],
    Discriminator(_type_of_item),
]


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class NamedFunction(Given):
    """The name of one of the caller's functions; also in the shape of Chat Completions, one level deeper."""

    type: Literal["function"]
    name: str = Field(pattern=TOOL_NAME)

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            return {**value, **value["function"]}
        return value


class FunctionTool(NamedFunction):
    """A function of the caller's that agents may call."""

    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @field_validator("parameters")
    @classmethod
    def _describes_an_object(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value and value.get("type") != "object":
            raise ValueError("must be a JSON Schema of type 'object'")
        return value

    def client_tool(self) -> ClientTool:
        """Return the tool for the engine."""
        given: dict[str, Any] = {"name": self.name, "description": self.description, "strict": self.strict}
        if self.parameters:
            given["parameters"] = {"properties": {}, **self.parameters}
        return ClientTool(**{name: value for name, value in given.items() if value is not None})


class AllowedTools(Given):
    """A selection of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


Mode = Literal["auto", "none", "required"]


class Format(Given):
    """The format of the answer."""

    type: Literal["text"]


class TextSettings(Given):
    """Settings of the answer's text."""

    format: Format | None = None


MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class PostResponses(Given):
    """A request for a response. A field in `kwargs` counts if the body itself doesn't have it.

    `max_steps`, `timeout` and `entrypoint` are MAIL's, as in `POST /message`. OpenAI's clients never send `kwargs`.
    """

    input: Annotated[list[Item], BeforeValidator(_as_items)]
    instructions: str | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Mode | NamedFunction | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    model: str | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    text: TextSettings | None = None
    conversation: None = None
    prompt: None = None
    max_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout: float | None = Field(default=None, gt=0, le=10_000_000, allow_inf_nan=False)
    entrypoint: str | None = None
    kwargs: Any = None

    @model_validator(mode="before")
    @classmethod
    def _merge(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("kwargs"), dict):
            return {**value["kwargs"], **{name: given for name, given in value.items() if given is not None}}
        return value

    def client_tools(self) -> ClientTools | None:
        """Return the caller's tools; None if there are none. Raises RefusedRequest."""
        tools = tuple(tool.client_tool() for tool in self.tools or ())
        match self.tool_choice:
            case None | "auto":
                required = []
            case "none":
                return None
            case "required":
                required = self._known([tool.name for tool in tools])
            case NamedFunction(name=name):
                required = self._known([name])
            case AllowedTools(mode=mode, tools=functions):
                allowed = self._known([function.name for function in functions])
                tools = tuple(tool for tool in tools if tool.name in allowed)
                required = allowed if mode == "required" else []
        if not tools:
            return None
        return ClientTools(
            tools=tools, required=tuple(required), parallel=self.parallel_tool_calls is not False
        )

    def _known(self, names: list[str]) -> list[str]:
        """Return the names in a tool choice. Raises RefusedRequest if they are empty or unknown."""
        unknown = {*names} - {tool.name for tool in self.tools or ()}
        if unknown or not names:
            raise RefusedRequest(
                f"tool_choice names {', '.join(sorted(unknown)) or 'no tool'}, which is not among the request's tools",
                param="tool_choice",
            )
        return names
