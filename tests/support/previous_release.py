"""The release before this one: the newest tag of a release in the history of this commit, if there is one."""

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from support.engines.aws import ROOT

BASELINE = "af01e3661a6d076e4e39b0da312d6cb44e4ad245"
"""A commit that takes the place of a release before the first one, so that two versions meet all the same."""


@cache
def previous_release() -> str | None:
    """The tag; None before the first release, and in a clone without tags."""
    found = _git("tag", "--list", "v[0-9]*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-v:refname")
    return found.decode().split()[0] if found.split() else None


def file_of_previous(path: str) -> str:
    """A file of the previous release; that of this one, if there is none or it has no such file."""
    found = _git("show", f"{tag}:{path}") if (tag := previous_release()) else b""
    return found.decode() or (ROOT / path).read_text(encoding="utf-8")


def source_of_previous(folder: Path) -> Path:
    """A folder with the packages of the previous release, for PYTHONPATH: of BASELINE before the first one.

    It is that of this checkout in a clone without that commit.

    `spec`, `layers` and the template are there as links in the packages point to them.
    """
    commit = previous_release() or BASELINE
    packed = _git("archive", commit, "src", "spec", "layers", "template.yaml")
    if not packed:
        return ROOT / "src"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _git(*words: str) -> bytes:
    """What git prints; nothing where it fails, as in a copy without history."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""
