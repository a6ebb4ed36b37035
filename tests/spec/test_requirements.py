"""Every MUST of SPEC.md has an id, and every id has its tests or the issue that will bring them."""

import ast
import re
from functools import cache
from typing import Any

import yaml
from spec_folder import ROOT, SPEC

TEXT = (SPEC / "SPEC.md").read_text(encoding="utf-8")
REQUIREMENTS: dict[str, Any] = yaml.safe_load((SPEC / "requirements.yaml").read_text(encoding="utf-8"))
LATER_ISSUES = range(3, 9)

_ITEM = re.compile(r"^- \*\*\[([A-Z]+-\d+)\]\*\* (.*(?:\n  .*)*)", re.MULTILINE)
"""A requirement: a list item that begins with its id; its further lines are indented."""


def test_every_id_is_mapped_and_every_mapped_id_exists() -> None:
    assert set(REQUIREMENTS) == {found[1] for found in _ITEM.finditer(TEXT)}


def test_ids_are_unique_and_numbered_in_order() -> None:
    ids = [found[1].split("-") for found in _ITEM.finditer(TEXT)]
    numbers: dict[str, list[int]] = {}
    for prefix, number in ids:
        numbers.setdefault(prefix, []).append(int(number))
    for prefix, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), prefix
    assert list(REQUIREMENTS) == ["-".join(each) for each in ids], "keep the map in the order of SPEC.md"


def test_every_must_has_an_id_and_every_id_a_must() -> None:
    for found in _ITEM.finditer(TEXT):
        assert re.search(r"\bMUST\b", found[2]), f"{found[1]} demands nothing"
    _, _, rest = _ITEM.sub("", TEXT).partition("## 2 ")
    bare = [line for line in rest.splitlines() if re.search(r"\bMUST( NOT)?\b", line)]
    assert not bare, "a MUST without an id"


def test_each_requirement_names_tests_that_exist_or_an_issue_to_come() -> None:
    for requirement, entry in REQUIREMENTS.items():
        if isinstance(entry, dict):
            assert list(entry) == ["issue"], requirement
            assert entry["issue"] in LATER_ISSUES, requirement
            continue
        assert entry, f"{requirement} has no test and no issue"
        assert len(entry) == len(set(entry)), f"{requirement} names a test twice"
        missing = [node for node in entry if not _exists(node)]
        assert not missing, f"{requirement} names tests that don't exist"


def _exists(node: str) -> bool:
    path, _, names = node.partition("::")
    return bool(names) and names in _tests_of(path)


@cache
def _tests_of(path: str) -> frozenset[str]:
    """The node ids below a test file, less the file's own name: `test_x`, `TestY`, `TestY::test_z`."""
    if not (ROOT / path).is_file() or not path.startswith(("tests/", "src/mail/testing/")):
        return frozenset()
    names: set[str] = set()
    for statement in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and [each.name for each in statement.names] == ["*"]:
            names |= _tests_of(f"src/{str(statement.module).replace('.', '/')}.py")
        for name in _bound(statement):
            names.add(name)
            if isinstance(statement, ast.ClassDef):
                names |= {f"{name}::{inner}" for each in statement.body for inner in _bound(each)}
    return frozenset(name for name in names if name.lower().startswith("test"))


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement defines; assignments count for Hypothesis' `TestX = Machine.TestCase`."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def test_a_test_is_found_by_its_node_id_only() -> None:
    here = "tests/spec/test_requirements.py"
    assert _exists(f"{here}::test_a_test_is_found_by_its_node_id_only")
    assert not _exists(f"{here}::test_that_nobody_wrote")
    assert not _exists(here)
    assert not _exists("tests/spec/test_nothing.py::test_a_test_is_found_by_its_node_id_only")
    assert not _exists("src/mail/errors.py::test_x")
