"""Reading Server-Sent Events, as the HTML standard has it.

Lines are split as bytes: the string methods of Python, and of HTTP libraries, also split at characters that may stand
inside of JSON.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when the first event arrives: it brings starlette and uvicorn
    from sse_starlette import ServerSentEvent

CONTENT_TYPE = "text/event-stream"

_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventDecoder:
    """Makes events of bytes, wherever these were cut. What never got its blank line is no event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._data: list[str] = []
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator["ServerSentEvent"]:
        """The events that are complete with this chunk."""
        for line in self._lines(chunk):
            if line:
                self._read(line)
            elif (event := self._event()) is not None:
                yield event

    def _lines(self, chunk: bytes) -> list[str]:
        is_held = bool(self._parts) and self._parts[-1].endswith(b"\r")
        self._parts.append(chunk)
        if not is_held and _LINE_END.search(chunk) is None:
            return []
        text = b"".join(self._parts)
        # Whether a carriage return at the very end is a line end of its own, the next byte tells.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_END.split(text.removesuffix(held))
        self._parts = [rest + held]
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
