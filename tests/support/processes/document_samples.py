"""The blocks of a document: found, and the Python among them run as a reader would, from top to bottom."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each block in one of these languages."""
    for language, text in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if language in languages:
            yield language, text


async def run_in_order(
    document: Path, capsys: pytest.CaptureFixture[str], namespace: dict[str, Any] | None = None
) -> int:
    """Run the `python` blocks in one namespace. An `output` block is just what the one before it has printed.

    Returns how many outputs there were.
    """
    space = {"__name__": "document"} if namespace is None else namespace
    printed, expected = "", 0
    for language, text in blocks(document, "python", "output"):
        if language == "output":
            assert printed == text
            expected += 1
            continue
        compiled = compile(text, document.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if inspect.isawaitable(result := eval(compiled, space)):
            await result
        printed = capsys.readouterr().out
    return expected
