"""A decoder of Server-Sent Events as the HTML standard defines them.

It splits lines as bytes, because the string methods of Python and of HTTP libraries also split at characters that are
legal inside JSON.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when the first event arrives, because it loads starlette and uvicorn
    from sse_starlette import ServerSentEvent

CONTENT_TYPE = "text/event-stream"

_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventDecoder:
    """A decoder of events from chunks of bytes. Text without a blank line after it is not an event."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._data: list[str] = []
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator["ServerSentEvent"]:
        """Yield the events that this chunk completes."""
        for line in self._lines(chunk):
            if line:
                self._read(line)
            elif (event := self._event()) is not None:
                yield event

    def _lines(self, chunk: bytes) -> list[str]:
        ends_in_return = bool(self._chunks) and self._chunks[-1].endswith(b"\r")
        self._chunks.append(chunk)
        if not ends_in_return and _LINE_END.search(chunk) is None:
            return []
        text = b"".join(self._chunks)
        # A trailing carriage return may be half of a line end; the next byte decides.
        trailing = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_END.split(text.removesuffix(trailing))
        self._chunks = [rest + trailing]
        return [line.decode("utf-8", "replace") for line in lines]

    def _read(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name in ("event", "retry") or (name == "id" and "\0" not in value):
            self._fields[name] = value

    def _event(self) -> "ServerSentEvent | None":
        from sse_starlette import ServerSentEvent

        data, fields = self._data, self._fields
        self._data, self._fields = [], {}
        if not data:
            return None
        retry = fields.get("retry", "")
        return ServerSentEvent(
            "\n".join(data),
            event=fields.get("event") or "message",
            id=fields.get("id"),
            retry=int(retry) if retry.isdecimal() else None,
        )
