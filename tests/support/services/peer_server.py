"""A server on a loopback port that plays another swarm: it records requests and gives scripted answers.

async with PeerServer("beta") as peer:
    peer.answers["/health"] = 503, {"detail": "busy"}
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Self

from starlette.types import Receive, Scope, Send

from support.processes.http_server import QuickUvicorn

Answer = tuple[int, Any]


@dataclass(frozen=True)
class Request:
    """What it was asked; the names of the headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@dataclass
class PeerServer:
    """A swarm that others meet.

    Attributes:
        info: what it says of itself at `/`, over the usual.
        swarms: what it lists.
        answers: by path, in the place of the usual answers: a status, and JSON or bytes.
        headers: what its answers carry.
        delay: seconds that it takes for an answer.
        requests: what it was asked, in order.
    """

    name: str
    info: dict[str, Any] = field(default_factory=dict)
    swarms: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    requests: list[Request] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._uvicorn = await QuickUvicorn(self).__aenter__()
        self.url = self._uvicorn.url
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._uvicorn.__aexit__(*error)

    def paths(self) -> list[str]:
        """The paths that were asked for."""
        return [request.path for request in self.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note a request, and answer it."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(scope["method"], scope["path"], headers, body)
        self.requests.append(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        status, content = self.answers.get(request.path) or self._usual(request)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
            }
        )
        encoded = content if isinstance(content, bytes) else json.dumps(content).encode()
        await send({"type": "http.response.body", "body": encoded})

    def _usual(self, request: Request) -> Answer:
        match request.path:
            case "/":
                usual = {"name": self.name, "version": "7", "description": "it plays", "entrypoint": "boss"}
                swarm = {**usual, "keywords": ["play"], "public": True, **self.info}
                return 200, {"name": "mail", "status": "running", "protocol_version": "1.3", "swarm": swarm}
            case "/health":
                return 200, {"status": "healthy", "swarm_name": self.name}
            case "/swarms":
                return 200, {"swarms": self.swarms}
            case "/interswarm/forward" | "/interswarm/back":
                message = request.json["message"]
                return 200, {
                    "swarm": self.name,
                    "task_id": message["payload"]["task_id"],
                    "status": "success",
                    "local_runner": f"swarm:{message['source_swarm']}@{self.name}",
                }
        return 404, {"detail": "Not Found"}
