"""Lambda functions: execution environments that handle one event at a time and are reused for the next.

An environment runs Amazon's runtime client, which gets events and sends responses over the Runtime API
(https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html). An invocation that exceeds the function's timeout,
or that fault injection ends, is killed with its environment.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route

from mail.http.routes import module_names
from mail.local_aws import forkserver
from mail.local_aws.processes import LOOPBACK, system_environment
from mail.local_aws.stack import FunctionSpec
from mail.server.process import listen
from mail.server.uvicorn_parts import serving

_BASE = "/2018-06-01/runtime"


@dataclass(frozen=True, slots=True)
class Request:
    """An event for a handler; `deadline` is in seconds since the epoch."""

    id: str
    payload: bytes
    deadline: float
    function_arn: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the runtime, or an error. `request_id` is None for a failed initialization."""

    request_id: str | None
    payload: bytes
    failed: bool


class RuntimeApi:
    """The Runtime API of one environment, an ASGI application on a port of its own.

    `on_ready` is called each time the runtime requests an event.
    """

    def __init__(self, on_ready: Callable[[], None], on_reply: Callable[[Reply], None]) -> None:
        self._on_ready = on_ready
        self._on_reply = on_reply
        self._requests: asyncio.Queue[Request | None] = asyncio.Queue()
        self._running = AsyncExitStack()
        self._application = Starlette(
            routes=[
                Route(f"{_BASE}/invocation/next", self._next),
                Route(f"{_BASE}/init/error", self._answer, methods=["POST"]),
                Route(f"{_BASE}/invocation/{{id}}/{{outcome}}", self._answer, methods=["POST"]),
            ]
        )

    async def start(self) -> str:
        """Listen, and return the value of AWS_LAMBDA_RUNTIME_API."""
        listener = listen(LOOPBACK, 0)
        await self._running.enter_async_context(serving(self._application, listener))
        return f"{LOOPBACK}:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """Close every connection."""
        self._requests.put_nowait(None)
        await self._running.aclose()

    def send_event(self, request: Request) -> None:
        """Send an event to a runtime that has requested one."""
        self._requests.put_nowait(request)

    async def _next(self, _: HTTPRequest) -> Response:
        self._on_ready()
        request = await self._requests.get()
        if request is None:  # the end
            return Response(status_code=503)
        headers = {
            "Lambda-Runtime-Aws-Request-Id": request.id,
            "Lambda-Runtime-Deadline-Ms": str(int(request.deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": request.function_arn,
        }
        return Response(request.payload, headers=headers, media_type="application/json")

    async def _answer(self, http: HTTPRequest) -> Response:
        of, outcome = http.path_params.get("id"), http.path_params.get("outcome", "error")
        self._on_reply(Reply(of, await http.body(), failed=outcome == "error"))
        return Response(status_code=202)


INIT_SECONDS = 30.0
"""Timeout of a cold start. Lambda allows ten seconds; a busy laptop needs more."""

PRELOADED = (
    "asyncio",
    "aws_lambda_powertools.utilities.batch",
    "aws_lambda_powertools.utilities.data_classes.sqs_event",
    "botocore.httpsession",
    "botocore.retries.standard",
    "botocore.session",
    "mangum",
    "mail.bootstrap",
    "mail.adapters.aws.backend",
    "mail.http.app",
    *module_names(),
    "mail.swarms_json",
    "simplejson",
)
"""Modules that a fork server imports before it forks; of MAIL's, only those that don't read the environment."""


class Outcome(StrEnum):
    """The outcome of an invocation. KILLED: by fault injection; CRASHED: its process ended by itself."""

    ANSWERED = "answered"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A finished invocation. `begun` and `ended` are times of a monotonic clock."""

    function: str
    outcome: Outcome
    payload: bytes
    begun: float
    ended: float

    @property
    def succeeded(self) -> bool:
        """Whether the handler returned."""
        return self.outcome is Outcome.ANSWERED

    @property
    def result(self) -> Any:
        """The handler's return value."""
        return json.loads(self.payload) if self.payload else None


class ForkServer:
    """The process that forks execution environments; see `forkserver`."""

    def __init__(self, python: Path, path: Sequence[Path]) -> None:
        self._command = [str(python), str(Path(forkserver.__file__)), *PRELOADED]
        self._path = path
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended: dict[str, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Start the process; it accepts commands after its imports."""
        environment = {**system_environment(), "PYTHONPATH": ":".join(map(str, self._path))}
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._listening = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """End the process and its children."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        await self._process.wait()
        if self._listening is not None:
            await self._listening

    def fork(
        self, name: str, spec: FunctionSpec, environment: Mapping[str, str], log: Path
    ) -> "asyncio.Future[int]":
        """Start an environment; return a future of its exit status."""
        self._ended[name] = asyncio.get_running_loop().create_future()
        self._send(
            start=name,
            handler=spec.handler,
            folder=str(spec.code),
            environment=dict(environment),
            log=str(log),
        )
        return self._ended[name]

    def kill(self, name: str) -> None:
        """Kill an environment if it is still running."""
        self._send(kill=name)

    def _send(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            self._ended.pop(answer["ended"]).set_result(answer["status"])
        for ended in self._ended.values():
            if not ended.done():
                ended.set_result(-9)
        self._ended.clear()


class Environment:
    """One execution environment: a process that runs the handler under Amazon's own runtime client."""

    def __init__(self, name: str, spec: FunctionSpec, server: ForkServer) -> None:
        self._name = name
        self._spec = spec
        self._server = server
        self._api = RuntimeApi(self._on_ready, self._on_reply)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._reply: asyncio.Future[Reply] = loop.create_future()
        self._ended: asyncio.Future[int] | None = None

    async def start(self, environment: Mapping[str, str], log: Path) -> None:
        """Fork the environment; its initialization has a timeout of its own, INIT_SECONDS."""
        address = await self._api.start()
        own = {"AWS_LAMBDA_RUNTIME_API": address, "AWS_LAMBDA_LOG_STREAM_NAME": f"[$LATEST]{uuid4().hex}"}
        self._ended = self._server.fork(self._name, self._spec, {**environment, **own}, log)

    @property
    def alive(self) -> bool:
        """Whether it can handle another event."""
        return self._ended is not None and not self._ended.done() and not self._reply.done()

    async def invoke(self, payload: bytes, kill_after: float | None) -> tuple[Outcome, bytes]:
        """Send an event, and wait for the outcome."""
        assert self._ended is not None
        if not await self._first(self._ready, INIT_SECONDS):
            if self._reply.done():  # with the reason
                return Outcome.RAISED, self._reply.result().payload
            return await self._end(Outcome.CRASHED)
        limit = float(self._spec.timeout)
        request = Request(str(uuid4()), payload, time.time() + limit, self._spec.arn)
        self._api.send_event(request)
        dies = kill_after is not None and kill_after < limit
        if not await self._first(self._reply, kill_after if kill_after is not None and dies else limit):
            if self._ended.done():
                return await self._end(Outcome.CRASHED)
            return await self._end(Outcome.KILLED if dies else Outcome.TIMED_OUT)
        reply, self._reply = self._reply.result(), asyncio.get_running_loop().create_future()
        return (Outcome.RAISED if reply.failed else Outcome.ANSWERED), reply.payload

    async def stop(self) -> None:
        """Kill the environment."""
        if self._ended is not None and not self._ended.done():
            self._server.kill(self._name)
            await self._ended
        await self._api.stop()

    async def _end(self, outcome: Outcome) -> tuple[Outcome, bytes]:
        await self.stop()
        error = {
            "errorType": "Sandbox." + outcome.name.title(),
            "errorMessage": f"{self._spec.name} {outcome}",
        }
        return outcome, json.dumps(error).encode()

    async def _first(self, wanted: "asyncio.Future[Any]", seconds: float) -> bool:
        """Wait for a future; return False if the process ends, fails to initialize or times out first."""
        assert self._ended is not None
        await asyncio.wait(
            {wanted, self._ended, self._reply}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        return wanted.done()

    def _on_ready(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _on_reply(self, reply: Reply) -> None:
        if not self._reply.done():
            self._reply.set_result(reply)


class LambdaFunction:
    """A function and its environments, one per concurrent event."""

    def __init__(
        self, spec: FunctionSpec, server: ForkServer, environment: Mapping[str, str], log: Path
    ) -> None:
        self.spec = spec
        self._server = server
        self._environment = environment
        self._log = log
        self._names = count()
        self._all: set[Environment] = set()
        self._idle: list[Environment] = []

    async def invoke(self, event: Any, *, kill_after: float | None = None) -> Invocation:
        """Invoke the function; kill its process after `kill_after` seconds, if given."""
        environment = self._take() or await self._start()
        begun = time.monotonic()
        reusable = False
        try:
            outcome, payload = await environment.invoke(json.dumps(event).encode(), kill_after)
            reusable = environment.alive
        finally:
            if reusable:
                self._idle.append(environment)
            else:
                self._all.discard(environment)
                await environment.stop()
        return Invocation(self.spec.name, outcome, payload, begun, time.monotonic())

    async def stop(self) -> None:
        """Kill all environments."""
        await asyncio.gather(*(environment.stop() for environment in self._all))

    def _take(self) -> Environment | None:
        while self._idle:
            environment = self._idle.pop()
            if environment.alive:
                return environment
        return None

    async def _start(self) -> Environment:
        environment = Environment(f"{self.spec.name}-{next(self._names)}", self.spec, self._server)
        self._all.add(environment)
        await environment.start(self._environment, self._log)
        return environment
