"""Hooks of mkdocs.yml, and llms.txt: both follow from docs/README.md, the index of the documentation.

    python scripts/docs_site.py            write docs/llms.txt
    python scripts/docs_site.py --check    write nothing; exit with 1 if it is not up to date

The navigation of the site is the sections of the index. Pages link to files outside docs/, as on any page of a
repository: these files become part of the site below `repository/`, so that no link leaves it. So does Mermaid, which
draws the diagrams: readers load nothing from another host.
"""

import posixpath
import re
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
LLMS = DOCS / "llms.txt"
OUTSIDE = "repository"

MERMAID = "assets/javascripts/mermaid.min.js"
MERMAID_PACKAGE = "artoo_mermaid"
"""A package with that file and nothing else that we use: from the package index, as it is too large for a repository.
"""

MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""The digest of `dist/mermaid.min.js` in Mermaid's own release 11.16.0."""

MERMAID_LICENSE = Path(__file__).with_name("mermaid.LICENSE.txt")

FOUND_FIRST = (
    *("actions.md", "agents.md", "drafts.md", "guards.md", "identity.md", "javascript.md", "models.md"),
    *("observability.md", "openai.md", "production.md", "skills.md"),
)
"""The pages about what newcomers look for, which the search lists before others that mention it."""

_SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\d+\. \[(.+?)\]\((\S+?)\): (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| \[(.+?)\]\((\S+?)\) \| (.+?) \|$", re.MULTILINE)
_NUMBER = re.compile(r"/(\d+)-[^/]+$")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_FENCE = re.compile(r"^( *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """Return the title, path and description of every page in the index, by section."""
    text = INDEX.read_text(encoding="utf-8")
    return {title: [*_STEP.findall(part), *_ROW.findall(part)] for title, part in _SECTION.findall(text)}


def llms_txt() -> str:
    """Return llms.txt (https://llmstxt.org): a summary of MAIL, and a list of the pages."""
    summary = re.findall(r"^# Documentation\n\n(.+?)\n\n", INDEX.read_text(encoding="utf-8"), re.DOTALL)[0]
    lines = ["# MAIL", "", *(f"> {line}" for line in summary.splitlines())]
    for title, pages in sections().items():
        lines += ["", f"## {title}", ""]
        for name, path, description in pages:
            plain = re.sub(r"\[(.+?)\]\(\S+?\)", r"\1", description)
            lines.append(f"- [{name}]({path}): {plain}")
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------- hooks of mkdocs


def on_config(config: Any) -> Any:
    """Fill the navigation."""
    config.nav = [{"Home": "README.md"}]
    for title, pages in sections().items():
        # the steps have the numbers of their files
        named = [
            (f"{step[1]}. {name}" if (step := _NUMBER.search(path)) else name, path)
            for name, path, _ in pages
        ]
        config.nav.append({title: [{name: _page(path)} for name, path in named]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add Mermaid, every file outside docs/ that a page links to, and those that they link to."""
    from mkdocs.structure.files import File, InclusionLevel

    files.append(File.generated(config, MERMAID, abs_src_path=str(_mermaid())))
    files.append(File.generated(config, f"{MERMAID}.LICENSE.txt", abs_src_path=str(MERMAID_LICENSE)))
    waiting = list(DOCS.rglob("*.md"))
    seen = set()
    while waiting:
        page = waiting.pop()
        for target in _outside(page):
            if target not in seen:
                seen.add(target)
                file = File.generated(config, f"{OUTSIDE}/{target}", abs_src_path=str(ROOT / target))
                file.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(file)
                if target.endswith(".md"):
                    waiting.append(ROOT / target)
    return files


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Load Mermaid on pages with diagrams, before the theme would load it from another host."""
    if 'class="mermaid"' not in html:
        return html
    source = posixpath.relpath(MERMAID, posixpath.dirname(page.url) or ".")
    return f'{html}\n<script src="{source}"></script>'


def _mermaid() -> Path:
    """Return the path of Mermaid. Raises RuntimeError if it is not installed, or not the release that we know."""
    package = find_spec(MERMAID_PACKAGE)
    if package is None or package.origin is None:
        raise RuntimeError("Mermaid is not installed: python3 scripts/dev.py tools docs")
    path = Path(package.origin).parent / "assets" / Path(MERMAID).name
    if (digest := sha256(path.read_bytes()).hexdigest()) != MERMAID_SHA256:
        raise RuntimeError(
            f"{path} has the SHA-256 {digest}; compare it with that of Mermaid's release, and set MERMAID_SHA256"
        )
    return path


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at the places that files have in the site."""
    uri = page.file.src_uri
    if uri in FOUND_FIRST:
        page.meta["search"] = {"boost": 3}
    here = uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}"
    if uri == INDEX.name:
        return f"{_pointed(_pitch(), 'README.md', uri)}\n{_pointed(markdown[markdown.index('## ') :], here, uri)}"
    return _pointed(markdown, here, uri)


def _pointed(markdown: str, here: str, uri: str) -> str:
    """Return the text of the file `here`, with links as they are on the page `uri` of the site."""

    def point(link: re.Match[str]) -> str:
        path, hash_, anchor = link[1].partition("#")
        if "://" in link[1] or not path:
            return link[1]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        return posixpath.relpath(_page(target, "."), posixpath.dirname(uri) or ".") + hash_ + anchor

    parts = _FENCE.split(markdown)
    return "".join(part if n % 2 else _LINK.sub(point, part) for n, part in enumerate(parts))


def _pitch() -> str:
    """Return what MAIL is, in the words of the repository's README: the pitch, a picture, the comparison and code."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = dict(_SECTION.findall(text))["With a model"]
    return f"{text.partition('## Try it')[0]}## With a model\n{code}".replace('src="docs/', 'src="')


def _page(path: str, base: str = "docs") -> str:
    """Return the place in the site of a file, by its path in the repository from a folder."""
    target = posixpath.normpath(posixpath.join(base, path))
    return target.removeprefix("docs/") if target.startswith("docs/") else f"{OUTSIDE}/{target}"


def _outside(page: Path) -> set[str]:
    """Return the files outside docs/ that a page links to, by their paths in the repository."""
    found = set()
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        path = link.partition("#")[0]
        if path and "://" not in path:
            target = (page.parent / path).resolve()
            if target.is_file() and DOCS not in target.parents:
                found.add(target.relative_to(ROOT).as_posix())
    return found


def main(arguments: list[str]) -> int:
    """Write or check llms.txt."""
    if "--check" in arguments:
        if LLMS.read_text(encoding="utf-8") == llms_txt():
            return 0
        print("docs/llms.txt is not up to date: python scripts/docs_site.py", file=sys.stderr)
        return 1
    LLMS.write_text(llms_txt(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
