"""docs/README.md, the index, names every document; and each topic has one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import forkserver
from support.processes.document_samples import DOCS, ROOT

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
    "actions",
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
    pages = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    for path in (DOCS / "images").iterdir():
        assert any(f"images/{path.name}" in page for page in pages)
        assert path.stat().st_size <= (600_000 if path.suffix == ".webp" else 150_000), (
            "a recording may be larger"
        )


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_document(topic: str) -> None:
    text = (DOCS / f"{topic}.md").read_text(encoding="utf-8")
    assert len(text) > 2000


def test_the_readme_leads_to_the_index_and_the_path() -> None:
    named = links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {"docs/README.md", "docs/learn/1-hello-model.md"} <= named


def test_each_step_of_the_path_leads_to_the_next() -> None:
    steps = sorted((DOCS / "learn").glob("*.md"))
    listed = re.findall(r"^\d\. \[.+?\]\(learn/(.+?)\)", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert [step.name for step in steps] == listed
    for step, after in zip(steps, [*steps[1:], INDEX], strict=True):
        last = step.read_text(encoding="utf-8").strip().splitlines()[-1]
        assert after.name in last


SEARCHES = {
    "structured output": "agents.md",
    "logging": "observability.md",
    "rate limits": "api.md",
    "stream tokens browser": "javascript.md",
    "azure": "models.md",
    "bedrock": "models.md",
    "systemd": "production.md",
    "evals": "drafts.md",
    "guardrail": "guards.md",
    "typescript": "javascript.md",
    "agent skills": "skills.md",
    "nginx": "production.md",
}
"""What newcomers look for, in the words of the field, and where it is."""


@pytest.mark.parametrize(("query", "page"), SEARCHES.items(), ids=SEARCHES)
def test_the_search_finds_the_words_of_the_field(query: str, page: str) -> None:
    """It finds the sections that have all words; those in titles count more."""
    sections = re.split(r"^#+ ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    stems = [re.escape(word.removesuffix("s")) for word in query.split()]
    assert any(all(re.search(rf"\b{stem}", section, re.IGNORECASE) for stem in stems) for section in sections)


def test_the_sections_of_the_index() -> None:
    titles = re.findall(r"^## (.+)$", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == ["Start", "Build", "Run", "AWS", "Protocols", "Reference", "Libraries"]


def test_llms_txt_follows_from_the_index() -> None:
    assert (
        forkserver.run([sys.executable, "scripts/docs_site.py", "--check"], cwd=ROOT, env={}).returncode == 0
    )


@pytest.mark.soak
def test_every_page_and_link_of_the_site(tmp_path: Path) -> None:
    """mkdocs finds every page in the navigation, and the target of every link."""
    mkdocs = ROOT / ".tools" / "docs" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("mkdocs is not installed: python3 scripts/dev.py tools docs")
    command = [str(mkdocs), "build", "--strict", "--site-dir", str(tmp_path)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", check=False)
    assert built.returncode == 0, built.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert '<pre class="mermaid">' in pages[tmp_path / "architecture.html"]
    home = pages[tmp_path / "index.html"]
    assert all(
        part in home for part in ("A durable runtime", "images/studio.webp", "LangGraph", "Swarm", "Glossary")
    )
    for path, html in pages.items():
        loaded = re.findall(r"""<(?:script|link|img)\b[^>]*?\s(?:src|href)=["']?([^"'\s>]+)""", html)
        assert not [source for source in loaded if "//" in source], path
        mermaid = [n for n, source in enumerate(loaded) if source.endswith("/mermaid.min.js")]
        assert len(mermaid) == ('class="mermaid"' in html), path
        if mermaid:  # before the theme's own script, which would load it from another host
            assert (path.parent / loaded[mermaid[0]]).is_file()
            assert mermaid[0] < next(n for n, source in enumerate(loaded) if "/bundle." in source)
    assert (tmp_path / "assets/javascripts/mermaid.min.js.LICENSE.txt").is_file()
    assert (tmp_path / "repository" / "spec" / "SPEC.html").is_file()


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_whatever_is_named_is_there(path: Path) -> None:
    """Links are checked with the commands; here are the paths of this repository that are only written out."""
    text = path.read_text(encoding="utf-8")
    for name in re.findall(
        r"`((?:src|tests|spec|scripts|swarm|events|layers|requirements|bench)/[\w./-]+)`", text
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_diagrams_can_be_parsed(path: Path) -> None:
    """Mermaid reads a semicolon as the end of a statement, also inside of a message's text."""
    for diagram in re.findall(
        r"^```mermaid\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        assert ";" not in diagram
