"""docs/files.md: its sample runs."""

import pytest
from support.processes.document_samples import DOCS, run_in_order


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_in_order(DOCS / "files.md", capsys) == 1
