#!/usr/bin/env python3
"""Fill the folder of one Lambda layer: `sam build` calls this through layers/build.mk, once for each.

    python3 scripts/build_layer.py TurnLayer x86_64 FOLDER

Packages come as wheels for Lambda's Linux, whatever this machine is: no Docker, and no compiler. All modules are
compiled by a Python of the functions' version, as Lambda can't keep what it compiles: each cold start would do it
again. The same input gives the same bytes, so that a layer that didn't change is neither uploaded nor published.
"""

# Standard library only, and Python 3.8 syntax: whatever `python3` is may start it.

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import dev

ROOT = dev.ROOT
RUNTIME = (3, 12)
"""The Python of the functions: `Runtime` in template.yaml."""

SWARM_PACKAGES = "swarm.txt"
PACKAGES: dict[str, str | None] = {
    "ApiLayer": "lambda-api.txt",
    "TurnLayer": "lambda-turn.txt",
    "CodeLayer": None,
}
"""From each layer to its pins in requirements/, to which come those of the agents."""

MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
GLIBC = range(34, 16, -1)
"""Minor versions of glibc that wheels may ask for: Lambda's python3.12 has 2.34."""

NOT_READ = ("bin", "*.dist-info/INSTALLER", "*.dist-info/RECORD", "*.dist-info/REQUESTED")
"""Patterns of what packages hold that no function ever reads."""

NOT_CALLED = (
    "litellm/proxy/_experimental/out",
    "litellm/proxy/swagger",
    "litellm/**/_lazy_openapi_snapshot.json",
    "litellm/**/rust_bridge/_native.abi3.so",
    "hf_xet*",
)
"""Patterns of what agents with a language model never come to: litellm's own server, and a faster way to download models."""

BOTOCORE_SERVICES = {"dynamodb", "lambda", "s3", "sqs", "ssm", "sts"}
"""What we call. The descriptions of all others are 22 of the 25 MB of botocore."""


def find_python() -> str:
    """A Python of the functions' version that has pip. Raises SetupError when there is none."""
    for python in (dev.program(dev.VENV, "python"), *dev.candidates()):
        if tuple(dev.version_of(python) or ()) == RUNTIME and has_pip(python):
            return python
    version = ".".join(map(str, RUNTIME))
    raise dev.SetupError(
        f"the functions run on Python {version}, so their layers are built with it, and none with pip was found "
        f"in .venv, on PATH or in pyenv. Install Python {version}, or set MAIL_DEV_PYTHON to the path of one."
    )


def has_pip(python: str) -> bool:
    """Whether `python -m pip` works."""
    probe = [python, "-m", "pip", "--version"]
    return subprocess.call(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def install(python: str, pins: Path, machine: str, target: Path) -> None:
    """Unpack the wheels that are pinned, and those of the agents. Raises SetupError when pip fails.

    The agents' packages need no hashes; they must fit the pins, which pip compares with hashes first.
    """
    run_pip(python, ["--require-hashes", "--requirement", str(pins)], machine, target)
    swarm = ROOT / "requirements" / SWARM_PACKAGES
    if not any(re.match(r"[^#\s]", line) for line in swarm.read_text(encoding="utf-8").splitlines()):
        return
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "versions.txt"
        found = re.findall(r"^[^#\s]\S*==\S+(?: *;[^\\\n]*)?", pins.read_text(encoding="utf-8"), re.MULTILINE)
        versions.write_text("\n".join(found), encoding="utf-8")
        added = Path(folder) / "python"
        run_pip(python, ["--constraint", str(versions), "--requirement", str(swarm)], machine, added)
        shutil.copytree(added, target, dirs_exist_ok=True)


def run_pip(python: str, what: Sequence[str], machine: str, target: Path) -> None:
    """Install wheels for Lambda's Linux into a folder. Raises SetupError when pip fails."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile"]
    command += ["--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", ".".join(map(str, RUNTIME)), "--target", str(target)]
    for minor in GLIBC:
        command += ["--platform", f"manylinux_2_{minor}_{machine}"]
    command += ["--platform", f"manylinux2014_{machine}", *what]
    if subprocess.call(command, cwd=str(ROOT), stdin=subprocess.DEVNULL) != 0:
        raise dev.SetupError(
            "pip failed, see above. Lambda can only take packages that have a wheel for Linux"
        )


def prune(target: Path) -> None:
    """Remove what no function reads."""
    unread = [path for pattern in (*NOT_READ, *NOT_CALLED) for path in target.glob(pattern)]
    if not agents_use_aws():
        services = (path for path in (target / "botocore" / "data").iterdir() if path.is_dir())
        unread += [service for service in services if service.name not in BOTOCORE_SERVICES]
        unread += target.glob("botocore/data/*/*/examples-1.json")
    for path in unread:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def agents_use_aws() -> bool:
    """Whether the packages of the agents name boto3, or one of its kind, which may then call any service."""
    lines = (ROOT / "requirements" / SWARM_PACKAGES).read_text(encoding="utf-8").splitlines()
    return any(re.match(r"\s*(aio)?boto", line) for line in lines)


def copy_code(layer: Path) -> None:
    """Our own packages, and what starts the streaming function."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("mail", "handlers"):
        shutil.copytree(ROOT / "src" / package, layer / "python" / package, ignore=ignored)
    shutil.copy(ROOT / "layers" / "run.sh", layer / "run.sh")
    (layer / "run.sh").chmod(0o755)


def compile_modules(python: str, target: Path) -> None:
    """Compile every module, to code that says where the layer will be, and is never checked against its source."""
    command = [python, "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(target), "-p", "/opt/python", str(target)]
    if subprocess.call(command, cwd=str(ROOT)) != 0:
        raise dev.SetupError(f"a module in {target} can't be compiled, see above")


def build(layer: str, architecture: str, folder: Path) -> None:
    """Fill the folder. Raises SetupError when the machine lacks something."""
    python, target = find_python(), folder / "python"
    if target.exists():
        shutil.rmtree(target)
    pins = PACKAGES[layer]
    if pins is not None:
        install(python, ROOT / "requirements" / pins, MACHINES[architecture], target)
        prune(target)
    else:
        copy_code(folder)
    compile_modules(python, target)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    dev.say(f"{layer} for {architecture}: {size / 1e6:.1f} MB, built with {python}")


def main(arguments: list[str]) -> int:
    """Do what layers/build.mk asks for. Returns the exit code."""
    if len(arguments) != 3 or arguments[0] not in PACKAGES or arguments[1] not in MACHINES:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        build(arguments[0], arguments[1], Path(arguments[2]))
    except dev.SetupError as error:
        dev.say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
