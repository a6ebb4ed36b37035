"""The body of `POST /responses`: the fields of OpenAI's request that apply to a swarm.

Fields that tune one model, such as `temperature`, are ignored. Features that would change the meaning of an answer and
are not supported (audio, tools that OpenAI runs, prompts that OpenAI stores) are refused.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mail.core.protocol.output_schema import OutputSchema
from mail.core.task.client_tools import TOOL_NAME, ClientTools
from mail.http.bodies import Given
from mail.http.inputs import Called, Entry, GivenFile, Returned, Said, Uploaded, client_tool, read_base64
from mail.http.openai.errors import RefusedRequest


class Nested(Given):
    """An object that Chat Completions nest one level deeper, below the name of its type."""

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, value: Any) -> Any:
        inner = value.get(str(value.get("type"))) if isinstance(value, dict) else None
        return cls._read({**value, **inner} if isinstance(inner, dict) else value)

    @classmethod
    def _read(cls, value: Any) -> Any:
        """Return the fields of an object that is not nested."""
        return value


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


_SOURCES = ("file_data", "image_url", "url", "file_url")


class FilePart(Nested):
    """An image or another file: an uploaded one, or its bytes in base64, most often as a `data:` URL."""

    type: Literal["input_image", "input_file", "image_url", "file"]
    file_id: str | None = None
    filename: str = ""
    data: str = ""

    @classmethod
    def _read(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        data = next((given for name in _SOURCES if isinstance(given := value.get(name), str) and given), "")
        if data.startswith(("http://", "https://")):
            raise PydanticCustomError(
                "url",
                "files are not fetched from URLs: upload the file with POST /files and send its id as file_id, or send "
                "its bytes as a data: URL",
            )
        if not data and not value.get("file_id"):
            raise PydanticCustomError("no_file", "has neither a file_id nor the bytes of a file")
        return {**value, "data": data, "filename": value.get("filename") or ""}

    def given(self) -> GivenFile:
        """Return the file. Raises BadFile."""
        return Uploaded(self.file_id) if self.file_id else read_base64(self.data, self.filename)


_TEXT_TYPES = ("input_text", "output_text", "text", "refusal")
_FILE_TYPES = ("input_image", "input_file", "image_url", "file")

Text = TextPart | RefusalPart


def _as_parts(content: Any, known: tuple[str, ...] = _TEXT_TYPES + _FILE_TYPES) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in known:
            takes = "text, images and files" if known != _TEXT_TYPES else "text as a result"
            raise PydanticCustomError(
                "unsupported_part",
                "agents take {takes}, no {kind}",
                {"takes": takes, "kind": repr(kind[:40])},
            )
    return content


def _as_text(content: Any) -> Any:
    return _as_parts(content, _TEXT_TYPES)


Content = Annotated[list[Annotated[Text | FilePart, Field(discriminator="type")]], BeforeValidator(_as_parts)]
TextContent = Annotated[list[Annotated[Text, Field(discriminator="type")]], BeforeValidator(_as_text)]


def text_of(content: Iterable[Text | FilePart]) -> str:
    """Return the text of all content items that are text."""
    return "\n\n".join(part.text for part in content if not isinstance(part, FilePart))


class MessageItem(Given):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCall(Given):
    """An earlier call of one of the caller's tools."""

    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    arguments: str


class FunctionCallOutput(Given):
    """The output of such a call."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: str
    output: TextContent


class Reasoning(Given):
    """A model's reasoning, which is ignored."""

    type: Literal["reasoning"] = "reasoning"


def _type_of_item(item: Any) -> str:
    given = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return str(given or "message")


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")],
    Discriminator(_type_of_item),
]


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class NamedFunction(Nested):
    """The name of one of the caller's functions."""

    type: Literal["function"]
    name: str = Field(pattern=TOOL_NAME)


class FunctionTool(NamedFunction):
    """A function of the caller's that agents may call."""

    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AllowedTools(Nested):
    """A selection of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


Mode = Literal["auto", "none", "required"]


class Format(Nested):
    """The format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: OutputSchema | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def output_schema(self) -> OutputSchema | None:
        """Return the schema that the answer must fit; None if it is text. Raises RefusedRequest."""
        if self.type == "json_schema" and self.schema_ is None:
            raise RefusedRequest("the format json_schema needs a schema", param="text")
        return (
            self.schema_
            if self.type == "json_schema"
            else {"type": "object"}
            if self.type == "json_object"
            else None
        )


class TextSettings(Given):
    """Settings of the answer's text."""

    format: Format | None = None


CONVERSATION = "conv_"
"""Begins the id of a conversation, before that of its task."""


class GivenConversation(Given):
    """A conversation, which is a task."""

    id: str = Field(pattern=rf"^{CONVERSATION}[^\x00-\x1f\x7f#]{{1,256}}$")

    @property
    def task_id(self) -> str:
        return self.id.removeprefix(CONVERSATION)


def _as_conversation(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


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
    conversation: Annotated[GivenConversation | None, BeforeValidator(_as_conversation)] = None
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

    def entries(self) -> list[Entry]:
        """Return the conversation. Raises BadFile."""
        entries: list[Entry] = []
        for item in self.input:
            match item:
                case MessageItem():
                    content = (
                        each.given() if isinstance(each, FilePart) else each.text for each in item.content
                    )
                    entries.append(Said(item.role, tuple(content)))
                case FunctionCall():
                    entries.append(Called(item.call_id, item.name, item.arguments))
                case FunctionCallOutput():
                    entries.append(Returned(item.call_id, text_of(item.output)))
        return entries

    def output_schema(self) -> OutputSchema | None:
        """Return the schema that the answer must fit; None for that of the swarm. Raises RefusedRequest."""
        chosen = self.text and self.text.format
        return chosen.output_schema() if chosen else None

    def client_tools(self) -> ClientTools | None:
        """Return the caller's tools; None if there are none. Raises RefusedRequest."""
        tools = tuple(
            client_tool(tool.name, tool.description, tool.parameters, tool.strict)
            for tool in self.tools or ()
        )
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
