"""The bench runs, says what it should, and its counts keep their budgets. Times are never tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]  # on a busy machine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of a minimal run."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    command = [sys.executable, "-m", "bench", "--minimal", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "SQL statements per turn" in done.stdout
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_no_part_is_skipped(results: dict[str, Any]) -> None:
    assert results["skipped"] == []
    assert {row["group"] for row in results["rows"]} == {"engine", "counts", "http", "imports"}


def test_results_tell_the_machine(results: dict[str, Any]) -> None:
    assert results["mode"] == "minimal"
    assert results["machine"].keys() >= {"cpu", "cores", "python", "python_build", "sqlite"}


def test_every_row_has_a_name_of_its_own_and_a_number(results: dict[str, Any]) -> None:
    names = [(row["group"], row["name"]) for row in results["rows"]]
    assert len(set(names)) == len(names)
    assert all(isinstance(row["value"], int | float) and row["value"] >= 0 for row in results["rows"])


def test_budgets_are_judged(results: dict[str, Any]) -> None:
    for row in results["rows"]:
        figure = row["value"] if row["ratio"] is None else row["ratio"]
        assert row["met"] == (None if row["budget"] is None else figure <= row["budget"])


def test_what_is_counted_keeps_its_budget(results: dict[str, Any]) -> None:
    counted = [row for row in results["rows"] if row["exact"] and row["budget"] is not None]
    assert len(counted) >= 5
    assert [row for row in counted if not row["met"]] == []
