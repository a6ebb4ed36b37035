"""The whole deployment: ministack for storage and queues, and around it what runs and invokes functions.

              ┌ HTTP API (http_api) ────┐
    callers ──┤                         ├─► functions (functions, forkserver) ─► ministack: DynamoDB,
              └ function URL ───────────┘          ▲                                          SQS, S3, SSM
                (function_url)                     └── queues (event_sources), schedules ◄────┘

ministack's own Lambda is not used: it handles the messages of a FIFO queue one at a time even across groups, which
makes tasks wait for each other, runs functions with its own packages, and supports neither HTTP API routes nor streams.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import socket
from typing import Any, Self

from starlette.types import ASGIApp

from mail.adapters.aws.documents import DynamoDBDocuments
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import CallerRole
from mail.local_aws.deployment import Deployment, Template
from mail.local_aws.event_sources import Faults, Poller, run_schedule
from mail.local_aws.function_url import WebFunction
from mail.local_aws.functions import ForkServer, Invocation, LambdaFunction
from mail.local_aws.http_api import HttpApi, OnlySigned, with_cors
from mail.local_aws.ministack import LocalAccount, Ministack, credentials
from mail.local_aws.processes import (
    LOOPBACK,
    Interpreter,
    built_interpreter,
    require_runtime_client,
    source_interpreter,
    system_environment,
)
from mail.local_aws.stack import WRAPPER_VARIABLE, EventSource, FunctionSpec, Route, Schedule, Stack
from mail.server.process import base_url, listen
from mail.server.uvicorn_parts import serving

SQS_CONNECTIONS = 64
STREAMS = "StreamFunction"
"""The function whose URL is `stream_url`."""

ROLES: tuple[CallerRole, ...] = ("admin", "user", "agent")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tempo:
    """Overrides of the template's times, to shorten tests from minutes to seconds.

    Attributes:
        timeouts: seconds per invocation, by function.
        visibility: seconds after which a queue redelivers an unhandled message.
        schedule: seconds between the invocations of every schedule.
    """

    timeouts: Mapping[str, int] = field(default_factory=dict)
    visibility: int | None = None
    schedule: float | None = None


class LocalAws:
    """A running deployment of a template: an async context manager.

    `environment` is added to that of all functions, `concurrency` limits the concurrent invocations per queue, and
    `watch` is called after each of them. Raises ConfigurationError for missing programs and invalid arguments.

    Attributes:
        url: the base URL of the HTTP API.
        stream_url: the base URL of the streaming function.
        urls: the URLs of other functions, by function.
        tokens: a token per role, if the functions use built-in tokens.
        endpoint: the value of AWS_ENDPOINT_URL for access to tables and queues.
    """

    def __init__(
        self,
        template: Path,
        *,
        parameters: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        port: int = 0,
        stream_port: int = 0,
        concurrency: int = 4,
        faults: Faults | None = None,
        tempo: Tempo | None = None,
        logs: Path | None = None,
        watch: Callable[[EventSource, Invocation], None] = lambda _source, _done: None,
    ) -> None:
        self._path = template
        self._parameters = dict(parameters or {})
        self._given = environment or {}
        self._ports = (port, stream_port)
        self._concurrency = concurrency
        self.faults = faults or Faults()
        self._tempo = tempo or Tempo()
        self._logs = logs
        self._watch = watch
        self._resources = AsyncExitStack()
        self._running = AsyncExitStack()
        self._interpreters: dict[tuple[Path, ...], Interpreter] = {}
        self._servers: dict[Interpreter, ForkServer] = {}
        self.urls: dict[str, str] = {}
        self.tokens: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()
        await self._resources.aclose()

    @property
    def log_folder(self) -> Path:
        """The folder of the functions' logs, `<function>.log`."""
        return self._folder if self._logs is None else self._logs

    async def _start(self) -> None:
        require_runtime_client()
        self._template = Template(self._path)
        self._template.check(self._parameters)
        folder = self._resources.enter_context(
            tempfile.TemporaryDirectory(prefix="mail-local-aws-", ignore_cleanup_errors=True)
        )
        self._folder = Path(folder)
        self.log_folder.mkdir(parents=True, exist_ok=True)
        engine = await asyncio.to_thread(Ministack)
        self._resources.callback(engine.stop)
        self.endpoint = engine.endpoint
        self.account = LocalAccount(engine.endpoint)
        await self.deploy({})

    async def deploy(self, parameters: Mapping[str, str]) -> None:
        """Deploy with these parameters besides the former ones, and start the functions again, at other URLs."""
        await self._running.aclose()
        self._servers.clear()
        self._template.check(parameters)
        self._parameters |= parameters
        deployed = await Deployment(self.account, self._template).deploy(self._parameters)
        self.stack = _retimed(deployed, self._tempo)
        await self._start_functions()
        self.tokens = await self._issue_tokens()

    # ------------------------------------------------------------------------------------------ start

    async def _start_functions(self) -> None:
        api_port, stream_port = self._ports
        api_socket, stream_socket = listen(LOOPBACK, api_port), listen(LOOPBACK, stream_port)
        self.url, self.stream_url = base_url(LOOPBACK, api_socket), base_url(LOOPBACK, stream_socket)
        functions: dict[str, LambdaFunction] = {}
        for spec in self.stack.functions.values():
            if not spec.is_web:
                functions[spec.name] = await self._start_function(spec)
        api = with_cors(HttpApi(self.stack.routes, functions), self.stack.api_cors)
        await self._running.enter_async_context(serving(api, api_socket))
        for spec in self.stack.functions.values():
            if spec.is_web:
                await self._serve_web(spec, stream_socket)
        for name in functions.keys() & self.stack.urls.keys():
            await self._serve_url(name, functions)
        await self._start_pollers(functions)
        for schedule in self.stack.schedules:
            self._spawn(run_schedule(schedule, functions[schedule.function]))

    async def _serve_url(self, name: str, functions: Mapping[str, LambdaFunction]) -> None:
        """Serve the URL of a function, with the same events as the HTTP API."""
        url, own = self.stack.urls[name], listen(LOOPBACK, 0)
        application: ASGIApp = HttpApi([Route("ANY", "$default", name)], functions)
        if url.is_signed:
            application = OnlySigned(application)
        await self._running.enter_async_context(serving(with_cors(application, url.cors), own))
        self.urls[name] = base_url(LOOPBACK, own)

    async def _start_function(self, spec: FunctionSpec) -> LambdaFunction:
        interpreter = self._interpreter(spec)
        if interpreter not in self._servers:
            server = ForkServer(interpreter.python, interpreter.path)
            await server.start()
            self._running.push_async_callback(server.stop)
            self._servers[interpreter] = server
        log = self.log_folder / f"{spec.name}.log"
        function = LambdaFunction(spec, self._servers[interpreter], self._environment(spec), log)
        self._running.push_async_callback(function.stop)
        return function

    async def _serve_web(self, spec: FunctionSpec, stream_socket: socket) -> None:
        """Serve a web application at its URL; only the streaming function starts before its first request."""
        log = self.log_folder / f"{spec.name}.log"
        application = WebFunction(spec, self._interpreter(spec), self._environment(spec), log)
        self._running.push_async_callback(application.stop)
        if spec.name == STREAMS:
            await application.start()
        own = stream_socket if spec.name == STREAMS else listen(LOOPBACK, 0)
        served = with_cors(application, self.stack.urls[spec.name].cors)
        await self._running.enter_async_context(serving(served, own))
        if spec.name != STREAMS:
            self.urls[spec.name] = base_url(LOOPBACK, own)

    async def _start_pollers(self, functions: Mapping[str, LambdaFunction]) -> None:
        sqs = self.account.client("sqs", connections=SQS_CONNECTIONS)
        self._running.callback(sqs.close)
        for source in self.stack.event_sources:
            if self._tempo.visibility is not None:
                visibility = {"VisibilityTimeout": str(self._tempo.visibility)}
                await sqs.call("set_queue_attributes", QueueUrl=source.queue_url, Attributes=visibility)
            poller = Poller(
                source,
                functions[source.function],
                sqs,
                concurrency=min(self._concurrency, source.concurrency or self._concurrency),
                faults=self.faults,
                watch=self._watch,
            )
            self._spawn(poller.run())

    def _spawn(self, work: Any) -> None:
        """Run a coroutine until the deployment ends."""
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        self._running.push_async_callback(end)

    def _interpreter(self, spec: FunctionSpec) -> Interpreter:
        if spec.layers not in self._interpreters:
            self._interpreters[spec.layers] = (
                built_interpreter(spec.layers, spec.runtime, self._folder / "runtime")
                if spec.layers
                else source_interpreter()
            )
        return self._interpreters[spec.layers]

    def _environment(self, spec: FunctionSpec) -> dict[str, str]:
        """Return the environment of a function: Lambda's variables and the template's, without the wrapper script."""
        own = {name: str(value) for name, value in spec.environment.items() if name != WRAPPER_VARIABLE}
        remote = self.stack.outputs.get("StreamUrl", "").rstrip("/")
        if remote:
            own = {name: value.replace(remote, self.stream_url) for name, value in own.items()}
        return {
            **system_environment(),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "_HANDLER": spec.handler,
            "LAMBDA_TASK_ROOT": str(spec.code),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{spec.runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": spec.deployed_name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{spec.deployed_name}",
            **own,
            **credentials(self.endpoint),
            **self._given,
        }

    # ------------------------------------------------------------------------------------------------- tokens

    async def _issue_tokens(self) -> dict[str, str]:
        table = self.stack.outputs.get("TableName")
        given = {**next(iter(self.stack.functions.values())).environment, **self._given}
        if table is None or any(given.get(name) for name in ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT")):
            return {}
        dynamodb = self.account.client("dynamodb")
        try:
            documents = ServerDocuments(DynamoDBDocuments(dynamodb, table))
            return {role: await issue_token(documents, Caller(role, role)) for role in ROLES}
        finally:
            dynamodb.close()


def _retimed(stack: Stack, tempo: Tempo) -> Stack:
    """Return the stack with overridden times."""
    functions = {
        name: replace(spec, timeout=tempo.timeouts.get(name, spec.timeout))
        for name, spec in stack.functions.items()
    }
    schedules: Sequence[Schedule] = stack.schedules
    if tempo.schedule is not None:
        schedules = [replace(schedule, seconds=tempo.schedule) for schedule in schedules]
    return replace(stack, functions=functions, schedules=tuple(schedules))
