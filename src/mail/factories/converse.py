"""Amazon Bedrock's Converse: requests from histories, and replies, whole or streamed.

Replies are stored as blocks, as those of Claude at any provider.
"""

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from mail.core.task.swarm import ToolChoice
from mail.factories.answer import AnswerReader
from mail.factories.caching import prefix_ends
from mail.factories.chat import max_tokens_of, thinking_of
from mail.factories.failures import CallFailed
from mail.factories.files import converse_blocks
from mail.factories.history import (
    Note,
    Received,
    Reply,
    Result,
    Section,
    in_words,
    read_history,
    without_unthought,
)
from mail.factories.items import Entry, Text, ToolCall, arguments_or_text, has_blocks, is_signed
from mail.factories.models import Finish, ModelReply, ModelRequest, OnPiece
from mail.factories.retry import Cause
from mail.factories.table import Tokens
from mail.factories.tools import forced_tool, is_function, make_tools

BUDGETS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 4096,
    "xhigh": 8192,
    "max": 16384,
}
"""Tokens for the thinking of Claude models without adaptive thinking, by effort, as litellm has them."""

CHOOSY = ("claude", "amazon.nova", "mistral")
"""Parts of the names of models that can be made to call a tool; the others refuse a choice."""

OF_BODY = ("guardrailConfig", "performanceConfig", "requestMetadata")
"""Options that stand in the body by their own names."""

CACHE_POINT: Mapping[str, Any] = {"cachePoint": {"type": "default"}}
"""Stands where a prefix for the cache ends."""

_FINISH: dict[str | None, Finish] = {
    "max_tokens": "length",
    "content_filtered": "filter",
    "guardrail_intervened": "filter",
}
_BROKEN = {
    "model_context_window_exceeded": Cause.CONTEXT,
    "malformed_model_output": Cause.MALFORMED,
    "malformed_tool_use": Cause.MALFORMED,
}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
EMPTY = "(empty)"
"""In place of a blank text, which Bedrock refuses."""


def converse_body(request: ModelRequest) -> dict[str, Any]:
    """Return the body of the request."""
    thinking, choice = thinking_of(request)
    has_tools = bool(request.tools) and choice != "none"
    sections: Sequence[Section] = read_history(request.history, request.notes)
    is_cached = request.cache_key is not None and request.traits.claude
    marked = prefix_ends(sections) if is_cached else frozenset[int]()
    if not has_tools:  # Bedrock refuses calls in a history without tools
        sections = in_words(sections)
    elif request.traits.claude and thinking and not request.traits.adapts:
        sections = without_unthought(sections)
    system, messages = _messages(sections, marked, claude=request.traits.claude)
    body: dict[str, Any] = {"messages": messages}
    if texts := [text for text in (request.system, *system) if text.strip()]:
        body["system"] = [*({"text": text} for text in texts), *([CACHE_POINT] if is_cached else ())]
    if has_tools:
        body["toolConfig"] = _tools(request, choice)
        if is_cached and not texts:
            body["toolConfig"]["tools"].append(CACHE_POINT)
    if inference := _inference(request, thinking):
        body["inferenceConfig"] = inference
    if fields := _fields(request, thinking):
        body["additionalModelRequestFields"] = fields
    options = request.options
    body |= {name: options[name] for name in OF_BODY if name in options}
    if tier := options.get("service_tier"):
        body["serviceTier"] = {"type": tier}
    return {**body, **(options.get("extra_body") or {})}


def _inference(request: ModelRequest, thinking: Mapping[str, Any]) -> dict[str, Any]:
    options = request.options
    stop = options.get("stop")
    values = {
        "maxTokens": max_tokens_of(request, _thinking_fields(request, thinking)),
        "temperature": options.get("temperature"),
        "topP": options.get("top_p"),
        "stopSequences": [stop] if isinstance(stop, str) else stop,
    }
    return {name: value for name, value in values.items() if value is not None}


def _fields(request: ModelRequest, thinking: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that only some models have."""
    fields = _thinking_fields(request, thinking)
    if beta := (thinking.get("extra_headers") or {}).get("anthropic-beta"):
        fields["anthropic_beta"] = [beta]
    return fields | {name: request.options[name] for name in ("top_k", "thinking") if name in request.options}


def _thinking_fields(request: ModelRequest, thinking: Mapping[str, Any]) -> dict[str, Any]:
    effort = thinking.get("reasoning_effort")
    if "thinking" in thinking:
        return {"thinking": thinking["thinking"]}
    if not effort:
        return {}
    if request.traits.claude and request.traits.adapts:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    if request.traits.claude:
        return {"thinking": {"type": "enabled", "budget_tokens": BUDGETS.get(effort, BUDGETS["high"])}}
    if "gpt-oss" in request.llm:
        return {"reasoning_effort": effort}
    if "nova-2" in request.llm:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
    return {}


def _tools(request: ModelRequest, choice: ToolChoice) -> dict[str, Any]:
    offered = [tool for tool in request.tools if is_function(tool)]
    functions = [tool["function"] for tool in make_tools(offered, "completions")]
    tools = [
        {
            "toolSpec": {
                "name": function["name"],
                "description": function.get("description") or function["name"],
                "inputSchema": {"json": function["parameters"]},
            }
        }
        for function in functions
    ]
    config: dict[str, Any] = {"tools": tools}
    name = forced_tool(choice)
    if any(part in request.llm for part in CHOOSY):
        if name is not None:
            config["toolChoice"] = {"tool": {"name": name}}
        elif choice == "required":
            config["toolChoice"] = {"any": {}}
    return config


# ---------------------------------------------------------------------------------------------- histories


def _messages(
    sections: Sequence[Section], marked: Container[int], *, claude: bool
) -> tuple[list[str], list[Entry]]:
    """Return the texts of system messages, and the messages: users and assistants alternate, and a user begins.

    Behind each `marked` section ends a prefix for the cache.

    Only Claude gets its thinking back; other models would refuse its signatures.
    """
    system: list[str] = []
    messages: list[Entry] = []
    for index, section in enumerate(sections):
        role, content = "user", list[Entry]()
        match section:
            case Note(text):
                content = [{"text": text}]
            case Received(entry):
                text = _text_of(entry.get("content"))
                if entry.get("role") in ("system", "developer"):
                    system.append(text)
                else:
                    content = [{"text": text if text.strip() else EMPTY}, *converse_blocks(entry)]
            case Result(call_id, output):
                text = output if output.strip() else EMPTY
                content = [{"toolResult": {"toolUseId": _id(call_id), "content": [{"text": text}]}}]
            case Reply():
                role, content = "assistant", list(_blocks_of(section, claude))
        if content and messages and messages[-1]["role"] == role:
            messages[-1]["content"] += content
        elif content:
            messages.append({"role": role, "content": content})
        if messages and index in marked:
            messages[-1]["content"].append(CACHE_POINT)
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [{"text": EMPTY}]})
    return system, messages


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content)
    return content or ""


def _blocks_of(reply: Reply, claude: bool) -> Iterator[Entry]:
    entry = reply.entries[0]
    if has_blocks(entry):
        for block in entry["content"]:
            if claude or block["type"] not in ("thinking", "redacted_thinking"):
                yield from _block(block)
        return
    for item in reply.items:
        match item:
            case Text(text) if text.strip():
                yield {"text": text}
            case ToolCall(call_id, name, arguments):
                yield _tool_use(call_id, name, json.loads(arguments or "{}"))


def _block(block: Entry) -> Iterator[Entry]:
    match block["type"]:
        case "text" if block["text"].strip():
            yield {"text": block["text"]}
        case "tool_use":
            arguments = block["input"]
            yield _tool_use(block["id"], block["name"], arguments if isinstance(arguments, dict) else {})
        case "thinking" if is_signed(block):
            yield {
                "reasoningContent": {
                    "reasoningText": {"text": block["thinking"], "signature": block["signature"]}
                }
            }
        case "redacted_thinking":
            yield {"reasoningContent": {"redactedContent": block["data"]}}


def _tool_use(call_id: str, name: str, arguments: dict[str, Any]) -> Entry:
    return {"toolUse": {"toolUseId": _id(call_id), "name": name, "input": arguments}}


def _id(call_id: str) -> str:
    """Return the id of a call as Bedrock takes it; those of some providers are too long."""
    return call_id if _ID.fullmatch(call_id) else f"call_{sha256(call_id.encode()).hexdigest()[:32]}"


# ------------------------------------------------------------------------------------------------ replies


class ConverseReader:
    """A reader of a reply, whole or from the events of a stream."""

    def __init__(self, on_piece: OnPiece, answer: AnswerReader) -> None:
        self._on_piece = on_piece
        self._answer = answer
        self._blocks: dict[int, Entry] = {}
        self._stop: str | None = None
        self._usage: Mapping[str, Any] | None = None

    def take_whole(self, data: Mapping[str, Any]) -> None:
        """Read a whole reply. Raises CallFailed for a call at the limit of tokens, which may be cut without a sign."""
        content = data["output"]["message"]["content"]
        if data["stopReason"] == "max_tokens" and content and "toolUse" in content[-1]:
            raise CallFailed(Cause.TRUNCATED)
        for index, block in enumerate(content):
            if use := block.get("toolUse"):
                self._start(index, use)
                self._add(index, {"toolUse": {"input": json.dumps(use["input"])}})
            elif reasoning := block.get("reasoningContent"):
                self._add(index, {"reasoningContent": reasoning.get("reasoningText") or reasoning})
            else:
                self._add(index, block)
        self._stop, self._usage = data["stopReason"], data.get("usage")

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """Read an event of a stream."""
        match kind:
            case "contentBlockStart" if use := data["start"].get("toolUse"):
                self._start(data["contentBlockIndex"], use)
            case "contentBlockDelta":
                self._add(data["contentBlockIndex"], data["delta"])
            case "messageStop":
                self._stop = data["stopReason"]
            case "metadata":
                self._usage = data.get("usage")

    def reply(self) -> ModelReply:
        """Return the complete reply. Raises CallFailed."""
        if self._stop is None:
            raise CallFailed(Cause.CONNECTION if self._blocks else Cause.NO_REPLY)
        if self._stop in _BROKEN:
            raise CallFailed(_BROKEN[self._stop])
        content = [
            {**block, "input": arguments_or_text(block["name"], block["input"])}
            if "input" in block
            else block
            for _, block in sorted(self._blocks.items())
        ]
        entries: list[Entry] = [{"role": "assistant", "content": content}] if content else []
        return ModelReply(entries, _tokens(self._usage), _FINISH.get(self._stop, "stop"))

    def _start(self, index: int, use: Mapping[str, Any]) -> None:
        self._blocks[index] = {"type": "tool_use", "id": use["toolUseId"], "name": use["name"], "input": ""}

    def _add(self, index: int, delta: Mapping[str, Any]) -> None:
        match delta:
            case {"text": text}:
                self._extend(index, "text", text)
                self._on_piece("text", text)
            case {"toolUse": {"input": piece}}:
                block = self._blocks[index]
                block["input"] += piece
                self._answer.add(index, block["name"], piece)
            case {"reasoningContent": {"redactedContent": data}}:
                self._blocks[index] = {"type": "redacted_thinking", "data": data}
            case {"reasoningContent": reasoning}:
                if text := reasoning.get("text"):
                    self._on_piece("reasoning", text)
                self._extend(index, "thinking", text or "")
                if signature := reasoning.get("signature"):
                    self._blocks[index]["signature"] = signature

    def _extend(self, index: int, kind: str, text: str) -> None:
        self._blocks.setdefault(index, {"type": kind, kind: ""})[kind] += text


def _tokens(usage: Mapping[str, Any] | None) -> Tokens | None:
    """Convert the usage, in which the tokens of the cache are no part of the input."""
    if usage is None:
        return None
    cached, written = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
    return Tokens(usage["inputTokens"] + cached + written, usage["outputTokens"], cached, written)
