""".github/workflows/release.yml: it tries the package on each Python that the metadata names, and keeps no secret."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import yaml
from support.processes.document_samples import ROOT

TEXT = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]


def test_it_tries_every_python_of_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert set(named) <= set(JOBS["install"]["strategy"]["matrix"]["python"])


def test_nothing_is_published_unchecked_or_by_a_token() -> None:
    assert JOBS["publish"]["needs"] == ["check", "install"]
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in TEXT
    assert "https://" not in TEXT


def test_the_package_links_to_the_files_of_the_tag(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/package_links.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("mail", "handlers"):
        (tmp_path / "src" / folder).mkdir(parents=True)
        (tmp_path / "src" / folder / "__init__.py").write_text('__version__ = "1.3.0"\n')
    repository = "https://git.example/owner/mail"
    for command in (
        ["scripts/package_links.py", repository, "v1.3.0"],
        ["-m", "hatchling", "build", "-t", "wheel"],
    ):
        subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert f"Documentation, {repository}/blob/v1.3.0/docs/README.md" in metadata.get_all("Project-URL", [])
    readme = str(metadata.get_payload())
    files = re.findall(rf'{re.escape(repository)}/(?:blob|raw)/v1\.3\.0/([^)"#]+)', readme)
    assert len(files) > 40
    for file in files:
        assert (ROOT / file).is_file(), file
    assert not re.findall(r'\]\((?!https?:)|src="(?!https?:)', readme)


def test_what_it_runs_is_there() -> None:
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    files = re.findall(r"\S+/\S+\.(?:py|txt)|\.ci/run", " ".join(commands))
    assert files
    for name in files:
        assert (ROOT / name).is_file(), name
