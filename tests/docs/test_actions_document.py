"""docs/actions.md: it names every setting of reviewers; `test_document_samples` runs its samples."""

from support.processes.document_samples import DOCS

from mail import Approval

DOCUMENT = DOCS / "actions.md"


def test_every_setting_of_reviewers() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in Approval.model_fields:
        assert f"`{name}`" in text
