"""The Runtime API of one execution environment: how Lambda hands it events, and gets its answers.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import h11

from mail.local_aws.processes import LOOPBACK

_BASE = "/2018-06-01/runtime"
_NEXT = f"{_BASE}/invocation/next"
_INIT_ERROR = f"{_BASE}/init/error"
_ANSWER = re.compile(rf"{_BASE}/invocation/([^/]+)/(response|error)")

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """An event on its way to a handler; `deadline` is in seconds since the epoch."""

    id: str
    payload: bytes
    deadline: float
    function_arn: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the runtime said: an answer, or what was raised. `request_id` is None for a failed initialisation."""

    request_id: str | None
    payload: bytes
    failed: bool


class RuntimeApi:
    """Listens on a port of its own. `on_ready` is called each time the runtime asks for an event."""

    def __init__(self, on_ready: Callable[[], None], on_reply: Callable[[Reply], None]) -> None:
        self._on_ready = on_ready
        self._on_reply = on_reply
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; returns what AWS_LAMBDA_RUNTIME_API has to be."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        return f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def hand_over(self, request: Request) -> None:
        """Give an event to a runtime that has asked for one."""
        self._requests.put_nowait(request)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Only `stop` cancels; asyncio's own callback would report that as an error.
            with suppress(ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
                await _serve(reader, writer, self._answer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == _NEXT:
            self._on_ready()
            request = await self._requests.get()
            headers = {
                "Lambda-Runtime-Aws-Request-Id": request.id,
                "Lambda-Runtime-Deadline-Ms": str(int(request.deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": request.function_arn,
                "Content-Type": "application/json",
            }
            return 200, headers, request.payload
        if path == _INIT_ERROR:
            self._on_reply(Reply(None, body, failed=True))
            return 202, {}, b""
        answer = _ANSWER.fullmatch(path)
        if answer is None or method != "POST":
            return 404, {}, b""
        self._on_reply(Reply(answer[1], body, failed=answer[2] == "error"))
        return 202, {}, b""


_Answer = Callable[[str, str, bytes], Awaitable[tuple[int, dict[str, str], bytes]]]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: _Answer) -> None:
    """HTTP/1.1 on one connection, until the other side closes it."""
    connection = h11.Connection(h11.SERVER)
    target = method = ""
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                writer.write(connection.send(go_on) or b"")
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            method, target, body = event.method.decode(), event.target.decode(), bytearray()
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            status, headers, content = await answer(method, target, bytes(body))
            fields = [*headers.items(), ("Content-Length", str(len(content)))]
            parts = (
                h11.Response(status_code=status, headers=fields),
                h11.Data(data=content),
                h11.EndOfMessage(),
            )
            for part in parts:
                writer.write(connection.send(part) or b"")
            await writer.drain()
            connection.start_next_cycle()
        else:
            return
