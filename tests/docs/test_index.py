"""docs/README.md, the index, names every document; and each topic has one."""

import re
from pathlib import Path

import pytest
from document_samples import DOCS, ROOT

INDEX = DOCS / "README.md"
TOPICS = [
    "quickstart",
    "deploy",
    "architecture",
    "configuration",
    "storage",
    "api",
    "cli",
    "client",
    "message-format",
    "agents-and-tools",
    "factories",
    "interswarm",
    "registry",
    "stdlib/README",
    "security",
    "testing",
    "examples",
    "troubleshooting",
    "manual-mode",
]


def links(text: str) -> set[str]:
    return {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target}


def test_every_document_is_in_the_index() -> None:
    named = links(INDEX.read_text(encoding="utf-8"))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.is_file()}
    pictures = {path for path in there if path.startswith("images/")}
    assert there - pictures - {"README.md"} <= named


def test_every_picture_is_shown_and_small() -> None:
    shown = set[str]().union(*(links(path.read_text(encoding="utf-8")) for path in DOCS.glob("*.md")))
    for path in (DOCS / "images").iterdir():
        assert f"images/{path.name}" in shown
        assert path.stat().st_size <= 150_000


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_document(topic: str) -> None:
    text = (DOCS / f"{topic}.md").read_text(encoding="utf-8")
    assert len(text) > 2000


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_whatever_is_named_is_there(path: Path) -> None:
    """Links are checked with the commands; here are the paths of this repository that are only written out."""
    text = path.read_text(encoding="utf-8")
    for name in re.findall(
        r"`((?:src|tests|spec|scripts|swarm|events|layers|requirements|bench)/[\w./-]+)`", text
    ):
        assert (ROOT / name).exists(), name
