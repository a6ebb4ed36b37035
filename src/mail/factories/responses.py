"""OpenAI's Responses API, without its server-side state: every request contains the whole history."""

from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from mail.factories.answer import AnswerReader
from mail.factories.caching import key_arguments
from mail.factories.chat import close_connection
from mail.factories.failures import CODES, CallFailed
from mail.factories.history import read_history, to_responses
from mail.factories.items import Entry
from mail.factories.models import Finish, ModelReply, ModelRequest, OnPiece
from mail.factories.retry import Cause
from mail.factories.table import Tokens
from mail.factories.tools import tool_choice_for

_FINISH: dict[str | None, Finish] = {"max_output_tokens": "length", "content_filter": "filter"}


async def call_responses(response: Any, on_piece: OnPiece, answer: AnswerReader) -> ModelReply:
    """Read the response to a call with `responses_arguments`, whole or streamed. Raises CallFailed."""
    reader = ResponsesReader(answer)
    if not hasattr(response, "__aiter__"):
        return reader.reply(response)
    final = None
    try:
        async for event in response:
            final = reader.take(event, on_piece) or final
    finally:
        await close_connection(response)
    if final is None:
        raise CallFailed(Cause.CONNECTION)
    return reader.reply(final)


def responses_arguments(request: ModelRequest) -> dict[str, Any]:
    """Return the arguments of the call."""
    arguments: dict[str, Any] = {
        "input": to_responses(read_history(request.history, request.notes)),
        "stream": request.streams,
        "store": False,
        **key_arguments(request),
    }
    if request.system:
        arguments["instructions"] = request.system
    if request.max_tokens is not None:
        arguments["max_output_tokens"] = request.max_tokens
    if request.reasoning_effort:
        arguments["reasoning"] = {"effort": request.reasoning_effort, "summary": "auto"}
    if request.reasoning_effort or request.traits.reasons:
        arguments["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        choice = tool_choice_for(request.tool_choice, "responses")
        arguments |= {"tools": list(request.tools), "tool_choice": choice}
    return arguments


def responses_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with `verbosity` where this API has it, in `text`."""
    others = {name: value for name, value in options.items() if name != "verbosity"}
    if verbosity := options.get("verbosity"):
        others["text"] = {**(others.get("text") or {}), "verbosity": verbosity}
    return others


class ResponsesReader:
    """A reader of the output items of a response, whole or from a stream.

    In a stream the finished items count, by their index in the output. The last event repeats them, but some providers
    omit reasoning there, and summaries may be in deltas only.
    """

    def __init__(self, answer: AnswerReader) -> None:
        self._answer = answer
        self._items: dict[int, Entry] = {}
        self._done: set[int] = set()
        self._summaries: dict[int, dict[int, str]] = {}
        self._positions: dict[str, tuple[int, int]] = {}

    def take(self, event: Any, on_piece: OnPiece) -> Any:
        """Add an event; return the response if it is the last one. Raises CallFailed."""
        data = plain(event)
        match str(getattr(data["type"], "value", data["type"])):
            case "response.output_item.added":
                self._items[data["output_index"]] = data["item"]
            case "response.output_item.done":
                self._items[data["output_index"]] = data["item"]
                self._done.add(data["output_index"])
            case "response.reasoning_summary_text.delta":
                texts = self._summaries.setdefault(data["output_index"], {})
                index = data.get("summary_index", 0)
                texts[index] = texts.get(index, "") + data["delta"]
                self._pass_on(on_piece, "reasoning", data, index)
            case "response.output_text.delta" | "response.refusal.delta":
                self._pass_on(on_piece, "text", data, data.get("content_index", 0))
            case "response.function_call_arguments.delta":
                index = data["output_index"]
                self._answer.add(index, self._items.get(index, {}).get("name", ""), data["delta"])
            case "response.failed" | "error":
                code = (data.get("response", {}).get("error") or data).get("code")
                raise CallFailed(CODES.get(code, Cause.OUTAGE))
            case "response.completed" | "response.incomplete":
                return getattr(event, "response", None) or data["response"]
        return None

    def _pass_on(
        self, on_piece: OnPiece, kind: Literal["reasoning", "text"], data: Entry, section: int
    ) -> None:
        """Pass on a delta; each section of the reply begins on a new line."""
        position = (data["output_index"], section)
        if self._positions.get(kind, position) != position:
            on_piece(kind, "\n")
        self._positions = {kind: position}  # the listener separates the kinds itself
        on_piece(kind, data["delta"])

    def reply(self, response: Any) -> ModelReply:
        """Return the reply, given the final response."""
        final = plain(response)
        if final.get("status") == "failed":
            raise CallFailed(Cause.OUTAGE)
        entries = self._merged([plain(item) for item in final.get("output") or ()])
        reason = (final.get("incomplete_details") or {}).get("reason")
        finish, model = _FINISH.get(reason, "stop"), final.get("model") or ""
        return ModelReply(entries, _usage(final.get("usage")), finish, model=model)

    def _merged(self, output: list[Entry]) -> list[Entry]:
        by_id = {item.get("id"): item for item in output}
        merged = []
        for index, streamed in sorted(self._items.items()):
            known = by_id.pop(streamed.get("id"), None)
            item = streamed if index in self._done else known or streamed
            if item["type"] == "reasoning":
                merged.append(self._with_summary(index, item))
            elif known or index in self._done:
                merged.append(item)
        return merged + list(by_id.values())

    def _with_summary(self, index: int, item: Entry) -> Entry:
        texts = self._summaries.get(index)
        if not texts or item.get("summary"):
            return item
        return {**item, "summary": [{"type": "summary_text", "text": texts[n]} for n in sorted(texts)]}


def plain(value: Any) -> Any:
    """Convert an object of litellm or openai to a dictionary without null fields, which are rejected as input."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", exclude_none=True, warnings=False)
    return _without_none(value)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _own_id(item) if key == "container_id" else _without_none(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _own_id(container_id: str) -> str:
    """Return the provider's id of a container, which litellm wraps together with the provider's name."""
    with suppress(ValueError):
        wrapped = b64decode(container_id.removeprefix("cntr_"), validate=True).decode()
        if wrapped.startswith("litellm:"):
            return wrapped.rpartition("container_id:")[2]
    return container_id


def _usage(usage: Any) -> Tokens | None:
    """Convert the usage; some versions of litellm use the names of Chat Completions."""
    if not usage:
        return None
    is_chat = "prompt_tokens" in usage
    read, written = ("prompt", "completion") if is_chat else ("input", "output")
    of_input = usage.get(f"{read}_tokens_details") or {}
    of_output = usage.get(f"{written}_tokens_details") or {}
    return Tokens(
        input=usage.get(f"{read}_tokens") or 0,
        output=usage.get(f"{written}_tokens") or 0,
        cached=of_input.get("cached_tokens") or 0,
        written=of_input.get("cache_creation_tokens") or of_input.get("cache_write_tokens") or 0,
        reasoning=of_output.get("reasoning_tokens") or 0,
    )
