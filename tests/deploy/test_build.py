"""What `sam build` has made: small enough, compiled for the right Python, and complete."""

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from deploy_tools import ROOT

from mail.local_aws.deployment import Template
from mail.local_aws.processes import free_port

pytestmark = pytest.mark.timeout(600)

MEGABYTE = 1_000_000
API_BUDGET, BUDGETS = 60 * MEGABYTE, {"TurnFunction": 235 * MEGABYTE, "ProtocolsFunction": 100 * MEGABYTE}
IDENTITY_BUDGET = 20 * MEGABYTE
LAYERS = ["ApiLayer", "CodeLayer", "IdentityLayer", "ProtocolsLayer", "TurnLayer"]
MAGIC_OF_3_12 = struct.pack("<H", 3531) + b"\r\n"
UNCHECKED_HASH = 0b01


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def packages(folder: Path) -> set[str]:
    return {path.name for path in (folder / "python").iterdir()}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_functions_keep_their_budgets(built: Path) -> None:
    sizes = {
        name: size(built / name) + sum(size(layer) for layer in layers if layer.name != "IdentityLayer")
        for name, layers in Template(built / "template.yaml").layers().items()
    }
    assert len(sizes) == 18
    for name, total in sizes.items():
        assert total <= BUDGETS.get(name, API_BUDGET), f"{name}: {total:,} bytes"
    assert size(built / "IdentityLayer") <= IDENTITY_BUDGET


def test_each_part_is_built_once(built: Path) -> None:
    folders = {path.name for path in built.iterdir() if path.is_dir()}
    assert {name for name in folders if name.endswith("Layer")} == set(LAYERS)
    bundle = files(ROOT / "swarm")
    for name in folders - set(LAYERS):
        assert files(built / name) == bundle, name


@pytest.mark.parametrize("layer", LAYERS)
def test_every_module_is_compiled_for_the_runtime(built: Path, layer: str) -> None:
    """And is never checked against its source: SAM and Lambda keep neither its time nor its size."""
    modules = list((built / layer).rglob("*.py"))
    assert modules
    for module in modules:
        compiled = module.parent / "__pycache__" / f"{module.stem}.cpython-312.pyc"
        head = compiled.read_bytes()[:16]
        assert head[:4] == MAGIC_OF_3_12, module
        assert head[4:8] == struct.pack("<I", UNCHECKED_HASH), module
        assert head[8:] == importlib.util.source_hash(module.read_bytes()), module


def test_no_function_but_that_of_turns_carries_litellm(built: Path) -> None:
    assert not {"litellm", "openai"} & (packages(built / "ApiLayer") | packages(built / "CodeLayer"))


@pytest.mark.soak
def test_turns_can_be_built_without_litellm(tmp_path: Path) -> None:
    """As the models of Bedrock need no more than botocore."""
    command = [sys.executable, str(ROOT / "scripts" / "build_layer.py"), "TurnLayer", "x86_64", str(tmp_path)]
    environment = {**os.environ, "MAIL_WITHOUT_LITELLM": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert {"botocore", "httpx2"} <= packages(tmp_path)
    assert not {"litellm", "openai", "boto3"} & packages(tmp_path)
    assert size(tmp_path) <= API_BUDGET


def test_turns_do_without_fastapi(built: Path) -> None:
    assert not {"fastapi", "mangum"} & packages(built / "TurnLayer")


def test_layers_hold_nothing_that_runs_only_here(built: Path) -> None:
    for layer in LAYERS:
        assert not list((built / layer).rglob("RECORD")), layer
        for library in (built / layer).rglob("*.so"):
            assert "linux" in library.name or "abi3" in library.name, library


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("ApiLayer", "lambda-api"),
        ("ProtocolsLayer", "lambda-protocols"),
        ("IdentityLayer", "lambda-identity"),
        ("TurnLayer", "lambda-turn"),
    ],
)
def test_what_is_locked_is_what_is_built(built: Path, layer: str, name: str) -> None:
    lock = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    pins = {line.split()[0] for line in lock.splitlines() if "==" in line and not line.startswith("hf-xet")}
    infos = (path.stem.rsplit("-", 1) for path in (built / layer / "python").glob("*.dist-info"))
    assert pins == {f"{package.replace('_', '-').lower()}=={version}" for package, version in infos}
    assert "://" not in lock


def test_what_is_built_is_what_is_tested() -> None:
    tested = set((ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").split())
    names = {pin.split("==")[0] for pin in tested if "==" in pin}
    for lock in (
        "lambda-api.txt",
        "lambda-identity.txt",
        "lambda-light.txt",
        "lambda-protocols.txt",
        "lambda-turn.txt",
    ):
        for pin in (ROOT / "requirements" / lock).read_text(encoding="utf-8").split():
            assert "==" not in pin or pin.split("==")[0] not in names or pin in tested, pin


@pytest.mark.soak
def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "build_layer.py"
    for name in ("first", "second"):
        command = [sys.executable, str(script), "CodeLayer", "x86_64", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
    assert files(tmp_path / "first") == files(tmp_path / "second")


def test_modules_say_where_they_are_on_lambda(built: Path) -> None:
    compiled = next((built / "CodeLayer" / "python" / "handlers" / "__pycache__").glob("turn.*.pyc"))
    assert b"/opt/python/handlers/turn.py" in compiled.read_bytes()


SDKS = {"a2a", "ag_ui", "mcp"}
"""Of the protocols that one function speaks."""


@pytest.mark.soak
def test_only_the_function_of_protocols_carries_their_sdks(built: Path) -> None:
    assert not SDKS & (packages(built / "ApiLayer") | packages(built / "CodeLayer"))
    assert packages(built / "ProtocolsLayer") >= SDKS
    path = os.pathsep.join(str(built / layer / "python") for layer in ("ProtocolsLayer", "CodeLayer"))
    used = "mail.http.a2a.dispatch, mail.http.agui.call, mail.http.mcp.server, mail.http.openai.endpoints"
    code = f"import handlers.function_url, {used}"
    if sys.version_info[:2] == (3, 12) and sys.platform == "linux":
        environment = {"PATH": os.defpath, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-S", "-c", code], check=True, env=environment)


@pytest.mark.soak
def test_the_streaming_function_starts_as_lambda_starts_it(built: Path, tmp_path: Path) -> None:
    """Its layers are merged into one folder, as in /opt, and its wrapper runs in place of Lambda's own Python."""
    if sys.version_info[:2] != (3, 12) or sys.platform != "linux":
        pytest.skip("the functions' packages are for Python 3.12 on Linux")
    opt, root = tmp_path / "opt", built / "StreamFunction"
    for layer in ("CodeLayer", "ApiLayer"):
        shutil.copytree(built / layer, opt, dirs_exist_ok=True)
    port = free_port()
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n'
    )  # -S: nothing of what is installed here
    python.chmod(0o755)
    environment = {
        "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
        "LAMBDA_TASK_ROOT": str(root),
        "_HANDLER": "handlers.stream:app",
        "PORT": str(port),
        "MAIL_TABLE": "mail",
        "MAIL_CONFIG_PATH": "mail.toml",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
    }
    with subprocess.Popen(
        [str(opt / "run.sh")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        try:
            assert b'"name"' in fetch(f"http://127.0.0.1:{port}/", run)
        finally:
            run.kill()


def fetch(url: str, server: "subprocess.Popen[bytes]", *, seconds: float = 60) -> bytes:
    """The body at the URL, as soon as the server listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                body: bytes = response.read()
                return body
        except urllib.error.URLError:
            time.sleep(0.1)
    server.kill()
    output: Any = server.stdout.read() if server.stdout else b""
    pytest.fail(f"{url} does not answer:\n{output.decode()}")
