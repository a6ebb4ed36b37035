""".github/workflows/release.yml: it tries the package on each Python that the metadata names, and keeps no secret."""

import re
import tomllib

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


def test_what_it_runs_is_there() -> None:
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    files = re.findall(r"\S+/\S+\.(?:py|txt)|\.ci/run", " ".join(commands))
    assert files
    for name in files:
        assert (ROOT / name).is_file(), name
