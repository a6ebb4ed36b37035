"""Results: one row per figure, beside what it was before; a table for people, JSON for programs."""

import json
import os
import platform
import sqlite3
import subprocess
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

LATEST = RESULTS / "latest.json"
"""The last run on this machine; not in the repository."""

BEFORE = RESULTS / "before.json"
"""The run that later ones are compared with, in the repository; `--keep` writes it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        group: the part of the bench it comes from.
        budget: the most that the ratio, or else the figure, may be; None where nothing is promised.
        exact: whether it is a count, the same in every run; only those are tested.
        ratio: the figure in units of its floor, measured in the same run; None for what has no floor.
    """

    group: str
    name: str
    value: float
    unit: str
    budget: float | None = None
    exact: bool = False
    note: str = ""
    ratio: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None where there is none."""
        if self.budget is None:
            return None
        return (self.value if self.ratio is None else self.ratio) <= self.budget


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part that could not run, and why."""

    group: str
    reason: str


Result = Row | Skipped


def table(results: Iterable[Result], before: dict[str, Any]) -> str:
    """The machine, and the rows beside those of an earlier run, as `write_json` wrote it."""
    results = list(results)
    earlier = {(row["group"], row["name"]): row for row in before.get("rows", ())}
    width = max((len(row.name) for row in results if isinstance(row, Row)), default=0)
    lines = [f"now     {_describe(machine())}, load {os.getloadavg()[0]:.1f}"]
    if before:
        lines.append(
            f"before  {_describe(before['machine'])}, at {before['commit']}, {before['finished'][:10]}"
        )
    lines += ["", f"{'':{width}}{'figure':>14}{'× floor':>19}{'before':>11}  budget"]
    group = ""
    for result in results:
        if result.group != group:
            group = result.group
            lines += ["", group]
        if isinstance(result, Skipped):
            lines.append(f"  skipped: {result.reason}")
            continue
        was = earlier.get((result.group, result.name), {})
        verdict = {True: "met", False: "MISSED", None: ""}[result.met]
        budget = "" if result.budget is None else f"≤ {result.budget:g} {verdict}"
        line = (
            f"  {result.name:{width}}{_number(result.value):>12} {result.unit:9}{_number(result.ratio):>9}"
            f"{_number(was.get('value' if result.ratio is None else 'ratio')):>11}  {budget:15}{result.note}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def write_json(path: Path, results: Iterable[Result], mode: str) -> None:
    """Write the results, with what is needed to compare them with those of another day or machine."""
    results = list(results)
    document: dict[str, Any] = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "mode": mode,
        "machine": machine(),
        "rows": [{**asdict(row), "met": row.met} for row in results if isinstance(row, Row)],
        "skipped": [asdict(part) for part in results if isinstance(part, Skipped)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; empty if it has not been written."""
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return document


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "sqlite": sqlite3.sqlite_version,
    }


def python_build() -> str:
    """How the interpreter was built: without these, Python code runs slower, and our ratio to a floor in C is
    higher.
    """
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return ", ".join(
        (
            "PGO" if "--enable-optimizations" in options else "no PGO",
            "LTO" if "--with-lto" in options else "no LTO",
            "shared library" if sysconfig.get_config_var("Py_ENABLE_SHARED") else "static",
        )
    )


def _describe(facts: dict[str, Any]) -> str:
    return (
        f"Python {facts['python']} ({facts['python_build']}), SQLite {facts['sqlite']}, "
        f"{facts['cores']} × {facts['cpu']}"
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
