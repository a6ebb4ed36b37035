#!/usr/bin/env python3
"""Fill the folder of one Lambda layer: `sam build` calls this through layers/build.mk, once for each.

    python3 scripts/build_layer.py TurnLayer x86_64 FOLDER

Packages come as wheels for Lambda's Linux, whatever this machine is: no Docker, and no compiler. All modules are
compiled by a Python of the functions' version, as Lambda can't keep what it compiles: each cold start would do it
again. The same input gives the same bytes, so that a layer that didn't change is neither uploaded nor published.
"""

# Standard library only, and Python 3.8 syntax: whatever `python3` is may start it.

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dev

ROOT = dev.ROOT
sys.path.insert(0, str(ROOT / "src"))

from mail.cli.project.layers import (  # noqa: E402
    MACHINES,
    RUNTIME,
    BuildError,
    compile_modules,
    prune,
    run_pip,
    size_of,
)

SWARM_PACKAGES = "swarm.txt"
WITHOUT_LITELLM = bool(os.environ.get("MAIL_WITHOUT_LITELLM"))
"""Whether the agents reach their models without litellm, as those of Bedrock do."""

PACKAGES: dict[str, str | None] = {
    "ApiLayer": "lambda-api.txt",
    "ProtocolsLayer": "lambda-protocols.txt",
    "IdentityLayer": "lambda-identity.txt",
    "TurnLayer": "lambda-light.txt" if WITHOUT_LITELLM else "lambda-turn.txt",
    "CodeLayer": None,
}
"""From each layer to its pins in requirements/, to which come those of the agents."""


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
    """Unpack the wheels that are pinned, and those of the agents. Raises BuildError when pip fails.

    The agents' packages need no hashes; they must fit the pins, which pip compares with hashes first. IdentityLayer has
    none of them, as it comes on top of another layer.
    """
    run_pip(python, ["--require-hashes", "--requirement", str(pins)], machine, target, ROOT)
    swarm = ROOT / "requirements" / SWARM_PACKAGES
    is_empty = not any(re.match(r"[^#\s]", line) for line in swarm.read_text(encoding="utf-8").splitlines())
    if is_empty or pins.name == PACKAGES["IdentityLayer"]:
        return
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder) / "versions.txt"
        found = re.findall(r"^[^#\s]\S*==\S+(?: *;[^\\\n]*)?", pins.read_text(encoding="utf-8"), re.MULTILINE)
        versions.write_text("\n".join(found), encoding="utf-8")
        added = Path(folder) / "python"
        run_pip(python, ["--constraint", str(versions), "--requirement", str(swarm)], machine, added, ROOT)
        shutil.copytree(added, target, dirs_exist_ok=True)


def copy_code(layer: Path) -> None:
    """Our own packages, and what starts the streaming function."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("mail", "handlers"):
        shutil.copytree(ROOT / "src" / package, layer / "python" / package, ignore=ignored)
    shutil.copy(ROOT / "layers" / "run.sh", layer / "run.sh")
    (layer / "run.sh").chmod(0o755)


def build(layer: str, architecture: str, folder: Path) -> None:
    """Fill the folder. Raises SetupError or BuildError when the machine lacks something."""
    python, target = find_python(), folder / "python"
    if target.exists():
        shutil.rmtree(target)
    pins = PACKAGES[layer]
    if pins is not None:
        install(python, ROOT / "requirements" / pins, MACHINES[architecture], target)
        prune(target, ROOT / "requirements" / SWARM_PACKAGES)
    else:
        copy_code(folder)
    compile_modules(python, target)
    dev.say(f"{layer} for {architecture}: {size_of(folder) / 1e6:.1f} MB, built with {python}")


def main(arguments: list[str]) -> int:
    """Do what layers/build.mk asks for. Returns the exit code."""
    if len(arguments) != 3 or arguments[0] not in PACKAGES or arguments[1] not in MACHINES:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        build(arguments[0], arguments[1], Path(arguments[2]))
    except (dev.SetupError, BuildError) as error:
        dev.say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
