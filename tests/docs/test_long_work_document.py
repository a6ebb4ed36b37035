"""docs/long-work.md: its numbers hold."""

from support.processes.document_samples import DOCS

from mail.core.task.callbacks import (
    LONGEST_WAIT,
    MAX_ARGUMENTS,
    MAX_CALLS_IN_A_TURN,
    MAX_OPEN_CALLS,
    MAX_PROGRESS,
)

DOCUMENT = DOCS / "long-work.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_every_limit() -> None:
    for limit in (MAX_OPEN_CALLS, MAX_PROGRESS):
        assert f"{limit:,}" in TEXT
    assert f"begins at most {MAX_CALLS_IN_A_TURN}" in TEXT
    assert f"{MAX_ARGUMENTS // 1024} KiB" in TEXT
    assert f"at most {LONGEST_WAIT / 86_400:.0f} days" in TEXT
