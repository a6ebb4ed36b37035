"""A streaming function URL: a web application in a process of its own, behind a proxy like the Lambda Web Adapter.

The adapter adds the invocation's context to each request as headers, and Lambda ends the response at the function's
timeout. Here one process serves all requests, where Lambda would start one for each.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import uuid4

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.errors import MAILError
from mail.local_aws.processes import LOOPBACK, Interpreter, KeptProcess, free_port, listens
from mail.local_aws.stack import WRAPPER_VARIABLE, FunctionSpec

START_SECONDS = 60.0
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade"}


class WebFunction:
    """A web application's process, and the ASGI proxy in front of it."""

    def __init__(
        self, spec: FunctionSpec, interpreter: Interpreter, environment: Mapping[str, str], log: Path
    ) -> None:
        self.spec = spec
        self._interpreter = interpreter
        self._environment = environment
        self._log = log
        self._process: KeptProcess | None = None
        self._starting = asyncio.Lock()
        self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(spec.timeout))
        self._port = free_port()

    async def start(self) -> None:
        """Start the process unless it runs, and wait until it accepts connections. Raises MAILError if it doesn't."""
        async with self._starting:
            if self._process is None:
                await asyncio.to_thread(self._start)

    def _start(self) -> None:
        python = self._interpreter.python
        own = {
            "PORT": str(self._port),
            "PATH": f"{python.parent}:{self._environment.get('PATH', '')}",
            "PYTHONPATH": ":".join(map(str, (self.spec.code, *self._interpreter.path))),
        }
        with self._log.open("ab") as output:
            self._process = KeptProcess(
                self._command(), env={**self._environment, **own}, cwd=self.spec.code, output=output
            )
        try:
            self._process.wait_until(lambda: listens(self._port), seconds=START_SECONDS, name=self.spec.name)
        except MAILError as error:
            output_so_far = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise MAILError(f"{error.detail}; its log:\n{output_so_far}") from error

    def _command(self) -> list[str]:
        """Return the start-up script of the function from its built layer, or else the equivalent command."""
        script = self.spec.environment[WRAPPER_VARIABLE].removeprefix("/opt/")
        built = next((layer / script for layer in self.spec.layers if (layer / script).is_file()), None)
        if built is not None:
            return ["sh", str(built)]
        flags = ["--host", LOOPBACK, "--port", str(self._port), "--no-access-log"]
        return [str(self._interpreter.python), "-m", "uvicorn", *flags, self.spec.handler]

    async def stop(self) -> None:
        """End the process."""
        await self._client.aclose()
        if self._process is not None:
            self._process.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, the first one to a new process; stream the response until the function's timeout."""
        await self.start()
        request = Request(scope, receive)
        headers = [(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP]
        deadline = time.time() + self.spec.timeout
        context = {
            "request_id": str(uuid4()),
            "deadline": int(deadline * 1000),
            "invoked_function_arn": self.spec.arn,
        }
        url = f"http://{LOOPBACK}:{self._port}{request.url.path}"
        onward = self._client.build_request(
            request.method,
            f"{url}?{request.url.query}" if request.url.query else url,
            headers=[*headers, ("x-amzn-lambda-context", json.dumps(context))],
            content=await request.body(),
        )
        try:
            answer = await self._client.send(onward, stream=True)
        except httpx2.HTTPError:
            await Response("Internal Server Error", status_code=502)(scope, receive, send)
            return
        response = StreamingResponse(_until(deadline, answer), status_code=answer.status_code)
        response.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.lower().decode() not in _HOP_BY_HOP
        ]
        await response(scope, receive, send)


async def _until(deadline: float, answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body; cut it off at the deadline."""
    try:
        async for chunk in answer.aiter_raw():
            if time.time() > deadline:
                return
            yield chunk
    finally:
        await answer.aclose()
