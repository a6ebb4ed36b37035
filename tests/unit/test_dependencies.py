"""What `src` imports is declared in pyproject.toml."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OUR_OWN = {folder.name for folder in (ROOT / "src").iterdir()}

UNDECLARED = {
    "aiohttp": "a program that passes a session of it has it",
    "openai": "its type is returned where it is installed",
    "pydantic_core": "pydantic pins one version of it, and documents it as its part",
    "pytest": "it runs `mail.testing.contracts`",
    "yarl": "aiohttp has it",
}
"""Imports that need no declaration, and why."""


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level names of the modules that are imported while a program runs."""
    match tree:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            for each in tree.orelse:
                yield from imports_of(each)
        case ast.Import():
            yield from (each.name.partition(".")[0] for each in tree.names)
        case ast.ImportFrom():
            yield str(tree.module).partition(".")[0]
        case ast.expr():
            pass
        case _:
            for each in ast.iter_child_nodes(tree):
                yield from imports_of(each)


@cache
def imported() -> dict[str, str]:
    """Return a file of each module that is neither ours nor Python's."""
    found = {
        name: str(path.relative_to(ROOT))
        for path in SOURCES
        for name in imports_of(ast.parse(path.read_text(encoding="utf-8")))
    }
    return {name: path for name, path in found.items() if name not in OUR_OWN | sys.stdlib_module_names}


def declared() -> set[str]:
    """Return the names of the distributions in `dependencies` and in the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] + [
        line for lines in project["optional-dependencies"].values() for line in lines
    ]
    assert all(">=" in line for line in lines), "a lower bound is missing"
    return {normalized(re.split(r"[\[<>=]", line)[0]) for line in lines}


def normalized(name: str) -> str:
    """Return a distribution's name in the form of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_declared() -> None:
    known, distributions = declared(), packages_distributions()
    assert {
        name: path
        for name, path in imported().items()
        if name not in UNDECLARED and known.isdisjoint(map(normalized, distributions.get(name, [name])))
    } == {}


def test_every_exception_is_still_imported() -> None:
    assert UNDECLARED.keys() <= imported().keys()


def test_imports_for_types_are_left_out() -> None:
    code = "if TYPE_CHECKING:\n import a.b\nelse:\n import c\ndef f():\n from d.e import g"
    assert list(imports_of(ast.parse(code))) == ["c", "d"]


@pytest.mark.parametrize(
    ("name", "others"), [("litellm[mcp]", ("extra-llm.txt", "lambda-turn.txt")), ("uvicorn", ("run.txt",))]
)
def test_libraries_whose_inner_parts_are_used_stay_between_the_versions_that_are_tested(
    name: str, others: tuple[str, ...]
) -> None:
    """Their releases may change them: no version is allowed below the lowest one that is pinned, or beyond the others.

    For a newer one, run `tests/factories` for litellm, and `test_uvicorn_parts.py` and `test_http_connections.py` for
    uvicorn.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (bounds,) = re.findall(rf'"{re.escape(name)}>=([\d.]+),<([\d.]+)"', text)

    def pinned(file: str) -> tuple[int, ...]:
        pins = (ROOT / "requirements" / file).read_text(encoding="utf-8")
        found = re.search(rf"^{name.partition('[')[0]}(?:\[mcp\])?==(\d+)\.(\d+)", pins, re.MULTILINE)
        assert found is not None, file
        return tuple(map(int, found.groups()))

    lowest, upper = (tuple(map(int, bound.split("."))) for bound in bounds)
    assert lowest == pinned("lowest.txt")
    major, minor = pinned("dev.txt")
    assert upper == (major, minor + 1)
    assert {pinned(file) for file in others} == {(major, minor)}
