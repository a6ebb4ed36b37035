"""Anthropic's Messages (platform.claude.com/docs/en/api/messages), with extended and interleaved thinking."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from support.services.llm_stub.script import (
    Call,
    Code,
    Failure,
    Part,
    Redacted,
    Reply,
    Search,
    Text,
    Thinking,
)
from support.services.llm_stub.wire import (
    Issued,
    Refusal,
    arguments_of,
    has_calls,
    pieces,
    require,
    require_known,
    sse,
)

INTERLEAVED = "interleaved-thinking-2025-05-14"
THINKING = ("thinking", "redacted_thinking")


KNOWN = (
    "model messages system max_tokens tools tool_choice stream thinking output_config temperature top_p top_k"
)

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def body(reply: Reply, request: Mapping[str, Any], issued: Issued) -> dict[str, Any]:
    content = [block for part in reply.parts for block in _blocks(part, issued)]
    return {**_head(reply, request, issued), "content": content, "stop_reason": _stop_reason(reply)}


def events(reply: Reply, request: Mapping[str, Any], issued: Issued) -> Iterator[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return sse({"type": kind, **data}, kind)

    head = _head(reply, request, issued)
    start = {**head, "content": [], "stop_reason": None, "usage": {**head["usage"], "output_tokens": 1}}
    yield event("message_start", message=start)
    yield event("ping")
    index = 0
    for part in reply.parts:
        raw = arguments_of(part) if isinstance(part, Call) else None
        for block in _blocks(part, issued):
            yield event("content_block_start", index=index, content_block=_opening(block))
            for delta in _deltas(block, raw):
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
            index += 1
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": reply.tokens.output})
    yield event("message_stop")


def error(failure: Failure) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": failure.anthropic_type, "message": failure.message},
        "request_id": "req_1",
    }


def error_event() -> bytes:
    data = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return sse(data, "error")


def _blocks(part: Part, issued: Issued) -> list[dict[str, Any]]:
    match part:
        case Thinking(text):
            signature = issued.id("ErUBCkYIARAB")
            block = {"type": "thinking", "thinking": text, "signature": signature}
            issued.thinking[signature] = block
            return [block]
        case Redacted(data):
            block = {"type": "redacted_thinking", "data": issued.id(data)}
            issued.thinking[block["data"]] = block
            return [block]
        case Text(text):
            return [{"type": "text", "text": text, "citations": None}]
        case Call():
            try:
                arguments = json.loads(arguments_of(part))
            except ValueError:  # only in a stream can what the model wrote be no JSON
                arguments = {}
            return [{"type": "tool_use", "id": issued.id("toolu_"), "name": part.name, "input": arguments}]
        case Search(query):
            result = {
                "type": "web_search_result",
                "title": "A page",
                "url": "https://example.org/",
                "encrypted_content": issued.id("EqgfCio"),
                "page_age": None,
            }
            return _server_tool("web_search", {"query": query}, "web_search_tool_result", [result], issued)
        case Code(code, output):
            done = {
                "type": "code_execution_result",
                "stdout": output,
                "stderr": "",
                "return_code": 0,
                "content": [],
            }
            return _server_tool("code_execution", {"code": code}, "code_execution_tool_result", done, issued)


def _server_tool(
    name: str, arguments: dict[str, Any], kind: str, result: Any, issued: Issued
) -> list[dict[str, Any]]:
    use = {"type": "server_tool_use", "id": issued.id("srvtoolu_"), "name": name, "input": arguments}
    return [use, {"type": kind, "tool_use_id": use["id"], "content": result}]


def _opening(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "text":
            return {**block, "text": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
    return block


def _deltas(block: dict[str, Any], raw: str | None) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "thinking":
            for piece in pieces(block["thinking"]):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "text":
            for piece in pieces(block["text"]):
                yield {"type": "text_delta", "text": piece}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in pieces(json.dumps(block["input"]) if raw is None else raw):
                yield {"type": "input_json_delta", "partial_json": piece}


def _stop_reason(reply: Reply) -> str:
    if reply.is_truncated:
        return "max_tokens"
    return "tool_use" if has_calls(reply) else "end_turn"


def _head(reply: Reply, request: Mapping[str, Any], issued: Issued) -> dict[str, Any]:
    tokens = reply.tokens
    usage = {
        "input_tokens": tokens.input - tokens.cached - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "service_tier": "standard",
    }
    return {
        "id": issued.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "stop_sequence": None,
        "usage": usage,
    }


# --------------------------------------------------------------------------------------- what is refused


def check(request: Mapping[str, Any], headers: Mapping[str, str], issued: Issued) -> None:
    require_known(request, KNOWN)
    require(headers.get("anthropic-version"), "anthropic-version: header is required")
    require(isinstance(request.get("max_tokens"), int), "max_tokens: Field required")
    messages = request.get("messages")
    require(messages, "messages: at least one message is required")
    assert messages is not None
    waiting: list[str] = []
    for n, message in enumerate(messages):
        require(
            message["role"] in ("user", "assistant"),
            f"messages.{n}.role: Input should be 'user' or 'assistant'",
        )
        content = _content_of(message)
        require(content, f"messages.{n}: all messages must have non-empty content")
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        missing = [call_id for call_id in waiting if call_id not in results]
        require(
            not missing,
            f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}",
        )
        require(
            set(results) <= set(waiting),
            f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks",
        )
        for m, block in enumerate(content):
            _check_block(block, f"messages.{n}.content.{m}", message["role"], issued)
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        require(message["role"] == "assistant" or not waiting, f"messages.{n}: `tool_use` in a user message")
    require(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    require(not waiting, "messages: `tool_use` ids were found without `tool_result` blocks")
    _check_tools(request)
    _check_thinking(request, headers)


def _content_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _check_block(block: Mapping[str, Any], where: str, role: str, issued: Issued) -> None:
    match block["type"]:
        case "text":
            require(block["text"].strip(), f"{where}: text content blocks must be non-empty")
        case "thinking" | "redacted_thinking":
            require(role == "assistant", f"{where}: thinking is only for assistant messages")
            known = issued.thinking.get(block.get("signature") or block.get("data", ""))
            require(known == dict(block), f"{where}: Invalid `signature` in `thinking` block")
        case "image" | "document":
            source = block["source"]
            require(source["type"] == "base64", f"{where}.source: only base64 is known here")
            kinds = ("application/pdf",) if block["type"] == "document" else IMAGES
            require(
                source["media_type"] in kinds, f"{where}.source.base64.media_type: Input should be in {kinds}"
            )
        case "tool_use" | "server_tool_use":
            require(isinstance(block["input"], dict), f"{where}.input: Input should be a valid dictionary")
        case "tool_result" | "web_search_tool_result" | "code_execution_tool_result":
            require("tool_use_id" in block, f"{where}.tool_use_id: Field required")
        case other:
            raise Refusal(
                f"{where}: Input tag '{other}' found using 'type' does not match any of the expected tags"
            )


def _check_tools(request: Mapping[str, Any]) -> None:
    names = []
    for n, tool in enumerate(request.get("tools") or []):
        names.append(tool["name"])
        if tool.get("type") in (None, "custom"):
            extra = tool.keys() - {"type", "name", "description", "input_schema", "cache_control"}
            require(not extra, f"tools.{n}.custom.{', '.join(extra)}: Extra inputs are not permitted")
            require(
                tool["input_schema"]["type"] == "object",
                f"tools.{n}.custom.input_schema.type: Input should be 'object'",
            )
    require(len(names) == len(set(names)), "tools: Tool names must be unique.")
    choice = request.get("tool_choice")
    if choice is None:
        return
    require(
        choice["type"] in ("auto", "any", "none", "tool"),
        f"tool_choice: Input tag '{choice['type']}' is unknown",
    )
    require(names, "tool_choice: may only be specified while providing `tools`")
    if choice["type"] == "tool":
        require(choice["name"] in names, f"Tool '{choice['name']}' not found in provided tools")


def _check_thinking(request: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    thinking = request.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    budget = thinking["budget_tokens"]
    require(budget >= 1024, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    interleaved = INTERLEAVED in headers.get("anthropic-beta", "")
    require(
        interleaved or request["max_tokens"] > budget,
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    )
    choice = (request.get("tool_choice") or {}).get("type", "auto")
    require(choice in ("auto", "none"), "Thinking may not be enabled when tool_choice forces tool use.")
    said = [message for message in request["messages"] if message["role"] == "assistant"]
    if said:
        content = _content_of(said[-1])
        calls = any(block["type"] == "tool_use" for block in content)
        require(
            not calls or content[0]["type"] in THINKING,
            f"Expected `thinking` or `redacted_thinking`, but found `{content[0]['type']}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block",
        )
