"""What the client's tests talk to besides a real server: a recorder, and a proxy that cuts connections."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.processes.http_server import HTTPServer, QuickUvicorn

from mail.client import MAILClient
from mail.config import ClientConfig

METHODS = ["GET", "POST"]

CONFIG = ClientConfig(timeout=20.0, verbose=False)

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "model": "swarm",
    "parallel_tool_calls": False,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}],
        }
    ],
}
"""What `POST /responses` answers."""


def client_of(server: HTTPServer, role: str = "user", url: str | None = None) -> MAILClient:
    """A client of a server of ours, or of the proxy at `url` before it."""
    return MAILClient(url or server.uvicorn.url, api_key=server.keys[role], config=CONFIG)


@dataclass
class Recorder:
    """An HTTP server that records requests and gives scripted answers."""

    answer: Callable[[Request], Response] = lambda _request: JSONResponse({"status": "ok"})
    requests: list[Request] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async def handle(request: Request) -> Response:
            self.requests.append(request)
            self.bodies.append(await request.json() if await request.body() else None)
            return self.answer(request)

        app = Starlette(routes=[Route("/{path:path}", handle, methods=METHODS)])
        async with QuickUvicorn(app) as uvicorn:
            yield uvicorn.url

    @property
    def last(self) -> tuple[str, str, Any]:
        """Method, path with query, and body of the last request."""
        request = self.requests[-1]
        query = f"?{request.url.query}" if request.url.query else ""
        return request.method, request.url.path + query, self.bodies[-1]


@asynccontextmanager
async def answered(*answers: Response, **settings: Any) -> AsyncIterator[tuple[MAILClient, Recorder]]:
    """A client, and the server that gives it these answers, one after the other, and the last one from then on."""
    left = list(answers) or [JSONResponse({"status": "ok"})]
    recorder = Recorder(lambda _request: left.pop(0) if len(left) > 1 else left[0])
    async with recorder.serve() as url, MAILClient(url, **{"config": CONFIG, **settings}) as client:
        yield client, recorder


class CutProxy:
    """Passes connections on to a port, and cuts the nth of them after the nth number of bytes of its answers.

    Later ones are passed on whole. Half of the cuts look like the orderly end of a connection, half like a crash.
    """

    def __init__(self, port: int, cuts: Iterable[int] = (), *, seed: int = 0) -> None:
        self.port = port
        self._cuts = iter(cuts)
        self._random = random.Random(seed)
        self.open = 0
        self.connections = 0
        self.is_refusing = False
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for connection in self._running:
            connection.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut every connection that is open."""
        for connection in self._running:
            connection.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._pass_on(reader, writer))
        self._running.add(connection)
        connection.add_done_callback(self._running.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.is_refusing:
                raise ConnectionRefusedError
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self.open += 1
        self.connections += 1
        upwards = asyncio.create_task(_copy(reader, up_writer, None))
        downwards = asyncio.create_task(_copy(up_reader, writer, next(self._cuts, None)))
        try:
            await asyncio.wait({upwards, downwards}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            upwards.cancel()
            downwards.cancel()
            if self._random.random() < 0.5:
                socket = writer.get_extra_info("socket")
                socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            up_writer.close()
            self.open -= 1


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> None:
    """Copy until the end, or until so many bytes were copied."""
    try:
        while left != 0 and (data := await reader.read(65536)):
            writer.write(data if left is None else data[:left])
            await writer.drain()
            left = None if left is None else max(0, left - len(data))
    except ConnectionError:
        pass
