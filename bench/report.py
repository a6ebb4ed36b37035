"""Results: one row per figure, a table for people, JSON for programs."""

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        group: the part of the bench it comes from.
        budget: the most that it may be; None where nothing is promised.
        exact: whether it is a count, the same in every run; only those are tested.
    """

    group: str
    name: str
    value: float
    unit: str
    budget: float | None = None
    exact: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None where there is none."""
        return None if self.budget is None else self.value <= self.budget


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part that could not run, and why."""

    group: str
    reason: str


Result = Row | Skipped


def table(results: Iterable[Result]) -> str:
    """The rows as text, one line each, a blank line between groups."""
    results = list(results)
    width = max((len(row.name) for row in results if isinstance(row, Row)), default=0)
    lines = [f"{'':{width + 26}}budget"]
    group = ""
    for result in results:
        if result.group != group:
            group = result.group
            lines += ["", group]
        if isinstance(result, Skipped):
            lines.append(f"  skipped: {result.reason}")
            continue
        verdict = {True: "met", False: "MISSED", None: ""}[result.met]
        budget = "" if result.budget is None else f"≤ {result.budget:g} {verdict}"
        line = f"  {result.name:{width}}{_number(result.value):>12} {result.unit:9}  {budget:16}{result.note}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def write_json(path: Path, results: Iterable[Result], mode: str) -> None:
    """Write the results, with what is needed to compare them with those of another day or machine."""
    results = list(results)
    document: dict[str, Any] = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": mode,
        "machine": machine(),
        "rows": [{**asdict(row), "met": row.met} for row in results if isinstance(row, Row)],
        "skipped": [asdict(part) for part in results if isinstance(part, Skipped)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_build": "optimised (PGO)" if _is_optimised() else "plain (no PGO): Python code runs slower",
        "sqlite": sqlite3.sqlite_version,
        "executable": sys.executable,
    }


def _is_optimised() -> bool:
    import sysconfig

    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
