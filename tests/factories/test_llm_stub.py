"""The stub says what the providers say: their own SDKs' types are the judge, and what they'd refuse it refuses."""

import json
from pkgutil import resolve_name
from typing import Any

import httpx2
import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from pydantic import TypeAdapter
from support.services.llm_stub import (
    LLMStub,
    Reply,
    Tokens,
    call,
    code,
    converse,
    rate_limited,
    redacted,
    reply,
    search,
    text,
    thinking,
)
from support.services.llm_stub.wire import Issued

pytestmark = pytest.mark.fast

EVERYTHING = reply(
    thinking("Let me see.\n\nWell."),
    redacted(),
    text("I look it up."),
    search("weather in Oslo"),
    code("1 + 1", "2"),
    call("send_request", target="weather", subject="Oslo", body="?"),
    call("await_message"),
    tokens=Tokens(100, 50, 20, 30),
)

CHAT = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "gpt-5-mini", "input": "hi", "include": ["reasoning.encrypted_content"]}
MESSAGES = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}

WIRES = [
    (
        "/v1/chat/completions",
        CHAT,
        "openai.types.chat.ChatCompletion",
        "openai.types.chat.ChatCompletionChunk",
    ),
    (
        "/v1/responses",
        RESPONSES,
        "openai.types.responses.Response",
        "openai.types.responses.ResponseStreamEvent",
    ),
    ("/v1/messages", MESSAGES, "anthropic.types.Message", "anthropic.types.RawMessageStreamEvent"),
]
"""Paths, requests, and the names of the SDKs' types of whole replies and of events, which take long to import."""

HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "key"}


def post(stub: LLMStub, path: str, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.post(f"{stub.url}{path}", json=body, headers=HEADERS)


def frames(response: httpx2.Response) -> list[tuple[str | None, str]]:
    found = []
    for frame in response.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        found.append((fields.get("event"), fields["data"]))
    return found


@pytest.mark.parametrize(("path", "body", "whole", "_event"), WIRES)
def test_whole_replies_are_of_the_documented_shape(
    stub: LLMStub, path: str, body: dict[str, Any], whole: str, _event: str
) -> None:
    stub.script(EVERYTHING)
    document = post(stub, path, body).json()
    TypeAdapter(resolve_name(whole)).validate_python(document, strict=True)


@pytest.mark.parametrize(("path", "body", "_whole", "event"), WIRES)
@pytest.mark.parametrize(
    "said", [EVERYTHING, EVERYTHING.but(is_truncated=True)], ids=["complete", "truncated"]
)
def test_every_event_of_a_stream_is_of_the_documented_shape(
    stub: LLMStub, path: str, body: dict[str, Any], _whole: str, event: str, said: Reply
) -> None:
    stub.script(said)
    adapter: TypeAdapter[Any] = TypeAdapter(resolve_name(event))
    for name, data in frames(post(stub, path, {**body, "stream": True})):
        if data == "[DONE]" or name == "ping":  # documented, but the SDKs skip them
            continue
        document = json.loads(data)
        adapter.validate_json(data)
        assert name == document.get("type")


SAID = (EVERYTHING, EVERYTHING.but(is_truncated=True))


def test_replies_of_bedrock_are_of_the_documented_shape(stub: LLMStub) -> None:
    """botocore's description of the service is the judge."""
    for said in SAID:
        document = {**converse.body(said, {}, Issued())}
        shape = converse.service().operation_model("Converse").output_shape
        assert not ParamValidator().validate(document, shape).has_errors()
        events, kinds = EventStreamBuffer(), converse.service().shape_for("ConverseStreamOutput").members
        events.add_data(b"".join(converse.events(said, {}, Issued())))
        for event in events:
            kind = event.headers[":event-type"]
            assert not ParamValidator().validate(json.loads(event.payload), kinds[kind]).has_errors()


def test_streamed_and_whole_replies_say_the_same(stub: LLMStub) -> None:
    """Anthropic's deltas put together are the message's content."""
    stub.script(reply(thinking("hm"), text("Hello"), call("help", get_identity=True)))
    blocks: list[dict[str, Any]] = []
    for _, data in frames(post(stub, "/v1/messages", {**MESSAGES, "stream": True})):
        event = json.loads(data)
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            kind = {"input_json_delta": "json", "signature_delta": "signature"}.get(
                delta["type"], delta["type"].removesuffix("_delta")
            )
            blocks[-1][kind] += delta.get("partial_json", delta.get(kind))
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[0]["thinking"] == "hm"
    assert blocks[0]["signature"]
    assert blocks[1]["text"] == "Hello"
    assert json.loads(blocks[2]["json"]) == {"get_identity": True}


def test_rate_limits_carry_the_header(stub: LLMStub) -> None:
    stub.script(rate_limited(7))
    response = post(stub, "/v1/messages", MESSAGES)
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}

REFUSED = [
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "tool_call_id"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "tool", "tool_call_id": "c1", "content": ""}]},
        "preceeding",
    ),
    ("/v1/chat/completions", {"messages": []}, "too short"),
    ("/v1/chat/completions", {**CHAT, "tool_choice": "required"}, "only allowed"),
    ("/v1/chat/completions", {**CHAT, "temprature": 1}, "Unrecognized request argument"),
    ("/v1/responses", {"input": [ITEM]}, "No tool output found"),
    ("/v1/responses", {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "not found"),
    ("/v1/responses", {"input": [{**ITEM, "status": None}]}, "got null"),
    (
        "/v1/messages",
        {"messages": [*MESSAGES["messages"], {"role": "assistant", "content": [USE]}]},  # type: ignore[misc]
        "tool_result",
    ),
    ("/v1/messages", {"messages": [{"role": "assistant", "content": "hi"}]}, "first message"),
    (
        "/v1/messages",
        {**MESSAGES, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        "max_tokens",
    ),
]


@pytest.mark.parametrize(("path", "wrong", "why"), REFUSED)
def test_it_refuses_what_providers_refuse(stub: LLMStub, path: str, wrong: dict[str, Any], why: str) -> None:
    limit = {} if path.endswith("responses") else {"max_tokens": 10}
    response = post(stub, path, {"model": "m", **limit, **wrong})
    assert response.status_code == 400
    assert why in response.json()["error"]["message"]
    assert len(stub.complaints) == 1
    stub.complaints.clear()


def test_thinking_must_come_back_as_it_was(stub: LLMStub) -> None:
    stub.script(reply(thinking("hm"), text("Hello")))
    content = post(stub, "/v1/messages", MESSAGES).json()["content"]
    content[0]["thinking"] = "something else"
    said = [{"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]
    response = post(stub, "/v1/messages", {**MESSAGES, "messages": [*MESSAGES["messages"], *said]})  # type: ignore[misc]
    assert "Invalid `signature`" in response.json()["error"]["message"]
    stub.complaints.clear()
