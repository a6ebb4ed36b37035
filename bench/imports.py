"""What a fresh interpreter pays for its imports."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.report import Result, Row, Skipped

MODULES = ("mail", "mail.core.runtime", "mail.bootstrap", "mail.http.app", "mail.server")
"""What is imported, each alone; `fastapi` is measured beside them, as most of what `mail.http` costs is its."""

BESIDE = "fastapi"

COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "mail version": ("-c", "import sys; from mail.cli import main; sys.argv = ['mail', 'version']; main()"),
}
"""Whole processes: the bare interpreter, and what the console script does."""

HEAVY = ("litellm", "boto3", "botocore")
"""What nothing measured here may load."""

PROBE = """
import json, sys, time
before = len(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
import {module}
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
    return results


def _last_line(error: subprocess.CalledProcessError) -> str:
    lines = str(error.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {error.returncode}"


def _import(module: str) -> Import:
    code = PROBE.format(module=module, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return Import(**json.loads(done.stdout))


def _rows(name: str, imports: Sequence[Import]) -> list[Row]:
    heavy = sorted({module for one in imports for module in one.heavy})
    return [
        Row("imports", f"{name}: CPU", median(one.cpu for one in imports) * 1e3, "ms CPU"),
        Row("imports", f"{name}: wall", median(one.wall for one in imports) * 1e3, "ms"),
        Row("imports", f"{name}: modules", median(one.modules for one in imports), "", exact=True),
        Row(
            "imports",
            f"{name}: of {', '.join(HEAVY)}",
            len(heavy),
            "loaded",
            budget=0,
            exact=True,
            note=", ".join(heavy),
        ),
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
