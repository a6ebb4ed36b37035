"""The texts in spans: what models are asked and reply, their tools, calls of actions. By default there are none.

Their form is that of OpenTelemetry's conventions for generative AI: JSON of messages, which consist of parts.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic_core import from_json, to_json

from mail.core.turns.activity import ModelCall

logger = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""Bytes of an attribute. The oldest messages are left out first; what is longer is cut."""

MAX_TEXT = 16 * 1024
"""Characters of a text in an attribute."""

ROOM = MAX_BYTES - 1024
"""Bytes for what is recorded; the rest is for a note on what is left out."""

Part = dict[str, Any]

Wanted = Literal["off", "messages", "all"]

Redact = Callable[[str], str]


class Contents:
    """What is recorded of texts, after a redactor has read each of them.

    A text whose redaction fails is not recorded.
    """

    def __init__(self, wanted: Wanted = "off", redact: Redact | None = None) -> None:
        self._wanted = wanted
        self._redact = redact

    def of_call(self, call: ModelCall) -> Iterator[tuple[str, str]]:
        """Yield the attributes that hold what a model was asked and has replied."""
        if self._wanted == "off":
            return
        if (asked := call.exchange) is not None:
            if asked.system:
                yield "gen_ai.system_instructions", _fitted([self._text(asked.system)])
            yield "gen_ai.input.messages", _fitted(asked.messages(), self._message, _left_out)
            if self._wanted == "all" and asked.tools:
                yield "gen_ai.tool.definitions", _fitted(asked.tools, _tool)
        if call.reply is not None:
            said = [part for message in call.reply() for part in self._parts(message)]
            reply = {"role": "assistant", "parts": said, "finish_reason": call.finish}
            yield "gen_ai.output.messages", _fitted([reply])

    def of_action(self, **facts: Any) -> dict[str, str]:
        """Return the attributes that hold the arguments or the result of an action."""
        if self._wanted != "all":
            return {}
        return {f"gen_ai.tool.call.{name}": _cut_to_fit(self._redacted(fact)) for name, fact in facts.items()}

    def _message(self, message: Mapping[str, Any]) -> Part:
        role = "system" if message.get("role") == "developer" else message.get("role", "user")
        return {"role": role, "parts": list(self._parts(message))}

    def _parts(self, message: Mapping[str, Any]) -> Iterator[Part]:
        content = message.get("content")
        if message.get("role") == "tool":
            yield {
                "type": "tool_call_response",
                "id": message.get("tool_call_id"),
                "response": self._redacted(content),
            }
        elif isinstance(content, str):
            yield self._text(content)
        else:
            for block in content or ():
                text = block.get("text")
                yield {"type": str(block.get("type"))} if text is None else self._text(text)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = self._redacted(_read(function["arguments"]))
            yield {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments}

    def _text(self, text: str) -> Part:
        return {"type": "text", "content": self._redacted(text)}

    def _redacted(self, found: Any) -> Any:
        """Return a value with each of its texts as the redactor leaves it."""
        if isinstance(found, Mapping):
            return {name: self._redacted(item) for name, item in found.items()}
        if isinstance(found, list | tuple):
            return [self._redacted(item) for item in found]
        if self._redact is None or not isinstance(found, str):
            return found
        try:
            text = self._redact(found)
        except Exception as error:  # noqa: BLE001  # foreign code
            logger.warning("redact of [server.telemetry] failed: %s", type(error).__name__)
            text = None
        return text if isinstance(text, str) else "(not recorded: its redaction failed)"


def _tool(tool: Mapping[str, Any]) -> Part:
    return {**tool.get("function", tool), "type": "function"}


def _left_out(count: int) -> Part:
    return {
        "role": "system",
        "parts": [{"type": "text", "content": f"({count} earlier messages are left out)"}],
    }


def _read(arguments: str) -> Any:
    try:
        return from_json(arguments)
    except ValueError:
        return arguments


def _fitted(
    found: Sequence[Any], show: Callable[[Any], Part] = dict, left_out: Callable[[int], Part] | None = None
) -> str:
    """Return the JSON of a list, with as many of its last items as fit, and at least one."""
    kept: list[str] = []
    size = 0
    for each in reversed(found):
        text = _cut_to_fit(show(each))
        size += len(text.encode()) + 1
        if kept and size > ROOM:
            if left_out is not None:
                kept.append(_json(left_out(len(found) - len(kept))))
            break
        kept.append(text)
    return f"[{','.join(reversed(kept))}]"


def _cut_to_fit(found: Any) -> str:
    """Return the JSON of a value, or a text, with texts cut until it fits into an attribute."""
    limit = MAX_TEXT
    while True:
        cut = _cut(found, limit)
        text = cut if isinstance(cut, str) else _json(cut)
        if len(text.encode()) < ROOM or limit < 16:
            return text
        limit //= 2


def _cut(found: Any, limit: int) -> Any:
    """Return a value with its texts cut, and without surrogates, which neither JSON nor OTLP can hold."""
    if isinstance(found, str):
        rest = len(found) - limit
        text = found if rest <= 0 else f"{found[:limit]}… ({rest} more characters)"
        return text.encode(errors="replace").decode()
    if isinstance(found, Mapping):
        return {name: _cut(item, limit) for name, item in found.items()}
    if isinstance(found, Sequence):
        return [_cut(item, limit) for item in found]
    return found


def _json(found: Any) -> str:
    return to_json(found, inf_nan_mode="null", fallback=str).decode()
