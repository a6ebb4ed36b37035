"""The release before this one: the newest tag of a release in the history of this commit, if there is one."""

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from support.engines.aws import ROOT


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
    """A folder with the packages of the previous release, for PYTHONPATH; that of this one, if there is none.

    `spec`, `layers` and the template are there as links in the packages point to them.
    """
    tag = previous_release()
    if tag is None:
        return ROOT / "src"
    with tarfile.open(
        fileobj=io.BytesIO(_git("archive", tag, "src", "spec", "layers", "template.yaml"))
    ) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _git(*words: str) -> bytes:
    """What git prints; nothing where it fails, as in a copy without history."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""
