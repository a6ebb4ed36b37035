"""Amazon Bedrock's Converse (docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html).

botocore's description of the service judges the requests, and its signatures.
"""

import json
import re
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from support.services.llm_stub.script import Call, Failure, Part, Redacted, Reply, Text, Thinking
from support.services.llm_stub.wire import Issued, arguments_of, has_calls, pieces, require

IDENTITY = Credentials("AKIDEXAMPLE", "secret")
REGION = "eu-central-1"

CODES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def body(reply: Reply, _request: Mapping[str, Any], issued: Issued) -> dict[str, Any]:
    content = [
        _block(part, issued) for part in reply.parts if isinstance(part, Text | Thinking | Redacted | Call)
    ]
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": _stop_reason(reply),
        "usage": _usage(reply),
        "metrics": {"latencyMs": 7},
    }


def events(reply: Reply, _request: Mapping[str, Any], issued: Issued) -> Iterator[bytes]:
    yield _event("messageStart", {"role": "assistant"})
    parts = [part for part in reply.parts if isinstance(part, Text | Thinking | Redacted | Call)]
    for index, part in enumerate(parts):
        block = _block(part, issued)
        if "toolUse" in block:
            use = {name: block["toolUse"][name] for name in ("toolUseId", "name")}
            yield _event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": use}})
        for delta in _deltas(part, block):
            yield _event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
        yield _event("contentBlockStop", {"contentBlockIndex": index})
    yield _event("messageStop", {"stopReason": _stop_reason(reply)})
    yield _event("metadata", {"usage": _usage(reply), "metrics": {"latencyMs": 7}})


def error(failure: Failure) -> dict[str, Any]:
    return {"message": failure.message}


def error_headers(failure: Failure) -> dict[str, str]:
    code = CODES.get(failure.status, "InternalServerException")
    return {"x-amzn-errortype": f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/"}


def error_event() -> bytes:
    return _message(
        {":message-type": "exception", ":exception-type": "modelStreamErrorException"}, {"message": "broken"}
    )


def _block(part: Part, issued: Issued) -> dict[str, Any]:
    match part:
        case Thinking(text):
            block = {"reasoningText": {"text": text, "signature": issued.id("ErUBCkYIARAB")}}
            issued.thinking[block["reasoningText"]["signature"]] = block
            return {"reasoningContent": block}
        case Redacted(data):
            hidden = {"redactedContent": issued.id(data)}
            issued.thinking[hidden["redactedContent"]] = hidden
            return {"reasoningContent": hidden}
        case Text(text):
            return {"text": text}
        case Call():
            try:
                arguments = json.loads(arguments_of(part))
            except ValueError:  # only in a stream can what the model wrote be no JSON
                arguments = {}
            return {"toolUse": {"toolUseId": issued.id("tooluse_"), "name": part.name, "input": arguments}}
    raise AssertionError(part)


def _deltas(part: Part, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match part:
        case Thinking(text):
            for piece in pieces(text):
                yield {"reasoningContent": {"text": piece}}
            yield {"reasoningContent": {"signature": block["reasoningContent"]["reasoningText"]["signature"]}}
        case Redacted():
            yield block
        case Text(text):
            for piece in pieces(text):
                yield {"text": piece}
        case Call():
            for piece in pieces(arguments_of(part)):
                yield {"toolUse": {"input": piece}}


def _stop_reason(reply: Reply) -> str:
    if reply.is_truncated:
        return "max_tokens"
    return "tool_use" if has_calls(reply) else "end_turn"


def _usage(reply: Reply) -> dict[str, Any]:
    tokens = reply.tokens
    return {
        "inputTokens": tokens.input - tokens.cached - tokens.written,
        "outputTokens": tokens.output,
        "totalTokens": tokens.input + tokens.output,
        "cacheReadInputTokens": tokens.cached,
        "cacheWriteInputTokens": tokens.written,
    }


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return _message(
        {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}, data
    )


def _message(headers: Mapping[str, str], data: dict[str, Any]) -> bytes:
    """A message of an event stream (docs.aws.amazon.com/transcribe/latest/dg/event-stream.html)."""
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    payload = json.dumps(data).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack("!I", crc32(prelude))
    message = prelude + head + payload
    return message + struct.pack("!I", crc32(message))


# --------------------------------------------------------------------------------------- what is refused


@cache
def service() -> Any:
    """The description of the service."""
    return ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"))


def check_signature(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Refuse a request whose signature covers something else."""
    given = headers.get("authorization", "")
    require(given.startswith(("AWS4-HMAC-SHA256 ", "Bearer ")), "Missing Authentication Token")
    if given.startswith("Bearer "):
        return
    names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest(
        method, url, data=body, headers={name: headers[name] for name in names if name != "host"}
    )
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(IDENTITY, "bedrock", REGION)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    require(f"Credential={IDENTITY.access_key}/" in given, "The security token is invalid.")
    require(given.endswith(f"Signature={signature}"), "The request signature we calculated does not match")


def check(request: Mapping[str, Any], _headers: Mapping[str, str], issued: Issued) -> None:
    sent = {name: value for name, value in request.items() if name not in ("model", "stream")}
    shape = service().operation_model("Converse").input_shape
    report = ParamValidator().validate({"modelId": request["model"], **sent}, shape)
    require(not report.has_errors(), report.generate_report())
    messages = sent["messages"]
    require(messages and messages[0]["role"] == "user", "A conversation must start with a user message.")
    waiting: list[str] = []
    for n, message in enumerate(messages):
        require(
            n == 0 or messages[n - 1]["role"] != message["role"],
            "A conversation must alternate between user and assistant roles.",
        )
        results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        require(
            sorted(results) == sorted(waiting),
            f"messages.{n}: Expected toolResult blocks for the following Ids: {waiting}",
        )
        for block in message["content"]:
            _check_block(block, message["role"], issued)
        waiting = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
    require(not waiting, "messages: toolUse without toolResult")
    _check_tools(sent)


def _check_block(block: Mapping[str, Any], role: str, issued: Issued) -> None:
    if "text" in block:
        require(block["text"].strip(), "The text field in the ContentBlock object is blank.")
    if "image" in block:
        require(block["image"]["format"] in ("png", "jpeg", "gif", "webp"), "image.format is unknown")
    if "document" in block:
        name = block["document"]["name"]
        require(re.fullmatch(r"[A-Za-z0-9 ()\[\]-]+", name), f"document.name {name!r} has other characters")
    if "reasoningContent" in block:
        require(role == "assistant", "reasoningContent is only for assistant messages")
        content = block["reasoningContent"]
        known = issued.thinking.get(
            content.get("redactedContent") or content["reasoningText"]["signature"], {}
        )
        if "signature" in known:  # Anthropic's own
            known = {"reasoningText": {"text": known["thinking"], "signature": known["signature"]}}
        require(known == content, "Invalid `signature` in `thinking` block")


def _check_tools(sent: Mapping[str, Any]) -> None:
    has_blocks = any(
        "toolUse" in block or "toolResult" in block
        for message in sent["messages"]
        for block in message["content"]
    )
    config = sent.get("toolConfig")
    require(
        config or not has_blocks, "The toolConfig field must be defined when using toolUse and toolResult"
    )
    if config is None:
        return
    names = [tool["toolSpec"]["name"] for tool in config["tools"]]
    require(len(names) == len(set(names)), "tools: Tool names must be unique.")
    choice = config.get("toolChoice", {})
    require("tool" not in choice or choice["tool"]["name"] in names, "toolChoice: unknown tool")
    thinking = (sent.get("additionalModelRequestFields") or {}).get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    require(
        not {"any", "tool"} & choice.keys(), "Thinking may not be enabled when tool_choice forces tool use."
    )
    limit = (sent.get("inferenceConfig") or {}).get("maxTokens", 64_000)
    require(limit > thinking["budget_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`")
    said = [message["content"] for message in sent["messages"] if message["role"] == "assistant"]
    if said and any("toolUse" in block for block in said[-1]):
        require(
            "reasoningContent" in said[-1][0],
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
        )
    return
