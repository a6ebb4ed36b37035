"""What `mail mcp` does: it passes messages of MCP between two standard streams and a server's `/mcp`."""

import asyncio
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    import httpx2

    from mail.cli.connection import CommandClient

INTERNAL_ERROR, PARSE_ERROR = -32603, -32700
"""Codes of JSON-RPC."""

VERSION = "io.modelcontextprotocol/protocolVersion"
"""The key of the protocol's version in the `_meta` of requests since 2026-07-28."""

CANCELLED = "notifications/cancelled"

Message = dict[str, Any]


class Relay:
    """Passes each message on to a server, and writes what the server answers.

    `connect` makes a client; another one after a failure, as a server that has been restarted has other keys.
    """

    def __init__(self, connect: "Callable[[], CommandClient]", out: BinaryIO) -> None:
        self._connect = connect
        self._out = out
        self._client: CommandClient | None = None
        self._version: str | None = None
        self._open: dict[Any, asyncio.Task[None]] = {}

    async def run(self, source: BinaryIO) -> None:
        """Pass on messages, one a line, until there are no more; requests that are open then are given up."""
        try:
            async for line in _lines(source):
                if line.strip():
                    await self._begin(line)
        finally:
            for task in self._open.values():
                task.cancel()
            await asyncio.gather(*self._open.values(), return_exceptions=True)
            await self._disconnect()

    async def _begin(self, line: bytes) -> None:
        """Pass on a message, a request without waiting for its answer. One that the client cancels has none."""
        try:
            message = from_json(line, allow_inf_nan=False)
        except ValueError:
            self._write({"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": "no JSON"}})
            return
        given: Message = message if isinstance(message, dict) else {}
        name = given.get("id")
        if given.get("method") == CANCELLED:
            task = self._open.pop(_params(given).get("requestId"), None)
            if task is not None:
                task.cancel()
            return
        work = self._pass_on(line, given)
        if name is None or given.get("method") == "initialize":  # later ones depend on it
            await work
            return
        task = self._open[name] = asyncio.create_task(work)
        task.add_done_callback(lambda _task: self._open.pop(name, None))

    async def _pass_on(self, line: bytes, message: Message) -> None:
        from mail.errors import MAILError

        try:
            response = await self._send(line, self._headers(message))
            try:
                async for answer in _answers(response):
                    if message.get("method") == "initialize":
                        self._version = answer.get("result", {}).get("protocolVersion")
                    self._write(answer)
            finally:
                await response.aclose()
        except MAILError as error:
            await self._disconnect()
            self._fail(message, error.detail)
        except ValueError:
            self._fail(message, "the server's answer is no JSON")

    async def _send(self, line: bytes, headers: dict[str, str]) -> "httpx2.Response":
        from mail.cli.connection import MissingKey

        if self._client is not None:
            with suppress(MissingKey):
                return await self._client.post_mcp(line, headers)
            await self._disconnect()
        self._client = self._connect()
        return await self._client.post_mcp(line, headers)

    def _headers(self, message: Message) -> dict[str, str]:
        """Return the headers that repeat what is in a message, as the protocol demands."""
        params = _params(message)
        version = (params.get("_meta") or {}).get(VERSION)
        if version is None:
            return {} if self._version is None else {"MCP-Protocol-Version": self._version}
        name = params.get("name", params.get("uri", params.get("taskId")))
        headers = {"MCP-Protocol-Version": str(version), "Mcp-Method": str(message.get("method"))}
        return headers if name is None else {**headers, "Mcp-Name": _header(str(name))}

    def _fail(self, message: Message, problem: str) -> None:
        if message.get("id") is None:
            sys.stderr.write(f"{problem}\n")
        else:
            error = {"code": INTERNAL_ERROR, "message": problem}
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _write(self, message: Message) -> None:
        self._out.write(to_json(message) + b"\n")
        self._out.flush()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _params(message: Message) -> Message:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


async def _answers(response: "httpx2.Response") -> AsyncIterator[Message]:
    """Yield the messages in a response, JSON or a stream of events. Raises BadAnswer for an error of HTTP."""
    from mail.client.connection import is_stream, read_json, translated
    from mail.client.sse import EventDecoder

    with translated("POST /mcp"):
        if is_stream(response):
            decoder = EventDecoder()
            async for chunk in response.aiter_bytes():
                for event in decoder.feed(chunk):
                    if event.data:
                        yield from_json(event.data)
            return
        body = await response.aread()
    if not body and response.is_success:
        return
    with suppress(ValueError):
        answer = from_json(body)
        if isinstance(answer, dict) and "jsonrpc" in answer:  # an error of the protocol, whatever its status
            yield answer
            return
    yield read_json(response)


def _header(text: str) -> str:
    """Return a text as the value of a header: one that isn't plain ASCII in base64, as MCP writes it."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    return (
        text if is_plain and not text.startswith("=?") else f"=?base64?{b64encode(text.encode()).decode()}?="
    )


async def _lines(source: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the lines of a blocking stream. Its thread ends with the process, however long the next line takes."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            while line := source.readline():
                loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while line := await queue.get():
        yield line
