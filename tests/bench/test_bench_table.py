"""The bench's table: each figure with its ratio, what it was before, and its budget."""

import json
import sysconfig
from pathlib import Path

import pytest

from bench import report
from bench.report import Row, Skipped

BEFORE = {
    "finished": "2026-11-22",
    "commit": "678eebb",
    "machine": {"python": "3.12.1", "python_build": "PGO", "sqlite": "3.40.1", "cores": 2, "cpu": "X"},
    "rows": [
        {"group": "engine", "name": "a turn", "value": 200.0, "ratio": 4.32},
        {"group": "counts", "name": "bytes", "value": 14420},
    ],
}


def line(rows: list[Row | Skipped], name: str) -> list[str]:
    """The words of a row of the table after its name."""
    found = next(text for text in report.table(rows, BEFORE).splitlines() if text.strip().startswith(name))
    return found.strip().removeprefix(name).split()


def test_a_ratio_stands_beside_the_ratio_before() -> None:
    row = Row("engine", "a turn", 130.0, "µs", budget=2.4, ratio=2.3)
    assert line([row], "a turn") == ["130", "µs", "2.30", "4.32", "≤", "2.4", "met"]


def test_a_count_stands_beside_the_count_before() -> None:
    assert line([Row("counts", "bytes", 14_000, "bytes")], "bytes") == ["14,000", "bytes", "14,420"]


def test_a_figure_that_is_new_has_none_before() -> None:
    assert line([Row("engine", "another", 7, "µs")], "another") == ["7", "µs"]


def test_a_budget_is_for_the_ratio_if_there_is_one() -> None:
    assert Row("engine", "a turn", 130.0, "µs", budget=2.4, ratio=2.5).met is False
    assert Row("engine", "a turn", 130.0, "µs", budget=2.4).met is False
    assert Row("engine", "a turn", 2.0, "ms", budget=2.4).met is True
    assert Row("engine", "a turn", 130.0, "µs").met is None


def test_a_part_that_did_not_run_says_why() -> None:
    assert line([Skipped("aws", "no ministack")], "skipped:") == ["no", "ministack"]


def test_the_table_says_which_interpreter_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    now, before, *_ = report.table([], BEFORE).splitlines()
    assert report.python_build() in now
    assert "at 678eebb, 2026-11-22" in before
    optimized = {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'", "Py_ENABLE_SHARED": 0}
    monkeypatch.setattr(sysconfig, "get_config_var", optimized.get)
    assert report.python_build() == "PGO, LTO, static"


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    report.write_json(path, [Row("engine", "a turn", 1.5, "µs", ratio=2.0)], "full")
    kept = report.read_json(path)
    assert report.table([Row("engine", "a turn", 3.0, "µs", ratio=4.0)], kept).splitlines()[-1].split()[
        -2:
    ] == ["4", "2"]
    assert "/" not in json.dumps(kept["machine"])


def test_figures_before_are_in_the_repository() -> None:
    rows = report.read_json(report.BEFORE)["rows"]
    assert {row["group"] for row in rows} >= {"engine", "counts", "http", "imports", "aws"}
