"""What a fresh interpreter pays for its imports: the package, its commands, and the handlers of its functions."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.report import Result, Row, Skipped

MODULES = ("mail", "mail.core.engine.runtime", "mail.bootstrap", "mail.http.app", "mail.server.app")
"""What is imported, each alone; `fastapi` is measured beside them, as most of what `mail.http` costs is its."""

BESIDE = "fastapi"

COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "mail version": ("-c", "import sys; from mail.cli import main; sys.argv = ['mail', 'version']; main()"),
}
"""Whole processes: the bare interpreter, and what the console script does."""

HEAVY = ("litellm", "boto3", "botocore")
"""What nothing of these may load."""

API = ("root", "health", "whoami", "status", "message", "tasks", "task", "swarms", "interswarm", "stream")
OTHERS = ("dead_letter", "sweeper", "outbound", "peer_health", "turn")
"""The handlers, with and without FastAPI."""

PUBLISHING = ("message", "interswarm", "stream", "dead_letter", "sweeper", "outbound", "turn")
"""Those with a client of SQS besides that of DynamoDB."""

HANDLER_FLOOR = """
from botocore.session import Session
from fastapi import FastAPI
from mangum import Mangum
from pydantic import BaseModel
class Text(BaseModel):
    text: str
app = FastAPI()
@app.post("/text")
async def echo(text: Text) -> Text:
    return text
handler = Mangum(app, lifespan="off")
client = Session().create_client("dynamodb")
"""
"""The least that a function behind the HTTP API does before its first request: one route, and FastAPI, Mangum and
botocore to serve it with."""

INIT = 1.25
"""Import of any handler but the turn's, in units of that floor (DESIGN, Budgets)."""

HEAVY_FOR_HANDLERS = ("litellm", "boto3")

ROOT = Path(__file__).resolve().parent.parent

PROBE = """
import json, sys, time
before = len(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
{code}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps({{"wall": wall, "cpu": cpu, "modules": len(sys.modules) - before,
                   "heavy": [name for name in {heavy} if name in sys.modules]}}))
"""


@dataclass(frozen=True, slots=True)
class Import:
    """One import in a new interpreter: seconds, modules loaded, and the heavy ones among them."""

    wall: float
    cpu: float
    modules: int
    heavy: list[str]


def measure(repeats: int) -> list[Result]:
    """Each import, and the command `mail version`, in `repeats` new interpreters."""
    results: list[Result] = []
    for module in (BESIDE, *MODULES):
        try:
            results += _rows(f"import {module}", [_import(module) for _ in range(repeats)])
        except subprocess.CalledProcessError as error:
            results.append(Skipped("imports", f"import {module}: {_last_line(error)}"))
    for name, command in COMMANDS.items():
        try:
            results += _command(name, [sys.executable, *command], repeats)
        except subprocess.CalledProcessError as error:
            results.append(Skipped("imports", f"{name}: {_last_line(error)}"))
    try:
        results += _handlers((repeats + 1) // 2)
    except subprocess.CalledProcessError as error:
        results.append(Skipped("imports", f"handlers: {_last_line(error)}"))
    return results


def initialise(handler: str | None) -> Import:
    """What a function does before its first invocation, or the floor of it. Raises CalledProcessError.

    The environment is that of a function; modules are compiled, as they are in a layer, once this has run before.
    """
    queues = ",".join(f"https://queue.example/turns-{tier}.fifo" for tier in range(1, 6))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "src"),
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "MAIL_TABLE": "mail",
        "MAIL_TURN_QUEUES": queues if handler in PUBLISHING else "",
        "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
    }
    code = HANDLER_FLOOR if handler is None else f"import handlers.{handler}"
    return _probe(code, HEAVY_FOR_HANDLERS, env=environment, cwd=ROOT / "swarm")


def _handlers(repeats: int) -> list[Row]:
    """Every handler `repeats` times, in turns with the floor."""
    handlers = (*API, *OTHERS)
    for handler in (None, *handlers):
        initialise(handler)
    rounds = [
        (initialise(None), {handler: initialise(handler) for handler in handlers}) for _ in range(repeats)
    ]
    rows = [*_figures("floor of handlers: FastAPI, Mangum, botocore", [floor for floor, _ in rounds])]
    for handler in handlers:
        name = f"import handlers.{handler}"
        ratio = median(ours[handler].cpu / floor.cpu for floor, ours in rounds)
        budget = None if handler == "turn" else INIT
        rows += _rows(name, [ours[handler] for _, ours in rounds], HEAVY_FOR_HANDLERS)
        rows.append(Row("imports", f"{name}: in units of their floor", ratio, "×", budget))
    return rows


def _last_line(error: subprocess.CalledProcessError) -> str:
    lines = str(error.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {error.returncode}"


def _import(module: str) -> Import:
    return _probe(f"import {module}", HEAVY)


def _probe(
    code: str, heavy: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Import:
    command = [sys.executable, "-c", PROBE.format(code=code, heavy=tuple(heavy))]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return Import(**json.loads(done.stdout.splitlines()[-1]))


def _rows(name: str, imports: Sequence[Import], heavy: Sequence[str] = HEAVY) -> list[Row]:
    loaded = sorted({module for one in imports for module in one.heavy})
    return [
        *_figures(name, imports),
        Row(
            "imports",
            f"{name}: of {', '.join(heavy)}",
            len(loaded),
            "loaded",
            budget=0,
            exact=True,
            note=", ".join(loaded),
        ),
    ]


def _figures(name: str, imports: Sequence[Import]) -> list[Row]:
    return [
        Row("imports", f"{name}: CPU", median(one.cpu for one in imports) * 1e3, "ms CPU"),
        Row("imports", f"{name}: wall", median(one.wall for one in imports) * 1e3, "ms"),
        Row("imports", f"{name}: modules", median(one.modules for one in imports), "", exact=True),
    ]


def _command(name: str, command: Sequence[str], repeats: int) -> list[Row]:
    """Wall and CPU seconds of a whole process, from its start to its end."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), _children()
        subprocess.run(command, capture_output=True, text=True, check=True)
        walls.append(time.perf_counter() - wall)
        cpus.append(_children() - cpu)
    return [
        Row("imports", f"{name}: CPU of the process", median(cpus) * 1e3, "ms CPU"),
        Row("imports", f"{name}: wall", median(walls) * 1e3, "ms"),
    ]


def _children() -> float:
    """CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system
