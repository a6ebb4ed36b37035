"""The Chat Completions API, by which litellm reaches all providers, Claude among them, and the SDK those like OpenAI.

Claude's replies are always streamed: the chunks preserve the order of thinking, text and calls, which litellm's single
message loses.
"""

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from mail.core.task.swarm import ToolChoice
from mail.factories.answer import AnswerReader
from mail.factories.caching import key_arguments, prefix_ends, takes_marks
from mail.factories.failures import CallFailed
from mail.factories.history import MARK, read_history, to_chat
from mail.factories.items import Entry, arguments_or_text
from mail.factories.models import Finish, ModelReply, ModelRequest, OnPiece
from mail.factories.providers import provider_of
from mail.factories.retry import Cause
from mail.factories.table import Tokens
from mail.factories.tools import forced_tool, is_function, make_tools, tool_choice_for

INTERLEAVED = "interleaved-thinking-2025-05-14"
"""Anthropic's beta that lets Claude think between tool calls, not only before the first one."""

ROOM_TO_ANSWER = 1024
"""Tokens reserved for the reply after thinking."""

_FINISH: dict[str | None, Finish] = {"length": "length", "content_filter": "filter"}


IsFinished = Callable[[Any, str | None], bool]
"""Returns whether a stream, with its finish reason, has come to its end."""


async def call_chat(
    response: Any, request: ModelRequest, on_piece: OnPiece, answer: AnswerReader, is_finished: IsFinished
) -> ModelReply:
    """Read the response to a call with `chat_arguments`, whole or streamed. Raises CallFailed."""
    is_priced = provider_of(request.llm) == "openrouter"
    reader = ChatReader(claude=request.traits.claude, answer=answer, is_priced=is_priced)
    if hasattr(response, "choices"):
        for choice in response.choices[:1]:  # some providers send none for an empty reply
            reader.take(choice.message, choice.finish_reason, on_piece)
        return reader.reply(getattr(response, "usage", None), response)
    usage = chunk = None
    try:
        async for chunk in response:
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices:
                reader.take(choice.delta, choice.finish_reason, on_piece)
    finally:
        await close_connection(response)
    if not is_finished(response, reader.finish):
        raise CallFailed(Cause.CONNECTION if reader.has_begun else Cause.NO_REPLY)
    return reader.reply(usage, chunk)


async def close_connection(held: Any) -> None:
    """Close a stream or a client: litellm's have `aclose`, some of them nothing, and those of the SDK `close`."""
    close = getattr(held, "aclose", None) or getattr(held, "close", None)
    closing = None if close is None else close()
    if isawaitable(closing):
        await closing


def chat_arguments(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the call."""
    streams = request.streams or request.traits.claude
    thinking, choice = thinking_of(request)
    thinks = bool(thinking) and not request.traits.adapts
    sections = read_history(request.history, request.notes)
    is_marked = takes_marks(request)
    marked = prefix_ends(sections) if is_marked else ()
    messages = to_chat(sections, claude=request.traits.claude, thinks=thinks, marked=marked)
    mark = MARK if is_marked else {}
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system, **mark})
    arguments: dict[str, Any] = {
        "messages": messages,
        "stream": streams,
        **thinking,
        **key_arguments(request),
    }
    if (limit := max_tokens_of(request, thinking)) is not None:
        arguments["max_tokens"] = limit
    if streams:
        arguments["stream_options"] = {"include_usage": True}
    if request.tools:
        arguments["tools"] = tools = make_tools(request.tools, "completions")
        if not request.system and is_function(tools[-1]):
            tools[-1] = {**tools[-1], **mark}
        arguments["tool_choice"] = tool_choice_for(choice, "completions")
    return arguments


def thinking_of(request: ModelRequest) -> tuple[dict[str, Any], ToolChoice]:
    """Return the arguments for reasoning, and the tool choice that is compatible with them.

    Claude models without adaptive thinking can't think while a tool is forced: if any tool is required, the choice
    becomes `auto`; if a certain one is, thinking is off.
    """
    effort, budget = request.reasoning_effort, request.thinking_budget
    if not request.traits.claude:
        return ({"reasoning_effort": effort} if effort else {}), request.tool_choice
    thinking: dict[str, Any] = {}
    if budget and not (effort and request.traits.adapts):
        thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    elif effort and effort != "none":
        thinking = {"reasoning_effort": effort}
    if not thinking or request.traits.adapts:
        return thinking, request.tool_choice
    if forced_tool(request.tool_choice) is not None:
        return {}, request.tool_choice
    thinking["extra_headers"] = {"anthropic-beta": INTERLEAVED}
    return thinking, "auto" if request.tool_choice == "required" else request.tool_choice


def max_tokens_of(request: ModelRequest, thinking: Mapping[str, Any]) -> int | None:
    """Return the limit of a reply's tokens, with room for the answer behind the thinking; None for the model's own."""
    if request.max_tokens is None:
        return None
    budget = thinking.get("thinking", {}).get("budget_tokens", 0)
    return max(request.max_tokens, budget + ROOM_TO_ANSWER if budget else 0)


class ChatReader:
    """A reader of a reply, from a message or from the deltas of a stream, which have the same fields."""

    def __init__(self, *, claude: bool, answer: AnswerReader, is_priced: bool) -> None:
        self._claude = claude
        self._answer = answer
        self._is_priced = is_priced
        self._blocks: list[Entry] = []
        self._calls: dict[int, Entry] = {}
        self.finish: str | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any part of the reply has come."""
        return bool(self._blocks or self._calls)

    def take(self, delta: Any, finish_reason: str | None, on_piece: OnPiece) -> None:
        """Add a message or a delta."""
        self.finish = finish_reason or self.finish
        if thinking := getattr(delta, "thinking_blocks", None):
            for block in thinking:
                self._think(block)
        elif reasoning := getattr(delta, "reasoning_content", None):
            self._think({"type": "thinking", "thinking": reasoning})
        if reasoning := getattr(delta, "reasoning_content", None):
            on_piece("reasoning", reasoning)
        if text := delta.content or _refusal(delta):
            self._extend("text", text)
            on_piece("text", text)
        for position, call in enumerate(delta.tool_calls or ()):
            self._call(getattr(call, "index", position), call)
        self._take_results(getattr(delta, "provider_specific_fields", None) or {})

    def reply(self, usage: Any, last: Any) -> ModelReply:
        """Return the complete reply; its `last` part names the model.

        Malformed arguments stay text, and are reported by the assembly.
        """
        finish = _FINISH.get(self.finish, "stop")
        if self._claude:
            content = [self._finished(block) for block in self._blocks]
            entries = [{"role": "assistant", "content": content}] if content else []
        else:
            entries = self._message()
        tokens = _tokens(usage, is_priced=self._is_priced)
        return ModelReply(entries, tokens, finish, model=getattr(last, "model", None) or "")

    def _think(self, block: Any) -> None:
        block = dict(block)
        if block["type"] == "redacted_thinking":
            self._blocks.append({"type": "redacted_thinking", "data": block["data"]})
            return
        self._extend("thinking", block.get("thinking") or "")
        if signature := block.get("signature"):  # the last delta of a block
            self._blocks[-1]["signature"] = signature

    def _extend(self, kind: str, text: str) -> None:
        last: Entry = self._blocks[-1] if self._blocks else {"type": None}
        if last["type"] != kind or "signature" in last:
            self._blocks.append({"type": kind, kind: text})
        else:
            last[kind] += text

    def _call(self, index: int, delta: Any) -> None:
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = {"type": "call", "id": "", "name": "", "arguments": ""}
            self._blocks.append(call)
        call["id"] = delta.id or call["id"]
        call["name"] = delta.function.name or call["name"]
        call["arguments"] += delta.function.arguments or ""
        self._answer.add(index, call["name"], delta.function.arguments or "")
        if fields := getattr(delta, "provider_specific_fields", None):  # such as Gemini's thought signatures
            call["provider_specific_fields"] = fields

    def _take_results(self, fields: dict[str, Any]) -> None:
        """Add the results of the provider's own tools; each chunk repeats the earlier results."""
        known = {block["tool_use_id"] for block in self._blocks if "tool_use_id" in block}
        for name in ("web_search_results", "tool_results"):
            self._blocks += [
                dict(block) for block in fields.get(name) or () if block["tool_use_id"] not in known
            ]

    def _finished(self, block: Entry) -> Entry:
        if block["type"] != "call":
            return block
        arguments = arguments_or_text(block["name"], block["arguments"])
        kind = "server_tool_use" if block["id"].startswith("srvtoolu_") else "tool_use"
        return {"type": kind, "id": block["id"], "name": block["name"], "input": arguments}

    def _message(self) -> list[Entry]:
        text = "".join(block["text"] for block in self._blocks if block["type"] == "text")
        reasoning = "".join(block["thinking"] for block in self._blocks if block["type"] == "thinking")
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
                **{key: call[key] for key in ("provider_specific_fields",) if key in call},
            }
            for call in self._calls.values()
        ]
        if not text and not calls:
            return []
        message: Entry = {"role": "assistant", "content": text or None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        return [message]


def _tokens(usage: Any, *, is_priced: bool) -> Tokens | None:
    """Convert the usage of Chat Completions, as litellm and the SDK have it.

    Only a provider's own price counts (`is_priced`): litellm puts one of its table into streams.
    """
    if usage is None:
        return None

    def detail(group: str, *names: str) -> int:
        details = getattr(usage, group, None)
        return next((found for name in names if (found := getattr(details, name, None))), 0)

    cost = getattr(usage, "cost", None) if is_priced else None
    return Tokens(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        cached=detail("prompt_tokens_details", "cached_tokens"),
        written=detail("prompt_tokens_details", "cache_creation_tokens", "cache_write_tokens"),
        reasoning=detail("completion_tokens_details", "reasoning_tokens"),
        cost=float(cost) if isinstance(cost, int | float) else None,
    )


def _refusal(delta: Any) -> str | None:
    fields = getattr(delta, "provider_specific_fields", None) or {}
    refusal: str | None = fields.get("refusal")
    return refusal
