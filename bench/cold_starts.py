"""What the functions need to start, as they are deployed: their built layers, under Lambda's runtime client and AWS's
emulator.

python3 scripts/dev.py build
python3 scripts/dev.py bench --only cold-starts

Where valgrind is installed, it counts the instructions of each initialization, which other programs don't change, and
the budgets are for these; else for the processor's time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.imports import API, HANDLER_FLOOR, INIT, INIT_WITHOUT_HTTP, OTHERS, ROOT, function_environment
from bench.report import Result, Row, Skipped

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from support.engines.lambda_runtime import Function

FLOOR = "HealthFunction"
"""Its layers are the floor's, but for botocore, which is there as pip installs it."""

PROBE = """
import json, os, sys, time
wall, cpu = time.perf_counter(), time.process_time()
code = os.environ["MEASURED"]
exec(code)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
measured = globals().get("handler")

def handler(event, context):
    if "requestContext" not in event:
        return {"cpu": cpu * 1e3, "wall": wall * 1e3, "modules": len(sys.modules)}
    began = time.process_time()
    status = measured(event, context)["statusCode"]
    return {"cpu": (time.process_time() - began) * 1e3, "status": status}
"""
"""Runs in place of the handler, imports that, and passes requests on to it."""

COUNT = ("--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
"""The options with which valgrind counts instructions, and nothing else."""

BEFORE_INIT = "import awslambdaric.bootstrap"
"""What the runtime client has done when it imports the handler."""

LITELLM = """
import gc, sys, time
if sys.argv[1] == "off":
    gc.disable()
cpu = time.process_time()
import litellm
print((time.process_time() - cpu) * 1e3)
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One initialisation: milliseconds of the processor and of the clock, and the modules of the process.

    `request` is the processor's time for the first request, and `status` its answer.
    """

    cpu: float
    wall: float
    modules: int
    request: float | None = None
    status: int = 0

    @property
    def total(self) -> float:
        """Milliseconds of the processor until the first request has its answer."""
        return self.cpu + (self.request or 0.0)


LLM = "turn of an agent with litellm"
"""The row of a turn that imports its model library before it begins."""

ROUNDS = 15
"""Rounds in which each function starts once, in turns with the floor."""


def measure(rounds: int = ROUNDS) -> list[Result]:
    """Every function in turns with the floor: the least CPU time of the rounds, as other programs only ever
    take time.
    """
    sys.path.append(str(ROOT / "tests"))  # `support` has the Lambda of the tests
    from support.engines.lambda_runtime import HOW_TO_INSTALL, has_emulator

    if not has_emulator():
        return [Skipped("cold-starts", HOW_TO_INSTALL)]
    if not (ROOT / ".aws-sam" / "build" / "template.yaml").is_file():
        return [Skipped("cold-starts", "nothing is built; run: python3 scripts/dev.py build")]
    starts: dict[str, list[Start]] = {}
    litellm: dict[str, list[float]] = {}
    from support.services.loopback import serve

    with tempfile.TemporaryDirectory(prefix="mail-bench-") as name, serve(_aws()) as url:
        folder = Path(name)
        (folder / "swarms.json").write_text(json.dumps([_llm_swarm()]), encoding="utf-8")
        (folder / "probe.py").write_text(PROBE, encoding="utf-8")
        (folder / "floor").mkdir()
        (folder / "floor" / "botocore").symlink_to(_installed("botocore"))
        for _ in range(rounds + 1):  # the first one warms the disk's cache
            starts.setdefault("", []).append(_start(None, folder, url))
            for handler in (*API, *OTHERS):
                starts.setdefault(handler, []).append(_start(handler, folder, url))
            llm = {"MAIL_SWARM_NAME": "llm", "MAIL_SWARM_SOURCE": str(folder / "swarms.json")}
            starts.setdefault(LLM, []).append(_start("turn", folder, url, llm))
        for _ in range(rounds):
            for collector in ("on", "off"):
                litellm.setdefault(collector, []).append(_litellm(collector))
        valgrind = shutil.which("valgrind")
        counts = {} if valgrind is None else _counts(valgrind, folder)
    best = {name: min(taken[1:], key=lambda start: start.cpu) for name, taken in starts.items()}
    floor, llm_turn = best.pop(""), best.pop(LLM)
    first = {name: min(taken[1:], key=lambda start: start.total) for name, taken in starts.items()}
    rows: list[Result] = [
        _row(f"floor: FastAPI, Mangum, botocore (minima of {rounds} rounds)", floor),
        *(_row(name, start, floor, None if counts else _budget(name)) for name, start in best.items()),
        *(
            Row(
                "cold-starts",
                f"{name}: initialization",
                count / 1e6,
                "M instructions",
                _budget(name),
                ratio=count / counts[""],
            )
            for name, count in counts.items()
            if name
        ),
        _row(LLM, llm_turn, floor),
        *(
            Row(
                "cold-starts",
                f"{name or 'floor'}: initialization and first request",
                start.total,
                "ms CPU",
                note=f"answered {start.status}, {start.request:.0f} ms",
                ratio=start.total / first[""].total if name else None,
            )
            for name, start in first.items()
            if start.request is not None
        ),
    ]
    for collector, taken in litellm.items():
        rows.append(
            Row("cold-starts", f"import litellm, garbage collection {collector}", min(taken), "ms CPU")
        )
    return rows


def _budget(handler: str) -> float:
    return INIT if handler in API else INIT_WITHOUT_HTTP


def _counts(valgrind: str, folder: Path) -> dict[str, int]:
    """Return the instructions of each initialization; the floor has no name."""
    before = _instructions(valgrind, None, folder, "")
    codes: dict[str | None, str] = {None: HANDLER_FLOOR}
    codes |= {name: f"import handlers.{name}" for name in (*API, *OTHERS)}
    return {name or "": _instructions(valgrind, name, folder, code) - before for name, code in codes.items()}


def _instructions(valgrind: str, handler: str | None, folder: Path, code: str) -> int:
    """Count the instructions of a process that runs this code where Lambda would import the handler."""
    from support.engines.lambda_runtime import environment_of

    function = _function(handler, folder)
    environment = {
        **environment_of(function),
        **function_environment(handler),
        "MAIL_CONFIG_PATH": "mail.toml",
    }
    command = [valgrind, *COUNT, str(function.interpreter.python), "-c", f"{BEFORE_INIT}\n{code}"]
    done = subprocess.run(
        command, env=environment, cwd=function.root, capture_output=True, text=True, check=True
    )
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def _function(handler: str | None, folder: Path) -> "Function":
    """Return a function as it was built, or the floor; what is in the folder is found first."""
    from support.engines.lambda_runtime import built_function

    built = built_function(FLOOR if handler is None else handler.title().replace("_", "") + "Function")
    first = (folder,) if handler is not None else (folder, folder / "floor")
    interpreter = replace(built.interpreter, path=(*first, *built.interpreter.path))
    return replace(built, interpreter=interpreter)


def _row(name: str, start: Start, floor: Start | None = None, budget: float | None = None) -> Row:
    note = f"{start.modules} modules, {start.wall:.0f} ms"
    ratio = None if floor is None else start.cpu / floor.cpu
    return Row("cold-starts", name, start.cpu, "ms CPU", budget, note=note, ratio=ratio)


def _start(
    handler: str | None, folder: Path, url: str, variables: Mapping[str, str] = MappingProxyType({})
) -> Start:
    """Start a function once, and send its sample event if it answers HTTP; the floor is None."""
    from support.engines.lambda_runtime import LambdaRuntime

    function = replace(_function(handler, folder), handler="probe.handler")
    answers = handler is None or (handler in API and handler not in ("stream", "protocols"))
    code = f"from handlers.{handler} import handler" if answers else f"import handlers.{handler}"
    environment = {
        **function_environment(handler),
        **variables,
        "AWS_ENDPOINT_URL": url,
        "MAIL_CONFIG_PATH": "mail.toml",
        "MEASURED": HANDLER_FLOOR if handler is None else code,
    }
    with LambdaRuntime(function, environment) as running:
        start = Start(**running.invoke({}))
        if not answers:
            return start
        first = running.invoke(_request(handler))
    return replace(start, request=first["cpu"], status=first["status"])


def _request(handler: str | None) -> dict[str, Any]:
    """The sample event of a function; the floor's is a message."""
    text = (ROOT / "events" / f"{handler or 'message'}.json").read_text(encoding="utf-8")
    event: dict[str, Any] = json.loads(text)
    event["headers"]["prefer"] = "respond-async"
    if handler is None:
        event |= {"rawPath": "/text", "body": json.dumps({"text": "hello"})}
        event["headers"]["content-length"] = str(len(event["body"]))
        event["requestContext"]["http"]["path"] = "/text"
    return event


def _aws() -> "type[BaseHTTPRequestHandler]":
    """AWS with nothing stored but an admin's key, which answers at once: only the function's own time counts."""
    from support.services.loopback import Handler

    class Aws(Handler):
        def respond(self) -> None:
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            request: dict[str, Any] = json.loads(self.body())
            answer: dict[str, Any] = {}
            if operation == "GetItem" and request["Key"]["PK"]["S"].startswith("TOKEN#"):
                fields = {"role": "admin", "id": "root", "created": "2026-01-01T00:00:00+00:00"}
                answer = {"Item": {**request["Key"], **{name: {"S": text} for name, text in fields.items()}}}
            elif operation == "UpdateItem":
                answer = {"Attributes": request["Key"]}
            elif operation == "Query":
                answer = {"Items": [], "Count": 0}
            elif operation == "SendMessageBatch":
                answer = {"Successful": [{"Id": each["Id"], "MessageId": "0"} for each in request["Entries"]]}
            self.answer(200, json.dumps(answer).encode(), {"Content-Type": "application/x-amz-json-1.0"})

    return Aws


def _llm_swarm() -> dict[str, Any]:
    agent = {
        "name": "supervisor",
        "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "agent_params": {"llm": "anthropic/claude-sonnet-4-5", "system": "Answer."},
    }
    return {"name": "llm", "version": "1", "entrypoint": "supervisor", "agents": [agent]}


def _litellm(collector: str) -> float:
    """Import litellm in the turn's layers; the milliseconds of the processor."""
    from support.engines.lambda_runtime import built_function

    interpreter = built_function("TurnFunction").interpreter
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, interpreter.path)),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    command = [str(interpreter.python), "-c", LITELLM, collector]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def _installed(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
