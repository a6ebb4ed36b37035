"""The samples of pages that need nothing but Python run, and print what the pages say."""

import pytest
from support.processes.document_samples import DOCS, run_in_order


@pytest.mark.parametrize(
    ("page", "outputs"),
    [("actions", 1), ("files", 1), ("guards", 1), ("long-work", 2), ("message-format", 4)],
)
async def test_every_piece(capsys: pytest.CaptureFixture[str], page: str, outputs: int) -> None:
    assert await run_in_order(DOCS / f"{page}.md", capsys) == outputs
