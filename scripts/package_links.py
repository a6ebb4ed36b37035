"""Give the package links to its repository, in the checkout that it is built from; the release does that.

    python scripts/package_links.py https://git.example/owner/mail v1.3.0

A package index shows the README without the repository, whose address no file here has. The README's links and pictures
lead to the files of that tag then, and pyproject.toml names the repository, too.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

_LINK = re.compile(r'(\]\(|src=")(?!https?:|#)([^)"\s]+)')
_PROJECT = "[project.scripts]\n"


def link(root: Path, repository: str, tag: str) -> None:
    """Write the links into README.md and pyproject.toml of a checkout. Raises ValueError if it has some already."""
    readme, project = root / "README.md", root / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    if "[project.urls]" in text or _PROJECT not in text:
        raise ValueError("pyproject.toml has links already, or lacks the table in front of which they belong")
    files = {"](": f"{repository}/blob/{tag}/", 'src="': f"{repository}/raw/{tag}/"}
    readme.write_text(
        _LINK.sub(lambda found: f"{found[1]}{files[found[1]]}{found[2]}", readme.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    urls = {
        "Repository": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/README.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    project.write_text(text.replace(_PROJECT, f"[project.urls]\n{table}\n{_PROJECT}"), encoding="utf-8")


if __name__ == "__main__":
    link(ROOT, *sys.argv[1:])
