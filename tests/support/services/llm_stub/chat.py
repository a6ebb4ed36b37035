"""OpenAI's Chat Completions (platform.openai.com/docs/api-reference/chat).

Reasoning is in `reasoning_content`, which OpenAI itself never sends, but DeepSeek, xAI, vLLM and others do.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from support.services.llm_stub.script import Call, Reply, Text, Thinking
from support.services.llm_stub.wire import (
    Issued,
    arguments_of,
    has_calls,
    pieces,
    require,
    require_known,
    sse,
)
from support.services.llm_stub.wire import openai_error as error  # noqa: F401

KNOWN = (
    "model messages tools tool_choice stream stream_options max_tokens max_completion_tokens reasoning_effort "
    "temperature top_p parallel_tool_calls response_format seed stop user frequency_penalty presence_penalty "
    "logit_bias service_tier verbosity metadata prompt_cache_key"
)


MESSAGE = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "reasoning_content"}


def body(reply: Reply, request: Mapping[str, Any], issued: Issued) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(reply, Text) or None,
        "refusal": None,
        "annotations": [],
    }
    if reasoning := _joined(reply, Thinking):
        message["reasoning_content"] = reasoning
    if calls := _calls(reply, issued):
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
    return {**_head(request, issued, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def events(reply: Reply, request: Mapping[str, Any], issued: Issued) -> Iterator[bytes]:
    head = _head(request, issued, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse({**head, "choices": [choice], **({"usage": None} if wants_usage else {})})

    wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    index = 0
    for part in reply.parts:
        match part:
            case Thinking(text):
                for piece in pieces(text):
                    yield chunk({"reasoning_content": piece})
            case Text(text):
                for piece in pieces(text):
                    yield chunk({"content": piece})
            case Call():
                function = {"name": part.name, "arguments": ""}
                start = {"index": index, "id": issued.id("call_"), "type": "function", "function": function}
                yield chunk({"tool_calls": [start]})
                for piece in pieces(arguments_of(part)):
                    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                index += 1
    yield chunk({}, _finish_reason(reply))
    if wants_usage:
        yield sse({**head, "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def error_event() -> bytes:
    return sse({"error": {"message": "The server had an error", "type": "server_error", "code": None}})


def check(request: Mapping[str, Any], _headers: Mapping[str, str], _issued: Issued) -> None:
    is_strict = not request.get("model", "").startswith("deepseek")
    require_known(request, KNOWN if is_strict else f"{KNOWN} thinking")
    messages = request.get("messages")
    require(messages, "[] is too short - 'messages'")
    assert messages is not None
    waiting: list[str] = []
    for n, message in enumerate(messages):
        role = message.get("role")
        unknown = message.keys() - MESSAGE
        require(not unknown, f"Unrecognized keys in messages.[{n}]: {', '.join(unknown)}")
        if role == "tool":
            require(
                message.get("tool_call_id") in waiting,
                f"messages.[{n}].role: messages with role 'tool' must be a response to a preceeding message "
                "with 'tool_calls'.",
            )
            waiting.remove(message["tool_call_id"])
            continue
        require(
            not waiting,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
        )
        require(
            role in ("system", "developer", "user", "assistant"),
            f"Invalid value: '{role}'. 'messages[{n}].role'",
        )
        if role != "assistant":
            require(
                isinstance(message.get("content"), str | list), f"messages.[{n}].content: expected a string"
            )
            continue
        calls = message.get("tool_calls") or []
        require(message.get("content") or calls, f"messages.[{n}].content: expected a string, got null")
        for call in calls:
            require(
                not is_strict or call.keys() <= {"id", "type", "function"},
                f"Unknown parameter in messages[{n}].tool_calls",
            )
            require(isinstance(call["function"]["arguments"], str), "arguments: expected a string")
        waiting = [call["id"] for call in calls]
    require(not waiting, f"tool_call_ids did not have response messages: {', '.join(waiting)}")
    _check_tools(request)


def _check_tools(request: Mapping[str, Any]) -> None:
    names = []
    for tool in request.get("tools") or []:
        require(
            tool.get("type") == "function" and "function" in tool,
            f"Missing required parameter in tools: {tool}",
        )
        require(
            tool["function"]["parameters"]["type"] == "object",
            "schema must be a JSON Schema of 'type: \"object\"'",
        )
        names.append(tool["function"]["name"])
    require(len(names) == len(set(names)), "tools: names must be unique")
    choice = request.get("tool_choice")
    require(names or choice is None, "'tool_choice' is only allowed when 'tools' are specified.")
    if isinstance(choice, dict):
        require(choice["function"]["name"] in names, "Tool choice: function not found in 'tools' parameter.")
    else:
        require(choice in (None, "auto", "none", "required"), f"Invalid value: {choice!r} for tool_choice")


def _joined(reply: Reply, kind: type[Text] | type[Thinking]) -> str:
    return "".join(part.text for part in reply.parts if isinstance(part, kind))


def _calls(reply: Reply, issued: Issued) -> list[dict[str, Any]]:
    return [
        {
            "id": issued.id("call_"),
            "type": "function",
            "function": {"name": part.name, "arguments": arguments_of(part)},
        }
        for part in reply.parts
        if isinstance(part, Call)
    ]


def _finish_reason(reply: Reply) -> str:
    if reply.is_truncated:
        return "length"
    return "tool_calls" if has_calls(reply) else "stop"


def _head(request: Mapping[str, Any], issued: Issued, kind: str) -> dict[str, Any]:
    return {
        "id": issued.id("chatcmpl-"),
        "object": kind,
        "created": 1_767_225_600,
        "model": request["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_stub",
    }


def _usage(reply: Reply) -> dict[str, Any]:
    tokens = reply.tokens
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
