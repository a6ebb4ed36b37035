"""Documents are in plain English: these phrases, which a native writer doesn't use, are in none of them."""

import re
from pathlib import Path

import pytest
from support.processes.document_samples import DOCS, ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "spec/SPEC.md", "spec/openapi.yaml")),
    *sorted(DOCS.rglob("*.md")),
]
PHRASES = re.compile(
    r"\b((is|are|be|was) told|of old|goes on|whoever|anew|is no such|whose key|all else|at hand|none of its own|"
    r"only one time|by the prices|is kept of|begins with no)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plain_english(page: Path) -> None:
    words = " ".join(page.read_text(encoding="utf-8").split())
    assert [words[max(0, found.start() - 40) : found.end() + 40] for found in PHRASES.finditer(words)] == []
