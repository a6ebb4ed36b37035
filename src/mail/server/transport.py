"""The transport of a connection: sends the head of a response and its body in one go."""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "
"""How the head of a response begins."""

_LENGTH = b"\r\ncontent-length: "
"""The header of a response whose body is written next, unless the connection ends."""


class JoiningTransport(asyncio.Transport):
    """Passes everything on to another transport, but keeps the head of a response until its body is written.

    A head that doesn't say how long its body is, is sent alone if the body is not written in the same turn of the event
    loop. So no stream waits, and the limits of the other transport's buffer hold.
    """

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner = inner
        self._call_soon = loop.call_soon
        self._head = b""

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send data, after the head that was kept."""
        if self._head:
            head, self._head = self._head, b""
            self._inner.write(head + data)
        elif isinstance(data, bytes) and data.startswith(_HEAD):
            self._head = data
            if _LENGTH not in data:
                self._call_soon(self._flush)
        elif data:
            self._inner.write(data)

    def close(self) -> None:
        """Close the connection when everything is sent."""
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._head = b""
        self._inner.abort()

    def is_closing(self) -> bool:
        """Return whether it is closed, or about to be."""
        return self._inner.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return len(self._head) + self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known about the connection."""
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive nothing for now."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._inner.resume_reading()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._inner.is_closing():
            self._inner.write(head)
