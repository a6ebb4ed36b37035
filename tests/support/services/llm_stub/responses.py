"""OpenAI's Responses (platform.openai.com/docs/api-reference/responses), used without server-side state."""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from support.services.llm_stub.script import Call, Code, Part, Redacted, Reply, Search, Text, Thinking
from support.services.llm_stub.wire import Issued, Refusal, arguments_of, pieces, require, require_known, sse
from support.services.llm_stub.wire import openai_error as error  # noqa: F401

KNOWN = (
    "model input instructions include tools tool_choice stream store reasoning max_output_tokens temperature top_p "
    "parallel_tool_calls text user service_tier metadata truncation prompt_cache_key"
)


def body(reply: Reply, request: Mapping[str, Any], issued: Issued) -> dict[str, Any]:
    return _response(reply, request, issued, _items(reply, request, issued))


def events(reply: Reply, request: Mapping[str, Any], issued: Issued) -> Iterator[bytes]:
    sequence = count()
    items = _items(reply, request, issued)
    empty = {**_response(reply, request, issued, []), "status": "in_progress", "usage": None}

    def event(kind: str, **data: Any) -> bytes:
        return sse({"type": kind, "sequence_number": next(sequence), **data}, kind)

    yield event("response.created", response=empty)
    yield event("response.in_progress", response=empty)
    for index, item in enumerate(items):
        start = {**item, **_UNFINISHED[item["type"]]}
        yield event("response.output_item.added", output_index=index, item=start)
        for kind, data in _deltas(item):
            yield event(kind, item_id=item["id"], output_index=index, **data)
        yield event("response.output_item.done", output_index=index, item=item)
    if reply.leaves_out_reasoning:
        items = [item for item in items if item["type"] != "reasoning"]
    end = "response.incomplete" if reply.is_truncated else "response.completed"
    yield event(end, response={**_response(reply, request, issued, items), "id": empty["id"]})


_UNFINISHED: dict[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
    "web_search_call": {"status": "in_progress"},
    "code_interpreter_call": {"status": "in_progress", "code": "", "outputs": None},
}
"""What an item lacks when its stream begins."""


def _deltas(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    match item["type"]:
        case "reasoning":
            for n, part in enumerate(item["summary"]):
                place = {"summary_index": n}
                kind = "response.reasoning_summary_part"
                yield f"{kind}.added", {**place, "part": {"type": "summary_text", "text": ""}}
                for piece in pieces(part["text"]):
                    yield (
                        "response.reasoning_summary_text.delta",
                        {**place, "delta": piece, "obfuscation": "x"},
                    )
                yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
                yield f"{kind}.done", {**place, "part": part}
        case "message":
            part = item["content"][0]
            place = {"content_index": 0}
            yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**place, "part": part}
        case "function_call":
            for piece in pieces(item["arguments"]):
                yield "response.function_call_arguments.delta", {"delta": piece}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", done
        case "web_search_call":
            for state in ("in_progress", "searching", "completed"):
                yield f"response.web_search_call.{state}", {}
        case "code_interpreter_call":
            yield "response.code_interpreter_call.in_progress", {}
            yield "response.code_interpreter_call_code.delta", {"delta": item["code"]}
            yield "response.code_interpreter_call_code.done", {"code": item["code"]}
            yield "response.code_interpreter_call.completed", {}


def _items(reply: Reply, request: Mapping[str, Any], issued: Issued) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    reasoning: str | None = None
    for part in reply.parts:
        item = _item(part, issued)
        if item["type"] == "reasoning":
            reasoning = item["id"]
            if "reasoning.encrypted_content" not in (request.get("include") or []):
                item["encrypted_content"] = None
            else:
                issued.reasoning[item["encrypted_content"]] = item
        elif reasoning is not None:
            issued.requires[item["id"]] = reasoning
        items.append(item)
    return items


def _item(part: Part, issued: Issued) -> dict[str, Any]:
    match part:
        case Thinking(text):
            summary = [{"type": "summary_text", "text": each} for each in text.split("\n\n")]
            encrypted = f"gAAAAA{issued.id('enc')}"
            return {
                "id": issued.id("rs_"),
                "type": "reasoning",
                "summary": summary,
                "encrypted_content": encrypted,
            }
        case Redacted(data):
            encrypted = f"gAAAAA{issued.id(data)}"
            return {
                "id": issued.id("rs_"),
                "type": "reasoning",
                "summary": [],
                "encrypted_content": encrypted,
            }
        case Text(text):
            content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
            head = {"id": issued.id("msg_"), "type": "message", "role": "assistant"}
            return {**head, "status": "completed", "content": content}
        case Call():
            return {
                "id": issued.id("fc_"),
                "type": "function_call",
                "call_id": issued.id("call_"),
                "name": part.name,
                "arguments": arguments_of(part),
                "status": "completed",
            }
        case Search(query):
            action = {"type": "search", "query": query, "queries": [query]}
            return {
                "id": issued.id("ws_"),
                "type": "web_search_call",
                "status": "completed",
                "action": action,
            }
        case Code(code, output):
            return {
                "id": issued.id("ci_"),
                "type": "code_interpreter_call",
                "status": "completed",
                "code": code,
                "container_id": "cntr_1",
                "outputs": [{"type": "logs", "logs": output}],
            }


def _response(
    reply: Reply, request: Mapping[str, Any], issued: Issued, items: list[dict[str, Any]]
) -> dict[str, Any]:
    tokens = reply.tokens
    return {
        "id": issued.id("resp_"),
        "object": "response",
        "created_at": 1_767_225_600,
        "status": "incomplete" if reply.is_truncated else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_truncated else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "model": request["model"],
        "output": items,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
        "store": request.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        },
        "metadata": {},
    }


def error_event() -> bytes:
    data = {"type": "error", "code": "server_error", "message": "The server had an error", "param": None}
    return sse({**data, "sequence_number": 99}, "error")


# --------------------------------------------------------------------------------------- what is refused


def check(request: Mapping[str, Any], _headers: Mapping[str, str], issued: Issued) -> None:
    require_known(request, KNOWN)
    items = request.get("input")
    require(items, "Missing required parameter: 'input'.")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    assert items is not None
    made: set[str] = set()
    given: set[str] = set()
    reasoning: set[str] = set()
    for n, item in enumerate(items):
        where = f"input[{n}]"
        require(None not in item.values(), f"Invalid type for '{where}': got null instead")
        kind = item.get("type", "message")
        if (needed := issued.requires.get(item.get("id", ""))) and needed not in reasoning:
            raise Refusal(
                f"Item '{item['id']}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'."
            )
        match kind:
            case "message":
                _check_message(item, where)
            case "reasoning":
                _check_reasoning(item, items[n + 1 :], issued)
                reasoning.add(item.get("id", ""))
            case "function_call":
                made.add(item["call_id"])
                require(isinstance(item["arguments"], str), f"Invalid type for '{where}.arguments'")
            case "function_call_output":
                require(
                    item["call_id"] in made,
                    f"No tool call found for function call output with call_id {item['call_id']}.",
                )
                given.add(item["call_id"])
            case "web_search_call" | "code_interpreter_call":
                require("id" in item, f"Missing required parameter: '{where}.id'.")
            case _:
                raise Refusal(f"Invalid value: '{kind}'. '{where}.type'")
    for call_id in made - given:
        raise Refusal(f"No tool output found for function call {call_id}.")
    _check_tools(request)


def _check_message(item: Mapping[str, Any], where: str) -> None:
    require(
        item.get("role") in ("user", "assistant", "system", "developer"), f"Invalid value: '{where}.role'"
    )
    content = item.get("content")
    require(isinstance(content, str | list), f"Invalid type for '{where}.content'")
    if isinstance(content, list):
        given = ("input_text", "input_image", "input_file")
        kinds = ("output_text", "refusal") if item["role"] == "assistant" else given
        for part in content:
            require(part.get("type") in kinds, f"Invalid value: '{part.get('type')}'. '{where}.content'")


def _check_reasoning(item: Mapping[str, Any], following: list[dict[str, Any]], issued: Issued) -> None:
    encrypted = item.get("encrypted_content")
    require(
        encrypted,
        f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false.",
    )
    ours = issued.reasoning.get(str(encrypted))
    require(ours, "The encrypted content could not be verified.")
    require(
        json.dumps(item, sort_keys=True) == json.dumps(ours, sort_keys=True), "reasoning item was changed"
    )
    require(
        following and following[0].get("type") not in ("function_call_output", None),
        f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
    )


def _check_tools(request: Mapping[str, Any]) -> None:
    names = []
    for tool in request.get("tools") or []:
        if tool.get("type") == "function":
            require("function" not in tool, "Missing required parameter: 'tools[0].name'.")
            require(tool["parameters"]["type"] == "object", "schema must be of 'type: \"object\"'")
            names.append(tool["name"])
    require(len(names) == len(set(names)), "tools: names must be unique")
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        require(choice.get("name") in names, "Tool choice 'function' not found in 'tools' parameter.")
    else:
        require(choice in (None, "auto", "none", "required"), f"Invalid value: {choice!r} for tool_choice")
