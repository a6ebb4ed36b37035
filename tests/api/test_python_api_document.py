"""docs/python-api.md: its pieces run, in order, and print what they say."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "python-api.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "document"}
    for code in _BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")):
        compiled = compile(code, DOCUMENT.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(compiled, namespace)
        if inspect.isawaitable(result):
            await result
    assert capsys.readouterr().out.splitlines() == [
        "Your tea is coming.",
        "task_complete",
        "task_complete",
        "Bob has heard 3",
    ]
    assert await namespace["take_from_stock"]({"drink": "tea"}) == "2 left"
    await namespace["running"]
