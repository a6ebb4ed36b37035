"""The template, as it is written, and what `sam build` makes of it."""

import fcntl
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deploy_tools import ROOT, environment, find_tool

from mail.local_aws.deployment import read_template

ARCHITECTURE = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"

DEFAULT_BUILD = ROOT / ".aws-sam" / "build"


@pytest.fixture(scope="session")
def template() -> dict[str, Any]:
    return read_template(ROOT / "template.yaml")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `sam build` has filled, for the processors of this machine; workers of xdist share it.

    CI has just filled one; elsewhere it may be an old one, so another is made.
    """
    sam = find_tool("sam", "sam")
    if os.environ.get("CI") and (DEFAULT_BUILD / "template.yaml").exists():
        return DEFAULT_BUILD
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "sam-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target, done = folder / "sam-build", folder / "sam-build.done"
        if not done.exists():
            command = [sam, "build", "--build-dir", str(target)]
            command += ["--parameter-overrides", f"Architecture={ARCHITECTURE}"]
            made = subprocess.run(
                command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
            )
            assert made.returncode == 0, made.stdout + made.stderr
            done.touch()
    return target
