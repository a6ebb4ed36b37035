"""What the functions need to start, as they are deployed: their built layers, under Lambda's runtime client and AWS's
emulator.

python3 scripts/dev.py build
python3 scripts/dev.py bench --only cold-starts
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.imports import API, HANDLER_FLOOR, INIT, INIT_WITHOUT_HTTP, OTHERS, ROOT, function_environment
from bench.report import Result, Row, Skipped

FLOOR = "HealthFunction"
"""Its layers are the floor's, but for botocore, which is there as pip installs it."""

PROBE = """
import json, os, sys, time
wall, cpu = time.perf_counter(), time.process_time()
code = os.environ["MEASURED"]
exec(code)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall

def handler(_event, _context):
    return {"cpu": cpu * 1e3, "wall": wall * 1e3, "modules": len(sys.modules)}
"""
"""Runs in place of the handler, and imports that."""

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
    """One initialisation: milliseconds of the processor and of the clock, and the modules of the process."""

    cpu: float
    wall: float
    modules: int


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
    with tempfile.TemporaryDirectory(prefix="mail-bench-") as name:
        folder = Path(name)
        (folder / "probe.py").write_text(PROBE, encoding="utf-8")
        (folder / "floor").mkdir()
        (folder / "floor" / "botocore").symlink_to(_installed("botocore"))
        for _ in range(rounds + 1):  # the first one warms the disk's cache
            starts.setdefault("", []).append(_start(None, folder))
            for handler in (*API, *OTHERS):
                starts.setdefault(handler, []).append(_start(handler, folder))
        for _ in range(rounds):
            for collector in ("on", "off"):
                litellm.setdefault(collector, []).append(_litellm(collector))
    best = {name: min(taken[1:], key=lambda start: start.cpu) for name, taken in starts.items()}
    floor = best.pop("")
    rows: list[Result] = [
        _row(f"floor: FastAPI, Mangum, botocore (minima of {rounds} rounds)", floor),
        *(
            _row(name, start, floor, INIT if name in API else INIT_WITHOUT_HTTP)
            for name, start in best.items()
        ),
    ]
    for collector, taken in litellm.items():
        rows.append(
            Row("cold-starts", f"import litellm, garbage collection {collector}", min(taken), "ms CPU")
        )
    return rows


def _row(name: str, start: Start, floor: Start | None = None, budget: float | None = None) -> Row:
    note = f"{start.modules} modules, {start.wall:.0f} ms"
    ratio = None if floor is None else start.cpu / floor.cpu
    return Row("cold-starts", name, start.cpu, "ms CPU", budget, note=note, ratio=ratio)


def _start(handler: str | None, folder: Path) -> Start:
    """Start a function once; the floor is None."""
    from support.engines.lambda_runtime import LambdaRuntime, built_function

    built = built_function(FLOOR if handler is None else handler.title().replace("_", "") + "Function")
    first = (folder,) if handler is not None else (folder, folder / "floor")
    interpreter = replace(built.interpreter, path=(*first, *built.interpreter.path))
    function = replace(built, handler="probe.handler", interpreter=interpreter)
    code = HANDLER_FLOOR if handler is None else f"import handlers.{handler}"
    environment = {**function_environment(handler), "MAIL_CONFIG_PATH": "mail.toml", "MEASURED": code}
    with LambdaRuntime(function, environment) as running:
        answer: dict[str, Any] = running.invoke({})
    return Start(**answer)


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
