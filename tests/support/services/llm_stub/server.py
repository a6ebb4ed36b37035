"""The server: a thread of its own, queues of scripted turns, and a record of what it was asked."""

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.services.llm_stub import anthropic, chat, converse, responses
from support.services.llm_stub.script import Failure, HangUp, Recorded, Reply, Turn, bad_key, bad_request
from support.services.llm_stub.wire import Issued, Refusal

WIRES: dict[str, ModuleType] = {
    "/chat/completions": chat,
    "/responses": responses,
    "/v1/messages": anthropic,
}
"""What speaks at which path, whatever the base URL has before it."""


@dataclass(frozen=True)
class Request:
    """A request that the server got; `target` is its path as it was sent, with the query."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    target: str = ""

    @property
    def key(self) -> str:
        """The API key that was shown."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")


class Broken(Exception):
    """Raised to make uvicorn break the connection."""


@dataclass
class LLMStub:
    """See the package's docstring.

    Attributes:
        requests: what was asked, in order.
        complaints: why requests were refused that a provider would have refused; empty after a good test.
        otherwise: answers what no script does.
    """

    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    otherwise: Callable[[Request], Turn] | None = None
    _queues: dict[str | None, deque[Turn]] = field(default_factory=dict)
    _issued: Issued = field(default_factory=Issued)

    def script(self, *turns: Turn, to: str | None = None) -> None:
        """Answer the next requests so: those in which `to` occurs in the model's name or the prompts, or any."""
        self._queues.setdefault(to, deque()).extend(turns)

    def reset(self) -> None:
        """Forget everything, for the next test."""
        self.requests.clear()
        self.complaints.clear()
        self._queues.clear()
        self._issued = Issued()
        self.otherwise = None

    @property
    def is_done(self) -> bool:
        """Whether every scripted turn was asked for."""
        return not any(self._queues.values())

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables by which litellm finds the stub in the place of the providers, and of a proxy."""
        return {
            "OPENAI_API_BASE": f"{self.url}/v1",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "sk-openai",
            "ANTHROPIC_API_BASE": self.url,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "sk-anthropic",
            "LITELLM_PROXY_API_BASE": self.url,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.url,
            "AWS_REGION_NAME": converse.REGION,
        }

    # ------------------------------------------------------------------------------------ starting and stopping

    def __enter__(self) -> Self:
        routes = [
            Route(prefix + path, self._answer, methods=["POST"])
            for path in WIRES
            for prefix in ("", "/{prefix:path}")
        ]
        routes.append(Route("/model/{model:path}", self._converse, methods=["POST"]))
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, lifespan="off", log_config=None, access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="llm-stub", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)

    # ------------------------------------------------------------------------------------------------ answering

    async def _answer(self, http: HTTPRequest) -> Response:
        path = next(path for path in WIRES if http.url.path.endswith(path))
        request = Request(path, dict(http.headers), json.loads(await http.body()), _target(http))
        return await self._answer_by(WIRES[path], request)

    async def _converse(self, http: HTTPRequest) -> Response:
        """Answer a request of Bedrock, whose model and streaming are in the path."""
        model, _, action = http.path_params["model"].rpartition("/")
        raw = await http.body()
        body = {**json.loads(raw), "model": model, "stream": action == "converse-stream"}
        request = Request("/converse", dict(http.headers), body, _target(http))
        try:
            url = f"http://{http.headers['host']}{request.target}"
            converse.check_signature("POST", url, raw, request.headers)
        except Refusal as refusal:
            self.complaints.append(f"/converse: {refusal}")
            return _fail(converse, replace(bad_key(), status=403, message=str(refusal)))
        return await self._answer_by(converse, request)

    async def _answer_by(self, wire: ModuleType, request: Request) -> Response:
        path = request.path
        self.requests.append(request)
        try:
            wire.check(request.body, request.headers, self._issued)
        except Refusal as refusal:
            self.complaints.append(f"{path}: {refusal}")
            return _fail(wire, bad_request(str(refusal)))
        turn = self._next(request)
        match turn:
            case Failure():
                return _fail(wire, turn)
            case HangUp():
                return StreamingResponse(_break_in(b""), headers={"content-length": "1000"})
            case Recorded():
                return Response(turn.body, turn.status, dict(turn.headers), turn.media_type)
        await asyncio.sleep(turn.delay)
        if request.body.get("stream"):
            kind = "application/vnd.amazon.eventstream" if wire is converse else "text/event-stream"
            events = self._stream(wire, turn, request)
            return StreamingResponse(events, headers=dict(turn.headers), media_type=kind)
        body = json.dumps(wire.body(turn, request.body, self._issued)).encode()
        if turn.cut_after is not None:
            half = body[: len(body) // 2]
            headers = {"content-length": str(len(body)), "content-type": "application/json"}
            return StreamingResponse(_break_in(half), headers=headers)
        return Response(body, headers=dict(turn.headers), media_type="application/json")

    def _next(self, request: Request) -> Turn:
        said = str(
            [request.body.get(name) for name in ("model", "system", "instructions", "messages", "input")]
        )
        for to, queue in self._queues.items():
            if to is not None and queue and to in said:
                return queue.popleft()
        if queue := self._queues.get(None):
            return queue.popleft()
        if self.otherwise is not None:
            return self.otherwise(request)
        self.complaints.append(f"{request.path}: the script is over")
        return bad_request("the script is over")

    async def _stream(self, wire: ModuleType, turn: Reply, request: Request) -> AsyncIterator[bytes]:
        for n, event in enumerate(wire.events(turn, request.body, self._issued)):
            if n == turn.cut_after:
                if turn.ends_early:
                    return
                raise Broken
            if n == turn.fails_after:
                yield wire.error_event()
                return
            await asyncio.sleep(turn.pause)
            yield event


async def _break_in(some: bytes) -> AsyncIterator[bytes]:
    yield some
    raise Broken


def _target(http: HTTPRequest) -> str:
    path: str = http.scope["raw_path"].decode()
    query = http.scope["query_string"].decode()
    return f"{path}?{query}" if query else path


def _fail(wire: ModuleType, failure: Failure) -> Response:
    headers = wire.error_headers(failure) if hasattr(wire, "error_headers") else {}
    return JSONResponse(wire.error(failure), failure.status, {**headers, **dict(failure.headers)})
