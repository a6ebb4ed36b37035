"""What a fresh interpreter pays for its imports: the package, its commands, its server, and the handlers of its
functions.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.engine import scratch
from bench.report import Result, Row, Skipped
from mail.local_aws.processes import free_port

MODULES = ("mail", "mail.core.engine.runtime", "mail.bootstrap", "mail.http.app", "mail.server.app")
"""What is imported, each alone; `fastapi` is measured beside them, as most of what `mail.http` costs is its."""

BESIDE = "fastapi"

A_DOZEN = 12
"""Modules that `import mail` may load, nearly all of the standard library."""

BARE = "python -c pass"

CONSOLE_SCRIPT = "import sys; from mail.cli import main; sys.argv = ['mail', '{}']; main()"

COMMANDS = {
    BARE: "pass",
    "mail version": CONSOLE_SCRIPT.format("version"),
    "mail --help": CONSOLE_SCRIPT.format("--help"),
}
"""Whole processes: the bare interpreter, their floor, and what the console script does."""

START = 2.0
"""CPU time from the start of `mail server`, on its default swarm, to the first answer of `GET /health`.

In units of an empty application's: 1.5 times what it was before all routes were made at the start.
"""

SERVER = "import sys; from mail.cli import main; sys.argv[0] = 'mail'; main()"

SERVER_FLOOR = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "healthy"}
uvicorn.run(app, port=int(sys.argv[-1]), log_config=None)
"""
"""An empty application, given the same arguments."""

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LOOK_SECONDS = 0.005
PATIENCE = 30.0

HEAVY = ("litellm", "boto3", "botocore")
"""What nothing of these may load."""

API = (
    "root",
    "health",
    "whoami",
    "status",
    "message",
    "tasks",
    "task",
    "threads",
    "mail2",
    "swarms",
    "interswarm",
    "stream",
    "protocols",
)
OTHERS = ("dead_letter", "sweeper", "outbound", "peer_health", "turn")
"""The handlers, with and without FastAPI."""

PUBLISHING = ("message", "interswarm", "stream", "protocols", "dead_letter", "sweeper", "outbound", "turn")
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
    client.get_item(TableName="mail", Key={"PK": {"S": text.text}})
    return text
handler = Mangum(app, lifespan="off")
client = Session().create_client("dynamodb")
"""
"""The least that a function behind the HTTP API does before its first request, and in it: one route, which reads an
item, and FastAPI, Mangum and botocore to serve it with."""

INIT, INIT_WITHOUT_HTTP = 1.2, 0.9
"""Import of a handler, in units of that floor (DESIGN, Budgets)."""

HEAVY_FOR_HANDLERS = ("litellm", "boto3")

ROOT = Path(__file__).resolve().parent.parent

INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of new interpreters: modules are compiled once this has run before, as pip compiles what it installs.
"""

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
    """Each import, command and start of a server in `repeats` new interpreters; each handler in half as many."""
    results: list[Result] = []
    for module in (BESIDE, *MODULES):
        try:
            results += _rows(f"import {module}", [_import(module) for _ in range(repeats)])
        except subprocess.CalledProcessError as error:
            results.append(Skipped("imports", f"import {module}: {_last_line(error)}"))
    for part in (_commands, _starts, _handlers):
        try:
            results += part(repeats)
        except (subprocess.CalledProcessError, TimeoutError) as error:
            results.append(Skipped("imports", f"{part.__name__[1:]}: {_last_line(error)}"))
    return results


def initialise(handler: str | None) -> Import:
    """What a function does before its first invocation, or the floor of it. Raises CalledProcessError.

    The environment is that of a function; modules are compiled, as they are in a layer, once this has run before.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "src"),
        **function_environment(handler),
    }
    code = HANDLER_FLOOR if handler is None else f"import handlers.{handler}"
    return _probe(code, HEAVY_FOR_HANDLERS, env=environment, cwd=ROOT / "swarm")


def function_environment(handler: str | None) -> dict[str, str]:
    """What the template sets for a function, or for the floor."""
    queues = ",".join(f"https://queue.example/turns-{tier}.fifo" for tier in range(1, 6))
    return {
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "MAIL_TABLE": "mail",
        "MAIL_TURN_QUEUES": queues if handler in PUBLISHING else "",
        "MAIL_SERVES_MAIL2": str(handler == "mail2").lower(),
        "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
    }


def _handlers(repeats: int) -> list[Row]:
    """Every handler, in turns with the floor."""
    handlers = (*API, *OTHERS)
    for handler in (None, *handlers):
        initialise(handler)
    rounds = [
        (initialise(None), {handler: initialise(handler) for handler in handlers})
        for _ in range((repeats + 1) // 2)
    ]
    floors = [floor for floor, _ in rounds]
    rows = [_figure("floor of handlers: FastAPI, Mangum, botocore", floors)]
    for handler in handlers:
        ours = [each[handler] for _, each in rounds]
        budget = INIT if handler in API else INIT_WITHOUT_HTTP
        rows += _rows(f"import handlers.{handler}", ours, HEAVY_FOR_HANDLERS, floors, budget)
    return rows


def _last_line(error: Exception) -> str:
    lines = str(getattr(error, "stderr", error)).strip().splitlines()
    return lines[-1] if lines else repr(error)


def _import(module: str) -> Import:
    return _probe(f"import {module}", HEAVY, env=INSTALLED)


def _probe(
    code: str, heavy: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Import:
    command = [sys.executable, "-c", PROBE.format(code=code, heavy=tuple(heavy))]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return Import(**json.loads(done.stdout.splitlines()[-1]))


def _rows(
    name: str,
    imports: Sequence[Import],
    heavy: Sequence[str] = HEAVY,
    floors: Sequence[Import] = (),
    budget: float | None = None,
) -> list[Row]:
    loaded = sorted({module for one in imports for module in one.heavy})
    unwanted = f"{name}: of {', '.join(heavy)}"
    rows = [
        _figure(name, imports, floors, budget),
        Row("imports", unwanted, len(loaded), "loaded", budget=0, exact=True, note=", ".join(loaded)),
    ]
    if name == "import mail":
        rows.append(Row("imports", f"{name}: modules", imports[0].modules, "", budget=A_DOZEN, exact=True))
    return rows


def _figure(
    name: str, imports: Sequence[Import], floors: Sequence[Import] = (), budget: float | None = None
) -> Row:
    ratio = (
        median(one.cpu / floor.cpu for one, floor in zip(imports, floors, strict=True)) if floors else None
    )
    note = f"{imports[0].modules} modules, {median(one.wall for one in imports) * 1e3:.0f} ms"
    return Row(
        "imports", name, median(one.cpu for one in imports) * 1e3, "ms CPU", budget, note=note, ratio=ratio
    )


def _commands(repeats: int) -> list[Row]:
    """Wall and CPU seconds of whole processes, from start to end."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, code in COMMANDS.items():
            wall, cpu = time.perf_counter(), _children()
            command = [sys.executable, "-c", code]
            subprocess.run(command, env=INSTALLED, capture_output=True, text=True, check=True)
            samples[name].append((time.perf_counter() - wall, _children() - cpu))
    return [
        Row(
            "imports",
            f"{name}: the process",
            median(cpu for _, cpu in taken) * 1e3,
            "ms CPU",
            ratio=median(cpu / bare for (_, cpu), (_, bare) in zip(taken, samples[BARE], strict=True)),
            note=f"{median(wall for wall, _ in taken) * 1e3:.0f} ms",
        )
        for name, taken in samples.items()
    ]


def _children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _starts(repeats: int) -> list[Row]:
    """From the start of a server's process to the first answer of its `GET /health`."""
    with scratch() as folder:
        starts = [(start(SERVER_FLOOR, folder), start(SERVER, folder)) for _ in range(repeats)]
    rows = []
    for name, which in (("an empty FastAPI application", 0), ("mail server", 1)):
        wall, cpu = (median(pair[which][kind] for pair in starts) * 1e3 for kind in (0, 1))
        ratio = median(pair[which][1] / pair[0][1] for pair in starts)
        rows += [
            Row("imports", f"{name}: to its first answer", wall, "ms"),
            Row(
                "imports",
                f"{name}: to its first answer, CPU",
                cpu,
                "ms CPU",
                budget=START if which else None,
                ratio=ratio,
            ),
        ]
    return rows


def start(code: str, folder: Path) -> tuple[float, float]:
    """Start a server; wall and CPU seconds to the first 200 of its `GET /health`. Raises TimeoutError."""
    port = free_port()
    command = [sys.executable, "-c", code, "server", "--port", str(port)]
    begin = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=INSTALLED, stdout=quiet, stderr=quiet) as process:
        try:
            while not _is_healthy(port):
                if process.poll() is not None or time.perf_counter() - begin > PATIENCE:
                    raise TimeoutError("the server does not answer")
                time.sleep(LOOK_SECONDS)
            wall = time.perf_counter() - begin
            times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            return wall, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        finally:
            process.terminate()


def _is_healthy(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(HEALTH)
            return connection.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
