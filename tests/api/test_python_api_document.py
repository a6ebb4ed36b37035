"""docs/python-api.md: its pieces run, in order, and print what they say."""

from typing import Any

import pytest
from support.processes.document_samples import DOCS, blocks, run

DOCUMENT = DOCS / "python-api.md"


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "document"}
    for _, code in blocks(DOCUMENT, "python"):
        await run(code, namespace)
    assert capsys.readouterr().out.splitlines() == [
        "Your tea is coming.",
        "task_complete",
        "task_complete",
        "Bob has heard 3",
    ]
    assert await namespace["take_from_stock"]({"drink": "tea"}) == "2 left"
    await namespace["running"]
