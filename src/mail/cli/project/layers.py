"""Lambda layers: wheels for Lambda's Linux, without what no function reads, compiled for the functions' Python.

Standard library only, and Python 3.8 syntax, because `scripts/build_layer.py` imports it under any Python.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNTIME = (3, 12)
"""The Python of the functions: `Runtime` in template.yaml."""

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
"""Patterns of what agents with a language model never come to: litellm's own server, and a faster way to download
models.
"""

BOTOCORE_SERVICES = {"dynamodb", "lambda", "s3", "sqs", "ssm", "sts"}
"""What we call. The descriptions of all others are 22 of the 25 MB of botocore."""


class BuildError(Exception):
    """A layer can't be built; the text says why."""


def run_pip(python: str, what: Sequence[str], machine: str, target: Path, folder: Path) -> None:
    """Install wheels for Lambda's Linux into `target`, with `folder` as the current one. Raises BuildError."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile"]
    command += ["--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", ".".join(map(str, RUNTIME)), "--target", str(target)]
    for minor in GLIBC:
        command += ["--platform", f"manylinux_2_{minor}_{machine}"]
    command += ["--platform", f"manylinux2014_{machine}", *what]
    if subprocess.call(command, cwd=str(folder), stdin=subprocess.DEVNULL) != 0:  # noqa: S603
        raise BuildError("pip failed, see above. Lambda can only take packages that have a wheel for Linux")


def prune(target: Path, requirements: Path) -> None:
    """Remove what no function reads. If the requirements of the agents name boto3, they may call any service of AWS."""
    unread = [path for pattern in (*NOT_READ, *NOT_CALLED) for path in target.glob(pattern)]
    lines = requirements.read_text(encoding="utf-8").splitlines()
    has_botocore = (target / "botocore").is_dir()
    if has_botocore and not any(re.match(r"\s*(aio)?boto", line) for line in lines):
        services = (path for path in (target / "botocore" / "data").iterdir() if path.is_dir())
        unread += [service for service in services if service.name not in BOTOCORE_SERVICES]
        unread += target.glob("botocore/data/*/*/examples-1.json*")
        slim_botocore(target / "botocore")
    for path in unread:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


DOCSTRINGS = """\
# Written by the build: botocore's own module imports what writes its documentation, which is not in this layer.


class LazyLoadedDocstring(str):
    def __new__(cls, *_arguments, **_options):
        return super().__new__(cls)

    def __init__(self, *_arguments, **_options):
        super().__init__()


class ClientMethodDocstring(LazyLoadedDocstring):
    pass


class WaiterDocstring(LazyLoadedDocstring):
    pass


class PaginatorDocstring(LazyLoadedDocstring):
    pass
"""
"""Of the methods of clients; each client makes one for each operation."""


def slim_botocore(package: Path) -> None:
    """Leave out of botocore what a client's creation only reads: documentation, endpoints of services not called.

    The files are no longer compressed, as each process would decompress them.
    """
    data = package / "data"
    (package / "docs" / "docstring.py").write_text(DOCSTRINGS, encoding="utf-8")
    endpoints = json.loads((data / "endpoints.json").read_text(encoding="utf-8"))
    for partition in endpoints["partitions"]:
        called = {
            name: partition["services"][name] for name in BOTOCORE_SERVICES & partition["services"].keys()
        }
        partition["services"] = dict(sorted(called.items()))
    _write_json(data / "endpoints.json", endpoints)
    for service in BOTOCORE_SERVICES:
        for packed in data.glob(f"{service}/*/*.json.gz"):
            _write_json(
                packed.with_suffix(""),
                _without_documentation(json.loads(gzip.decompress(packed.read_bytes()))),
            )
            packed.unlink()


def _without_documentation(node: Any) -> Any:
    if isinstance(node, dict):
        return {  # the keys stay: botocore requires some of them
            name: "" if name == "documentation" and isinstance(value, str) else _without_documentation(value)
            for name, value in node.items()
        }
    return [_without_documentation(value) for value in node] if isinstance(node, list) else node


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


def compile_modules(python: str, target: Path) -> None:
    """Compile every module, to code that says where the layer will be, and is never checked against its source."""
    command = [python, "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(target), "-p", "/opt/python", str(target)]
    if subprocess.call(command) != 0:  # noqa: S603
        raise BuildError(f"a module in {target} can't be compiled, see above")


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
