"""docs/actions.md: its pieces run, and print what it says."""

import pytest
from support.processes.document_samples import DOCS, run_in_order

from mail import Approval

DOCUMENT = DOCS / "actions.md"


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_in_order(DOCUMENT, capsys) == 1


def test_every_setting_of_reviewers() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in Approval.model_fields:
        assert f"`{name}`" in text
