"""Functions as Lambda runs them: in execution environments that handle one event at a time and are kept for the next.

An invocation that takes longer than the function may is ended by killing its environment, as is, on purpose, one that
is told to die.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from mail.local_aws import forkserver
from mail.local_aws.processes import system_environment
from mail.local_aws.runtime_api import Reply, Request, RuntimeApi
from mail.local_aws.stack import FunctionSpec

INIT_SECONDS = 30.0
"""How long a cold start may take. Lambda gives it ten; a laptop may have other things to do."""

PRELOADED = (
    "asyncio",
    "aws_lambda_powertools.logging",
    "aws_lambda_powertools.metrics",
    "aws_lambda_powertools.utilities.batch",
    "aws_lambda_powertools.utilities.data_classes.sqs_event",
    "aws_lambda_powertools.utilities.parameters",
    "botocore.httpsession",
    "botocore.retries.standard",
    "botocore.session",
    "mangum",
    "mail.bootstrap",
    "mail.adapters.aws.backend",
    "mail.http.app",
    "mail.http.routes",
    "mail.swarms_json",
    "simplejson",
)
"""What a fork server imports before it forks; of our functions' modules, those that read no environment."""


class Outcome(StrEnum):
    """How an invocation ended. KILLED: on purpose; CRASHED: its process ended by itself."""

    ANSWERED = "answered"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Invocation:
    """What became of an event. `begun` and `ended` are of one monotonic clock."""

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
        """What the handler returned."""
        return json.loads(self.payload) if self.payload else None


class ForkServer:
    """The process that execution environments are forked off."""

    def __init__(self, python: Path, path: Sequence[Path]) -> None:
        self._command = [str(python), str(Path(forkserver.__file__)), *PRELOADED]
        self._path = path
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended: dict[str, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Start it; it serves as soon as it has imported all."""
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
        """End it and all that it has started."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        await self._process.wait()
        if self._listening is not None:
            await self._listening

    def fork(
        self, name: str, spec: FunctionSpec, environment: Mapping[str, str], log: Path
    ) -> "asyncio.Future[int]":
        """Start an environment; returns what becomes its exit status."""
        self._ended[name] = asyncio.get_running_loop().create_future()
        self._order(
            start=name,
            handler=spec.handler,
            folder=str(spec.code),
            environment=dict(environment),
            log=str(log),
        )
        return self._ended[name]

    def kill(self, name: str) -> None:
        """`kill -9` an environment, if it is still there."""
        self._order(kill=name)

    def _order(self, **order: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

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
        """Fork it; its initialisation counts towards the first invocation's time only past INIT_SECONDS."""
        address = await self._api.start()
        own = {"AWS_LAMBDA_RUNTIME_API": address, "AWS_LAMBDA_LOG_STREAM_NAME": f"[$LATEST]{uuid4().hex}"}
        self._ended = self._server.fork(self._name, self._spec, {**environment, **own}, log)

    @property
    def alive(self) -> bool:
        """Whether it can take another event."""
        return self._ended is not None and not self._ended.done() and not self._reply.done()

    async def invoke(self, payload: bytes, kill_after: float | None) -> tuple[Outcome, bytes]:
        """Hand it one event, and wait for what comes of it."""
        assert self._ended is not None
        if not await self._first(self._ready, INIT_SECONDS):
            if self._reply.done():  # it has told why
                return Outcome.RAISED, self._reply.result().payload
            return await self._end(Outcome.CRASHED)
        limit = float(self._spec.timeout)
        request = Request(str(uuid4()), payload, time.time() + limit, self._spec.arn)
        self._api.hand_over(request)
        dies = kill_after is not None and kill_after < limit
        if not await self._first(self._reply, kill_after if kill_after is not None and dies else limit):
            if self._ended.done():
                return await self._end(Outcome.CRASHED)
            return await self._end(Outcome.KILLED if dies else Outcome.TIMED_OUT)
        reply, self._reply = self._reply.result(), asyncio.get_running_loop().create_future()
        return (Outcome.RAISED if reply.failed else Outcome.ANSWERED), reply.payload

    async def stop(self) -> None:
        """Kill it."""
        if self._ended is not None and not self._ended.done():
            self._server.kill(self._name)
            await self._ended
        await self._api.stop()

    async def _end(self, outcome: Outcome) -> tuple[Outcome, bytes]:
        await self.stop()
        told = {
            "errorType": "Sandbox." + outcome.name.title(),
            "errorMessage": f"{self._spec.name} {outcome}",
        }
        return outcome, json.dumps(told).encode()

    async def _first(self, wanted: "asyncio.Future[Any]", seconds: float) -> bool:
        """Whether it came, before the process ended, it failed to initialise, or the time was up."""
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
    """A function, and its environments: as many as there are events at once."""

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
        """Have an event handled; `kill_after` so many seconds, its process dies."""
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
        """End all environments."""
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
