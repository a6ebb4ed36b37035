"""`POST /chat/completions`: the same requests and answers in the shape of OpenAI's Chat Completions.

A request is read as one for a response, and the response, or the events of its stream, written as a completion.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import to_json

from mail.http.bodies import Given
from mail.http.openai.errors import RefusedRequest
from mail.http.openai.output import JSONObject
from mail.http.openai.request import (
    AllowedTools,
    Content,
    Format,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    Item,
    MessageItem,
    MetadataKey,
    MetadataValue,
    Mode,
    NamedFunction,
    Nested,
    PostResponses,
    TextContent,
    TextSettings,
    text_of,
)
from mail.http.openai.stream import PING


class CalledFunction(Nested):
    """A call of one of the caller's functions."""

    id: str
    type: Literal["function"]
    name: str
    arguments: str


class ChatMessage(Given):
    """A message of the model or of its user, with the calls that it makes."""

    role: Literal["developer", "system", "user", "assistant"]
    content: Content | None = None
    tool_calls: list[CalledFunction] | None = None

    def items(self) -> Iterator[Item]:
        """Yield it as items of a response's input."""
        if self.content and (self.role != "assistant" or text_of(self.content)):
            yield MessageItem(role=self.role, content=self.content)
        for call in self.tool_calls or ():
            yield FunctionCall(call_id=call.id, name=call.name, arguments=call.arguments)


class ToolMessage(Given):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: str
    content: TextContent

    def items(self) -> Iterator[Item]:
        """Yield it as items of a response's input."""
        yield FunctionCallOutput(call_id=self.tool_call_id, output=self.content)


class StreamOptions(Given):
    """The parts of a stream besides the answer."""

    include_usage: bool | None = None


class PostChat(Given):
    """A request for a completion. `max_steps`, `timeout` and `entrypoint` are MAIL's, as in `POST /message`."""

    messages: list[Annotated[ChatMessage | ToolMessage, Field(discriminator="role")]] = Field(min_length=1)
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Mode | NamedFunction | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    response_format: Format | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    store: bool | None = None
    n: int | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    max_steps: int | None = Field(default=None, ge=1, le=1_000_000)
    timeout: float | None = Field(default=None, gt=0, le=10_000_000, allow_inf_nan=False)
    entrypoint: str | None = None

    def as_responses(self) -> PostResponses:
        """Return it as a request for a response. Raises RefusedRequest for what swarms can't do."""
        if self.n not in (None, 1):
            raise RefusedRequest("a swarm gives one answer: n must be 1", param="n")
        if self.audio is not None or "audio" in (self.modalities or ()):
            raise RefusedRequest("a swarm answers with text: audio is not supported", param="audio")
        for name in ("functions", "function_call"):
            if getattr(self, name) is not None:
                raise RefusedRequest(f"{name} is deprecated: use tools and tool_choice", param=name)
        return PostResponses(
            input=[item for message in self.messages for item in message.items()],
            text=None if self.response_format is None else TextSettings(format=self.response_format),
            **{name: getattr(self, name) for name in _SHARED},
        )


_SHARED = tuple(PostChat.__annotations__.keys() & PostResponses.__annotations__.keys())
"""The fields that both requests have."""


def describe_completion(response: JSONObject) -> JSONObject:
    """Return a response that is complete as a completion."""
    message: JSONObject = {"role": "assistant", "content": None, "refusal": None}
    calls: list[JSONObject] = []
    for item in response["output"]:
        if item["type"] == "message":
            [part] = item["content"]
            message |= {"content": part["text"], "annotations": part["annotations"]}
        else:
            calls.append(_describe_call(item))
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(response)}
    return {
        **_head(response, "chat.completion"),
        "choices": [choice],
        "usage": _describe_usage(response["usage"]),
    }


async def frames(
    events: AsyncIterable[JSONObject | None], *, include_usage: bool, unfinished: str
) -> AsyncGenerator[bytes]:
    """Yield the frames of a stream of chunks from the events of a response.

    A stream that breaks off ends with the error `unfinished`, since it can't be resumed.
    """
    head: JSONObject = {}
    calls = 0
    async for event in events:
        match event:
            case None:
                yield PING
            case {"type": "response.created", "response": response}:
                head = _head(response, "chat.completion.chunk") | ({"usage": None} if include_usage else {})
                yield _chunk(head, {"role": "assistant", "content": "", "refusal": None})
            case {"type": "response.output_text.delta", "delta": text}:
                yield _chunk(head, {"content": text})
            case {"type": "response.output_item.done", "item": {"type": "function_call"} as item}:
                yield _chunk(head, {"tool_calls": [{"index": calls, **_describe_call(item)}]})
                calls += 1
            case {"type": "response.completed" | "response.incomplete", "response": response}:
                yield _chunk(head, {}, _finish_reason(response))
                if include_usage:
                    yield _frame({**head, "choices": [], "usage": _describe_usage(response["usage"])})
                yield b"data: [DONE]\r\n\r\n"
                return
            case {"type": "response.failed", "response": response}:
                unfinished = response["error"]["message"]
    yield _frame(
        {"error": {"message": unfinished, "type": "server_error", "param": None, "code": "server_error"}}
    )


def _head(response: JSONObject, kind: str) -> JSONObject:
    names = {"id": response["id"], "object": kind, "created": response["created_at"]}
    return {**names, "model": response["model"], "service_tier": None, "system_fingerprint": None}


def _describe_call(item: JSONObject) -> JSONObject:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _finish_reason(response: JSONObject) -> str:
    if any(item["type"] == "function_call" for item in response["output"]):
        return "tool_calls"
    return "stop" if response["status"] == "completed" else "length"


def _describe_usage(usage: JSONObject) -> JSONObject:
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"]},
        "completion_tokens_details": usage["output_tokens_details"],
    }


def _chunk(head: JSONObject, delta: JSONObject, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _frame({**head, "choices": [choice]})


def _frame(data: JSONObject) -> bytes:
    return b"data: %b\r\n\r\n" % to_json(data, ensure_ascii=True)
