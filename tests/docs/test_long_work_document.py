"""docs/long-work.md: its sample runs, and its numbers hold."""

import pytest
from support.processes.document_samples import DOCS, run_in_order

from mail.core.task.callbacks import (
    LONGEST_WAIT,
    MAX_ARGUMENTS,
    MAX_CALLS_IN_A_TURN,
    MAX_OPEN_CALLS,
    MAX_PROGRESS,
)

DOCUMENT = DOCS / "long-work.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_in_order(DOCUMENT, capsys) == 2


def test_every_limit() -> None:
    for limit in (MAX_OPEN_CALLS, MAX_PROGRESS):
        assert f"{limit:,}" in TEXT
    assert f"begins at most {MAX_CALLS_IN_A_TURN}" in TEXT
    assert f"{MAX_ARGUMENTS // 1024} KiB" in TEXT
    assert f"at most {LONGEST_WAIT / 86_400:.0f} days" in TEXT
