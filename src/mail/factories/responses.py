"""OpenAI's Responses API, used without its server-side state: every request tells the whole history."""

from base64 import b64decode
from contextlib import suppress
from typing import Any, Literal

from mail.factories.failures import Troubled
from mail.factories.history import read_history, to_responses
from mail.factories.items import Entry
from mail.factories.request import Finish, Heard, ModelReply, ModelRequest
from mail.factories.retry import Cause
from mail.factories.tools import tool_choice_for

_FINISH: dict[str | None, Finish] = {"max_output_tokens": "length", "content_filter": "filter"}


async def call_responses(
    litellm: Any, request: ModelRequest, seconds: float | None, heard: Heard
) -> ModelReply:
    """Call `litellm.aresponses`, for so many seconds at most."""
    arguments = responses_arguments(request)
    response = await litellm.aresponses(**request.connection(seconds), **arguments)
    reader = ResponsesReader()
    if not request.streams:
        return reader.reply(litellm, response, heard)
    final = None
    try:
        async for event in response:
            final = reader.take(event, heard) or final
    finally:
        close = getattr(response, "aclose", None)
        if close is not None:
            await close()
    if final is None:
        raise Troubled(Cause.CONNECTION)
    return reader.reply(litellm, final, heard)


def responses_arguments(request: ModelRequest) -> dict[str, Any]:
    """The arguments of the call."""
    arguments: dict[str, Any] = {
        "input": to_responses(read_history(request.history)),
        "stream": request.streams,
        "store": False,
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


class ResponsesReader:
    """Collects the output items of a response, whole or from a stream.

    Of a stream, the items that are done count, at their place in the output; the last event repeats them, but some
    providers leave reasoning out there, and summaries may come in deltas only.
    """

    def __init__(self) -> None:
        self._items: dict[int, Entry] = {}
        self._done: set[int] = set()
        self._summaries: dict[int, dict[int, str]] = {}
        self._heard: dict[str, tuple[int, int]] = {}

    def take(self, event: Any, heard: Heard) -> Any:
        """Take in an event; returns the response where this is its end. Raises Troubled."""
        data = plain(event)
        match str(getattr(data["type"], "value", data["type"])):
            case "response.output_item.added":
                self._items[data["output_index"]] = data["item"]
            case "response.output_item.done":
                self._items[data["output_index"]] = data["item"]
                self._done.add(data["output_index"])
            case "response.reasoning_summary_text.delta":
                parts = self._summaries.setdefault(data["output_index"], {})
                index = data.get("summary_index", 0)
                parts[index] = parts.get(index, "") + data["delta"]
                self._tell(heard, "reasoning", data, index)
            case "response.output_text.delta" | "response.refusal.delta":
                self._tell(heard, "text", data, data.get("content_index", 0))
            case "response.failed" | "error":
                raise Troubled(Cause.OUTAGE)
            case "response.completed" | "response.incomplete":
                return getattr(event, "response", None) or data["response"]
        return None

    def _tell(self, heard: Heard, kind: Literal["reasoning", "text"], data: Entry, part: int) -> None:
        """Let a delta be heard; each part of the reply begins on a line of its own."""
        place = (data["output_index"], part)
        if self._heard.get(kind, place) != place:
            heard(kind, "\n")
        self._heard = {kind: place}  # who listens tells the kinds apart
        heard(kind, data["delta"])

    def reply(self, litellm: Any, response: Any, heard: Heard) -> ModelReply:
        """The reply, given the response that ends it."""
        final = plain(response)
        if final.get("status") == "failed":
            raise Troubled(Cause.OUTAGE)
        said = self._merged([plain(item) for item in final.get("output") or ()])
        reason = (final.get("incomplete_details") or {}).get("reason")
        return ModelReply(
            said,
            _usage(litellm, final.get("usage")),
            _FINISH.get(reason, "stop"),
        )

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
        parts = self._summaries.get(index)
        if not parts or item.get("summary"):
            return item
        return {**item, "summary": [{"type": "summary_text", "text": parts[n]} for n in sorted(parts)]}


def plain(value: Any) -> Any:
    """An object of litellm or openai as a dictionary, without fields that were not set: `null` is refused as input."""
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
    """The provider's id of a container: litellm wraps it up with the provider's name, which no provider takes back."""
    with suppress(ValueError):
        wrapped = b64decode(container_id.removeprefix("cntr_"), validate=True).decode()
        if wrapped.startswith("litellm:"):
            return wrapped.rpartition("container_id:")[2]
    return container_id


def _usage(litellm: Any, usage: Any) -> Any:
    """A Responses usage as litellm's `Usage`, which has Chat's names. Some litellm versions give that already."""
    if not usage:
        return None
    if "prompt_tokens" in usage:
        return litellm.Usage(**usage)
    read, written = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    return litellm.Usage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details={
            "cached_tokens": (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
        },
        completion_tokens_details={
            "reasoning_tokens": (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
        },
    )
