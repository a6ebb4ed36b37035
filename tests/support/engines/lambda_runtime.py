"""A Lambda function as it runs on Lambda, without Docker: the real runtime client under AWS's own emulator.

    function = source_function("handlers.health.handler", timeout=10)
    with LambdaRuntime(function, {"MAIL_TABLE": "mail", **aws_environment(endpoint("ministack"))}) as running:
        reply = running.invoke(event)

The code comes from this checkout (`source_function`) or from what `sam build` has made of it (`built_function`); then
it finds only the function, its layers and the runtime client. `awslambdaric` asks `aws-lambda-rie`
for invocations over the Runtime API: initialisation, time-outs, the ends of processes and the shapes of answers are
those of Lambda. What differs: the file system can be written to, output is buffered, memory isn't limited.
"""

import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from mail.local_aws.deployment import Template, read_template
from mail.local_aws.processes import (
    LOOPBACK,
    Interpreter,
    KeptProcess,
    built_interpreter,
    free_port,
    listens,
    source_interpreter,
    system_environment,
)

ROOT = Path(__file__).resolve().parents[3]
INVOCATIONS = "2015-03-31/functions/function/invocations"
TIMEOUT = 60.0
"""Seconds that something may take beyond the function's own limit before it counts as hung."""

HOW_TO_INSTALL = "aws-lambda-rie is not installed; run: python3 scripts/dev.py tools sam"

_INIT = re.compile(r"INIT REPORT\(durationMs: ([\d.]+)\)")
_TIME_OUT = re.compile(r"Task timed out after [\d.]+ seconds")


class FunctionFailed(Exception):
    """The invocation ended in an error, which Lambda tells apart from an answer.

    Attributes:
        type: the class of the exception, `Runtime.ExitError` where the process died, `Sandbox.Timedout` where it took
            too long.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.type = kind
        self.message = message


@dataclass(frozen=True)
class Function:
    """What of a function is the same in all its processes.

    Attributes:
        handler: the module and attribute that Lambda calls.
        root: the folder of its code, `/var/task` on Lambda.
        interpreter: the Python that runs it, and what it imports from besides, as the layers below `/opt`.
        timeout: seconds that an invocation may take.
        memory: megabytes; only told to the function.
    """

    name: str
    handler: str
    root: Path
    interpreter: Interpreter
    timeout: int = 30
    memory: int = 512


def has_emulator() -> bool:
    """Whether functions can be run. In CI they must: then its absence is a failure, not a skip."""
    if _emulator() is None and os.environ.get("CI"):
        raise RuntimeError(HOW_TO_INSTALL)
    return _emulator() is not None


def source_function(handler: str, *, timeout: int = 30, root: Path = ROOT / "swarm") -> Function:
    """A function of this checkout, with everything that is installed beside it."""
    interpreter = replace(source_interpreter(), path=(ROOT / "src",))
    return Function(handler.split(".")[-2], handler, root, interpreter, timeout)


def built_function(logical_id: str, build: Path = ROOT / ".aws-sam" / "build") -> Function:
    """A function that `sam build` has built, with the layers and limits that the template gives it by default."""
    path = build / "template.yaml"
    template, folders = read_template(path), Template(path)
    shared, own = template["Globals"]["Function"], template["Resources"][logical_id]["Properties"]

    def limit(name: str) -> int:
        value = own.get(name, shared[name])
        return int(template["Parameters"][value["Ref"]]["Default"] if isinstance(value, dict) else value)

    layers = folders.layers()[logical_id]
    venv = Path(_folder().name) / "python"
    return Function(
        name=logical_id,
        handler=own["Handler"],
        root=folders.codes()[logical_id],
        interpreter=built_interpreter(layers, shared["Runtime"], venv),
        timeout=limit("Timeout"),
        memory=limit("MemorySize"),
    )


class LambdaRuntime:
    """One execution environment: it initialises the function at its first invocation, and again where it has died.

    A context manager. `environment` is what the template would set.
    """

    def __init__(self, function: Function, environment: Mapping[str, str]) -> None:
        self.function = function
        self.port = port = free_port()
        self._url = f"http://{LOOPBACK}:{port}/{INVOCATIONS}"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        addresses = (
            *("--runtime-interface-emulator-address", f"{LOOPBACK}:{port}"),
            *("--runtime-api-address", f"{LOOPBACK}:{free_port()}"),
        )
        emulator = _emulator()
        assert emulator is not None, HOW_TO_INSTALL
        self._process = KeptProcess(
            [
                str(emulator),
                *addresses,
                str(function.interpreter.python),
                "-m",
                "awslambdaric",
                function.handler,
            ],
            env={**environment_of(function), **environment},
            cwd=function.root,
            output=self._output,
        )
        try:
            self._process.wait_until(lambda: listens(port), seconds=TIMEOUT, name="aws-lambda-rie")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the environment, and an invocation with it."""
        self._process.stop()
        self._output.close()

    def invoke(self, event: object) -> Any:
        """What the function returns for an event. Raises FunctionFailed."""
        request = urllib.request.Request(self._url, json.dumps(event).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self.function.timeout + TIMEOUT) as response:
                text: str = response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
        if _TIME_OUT.fullmatch(text):
            raise FunctionFailed("Sandbox.Timedout", text)
        answer = json.loads(text)
        if isinstance(answer, dict) and answer.keys() >= {"errorMessage", "errorType"}:
            raise FunctionFailed(answer["errorType"], answer["errorMessage"])
        return answer

    @property
    def log(self) -> str:
        """What the emulator and the function have written so far."""
        descriptor = self._output.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON lines among it: log records, and metrics in CloudWatch's embedded format."""
        lines = (line for line in self.log.splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]

    @property
    def inits(self) -> list[float]:
        """How many milliseconds each initialisation took."""
        return [float(milliseconds) for milliseconds in _INIT.findall(self.log)]


def environment_of(function: Function) -> dict[str, str]:
    """What Lambda sets."""
    return {
        **system_environment(),
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "$LATEST",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
        "LAMBDA_TASK_ROOT": str(function.root),
        "PYTHONPATH": os.pathsep.join(map(str, (function.root, *function.interpreter.path))),
        "TZ": ":UTC",
    }


@cache
def _emulator() -> Path | None:
    """The `aws-lambda-rie` of this machine, which `aws-sam-cli` ships."""
    machine = {"x86_64": "x86_64", "aarch64": "arm64"}[os.uname().machine]
    pattern = f"sam/lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}"
    return next((ROOT / ".tools").glob(pattern), None)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """For what all functions of this process share."""
    return tempfile.TemporaryDirectory(prefix="mail-lambda-")
