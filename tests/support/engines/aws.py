"""Engines that stand in for AWS: moto in this process, and servers that a test process starts on a free port.

`make_client` returns a client of either. Functions and other processes reach a server by its URL:

    for name, value in aws_environment(endpoint("ministack")).items(): monkeypatch.setenv(name, value)

ministack is installed by `scripts/dev.py`. The other servers are used where they are found: dynoxide (MAIL_DYNOXIDE,
PATH, or npm's @dynoxide package below .tools/), DynamoDB Local (MAIL_DYNAMODB_LOCAL names its jar; needs Java), and any
that runs already (MAIL_TEST_AWS_ENDPOINT_URL).
"""

import atexit
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mail.adapters.aws.client import Aws, AwsClient
from mail.local_aws.ministack import Ministack, credentials, find_ministack
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, listens, system_environment
from support.engines import moto

ROOT = Path(__file__).resolve().parents[3]
NODE_MODULES = ROOT / ".tools" / "node_modules"
CUSTOM_VARIABLE = "MAIL_TEST_AWS_ENDPOINT_URL"
TIMEOUT = 60.0


def has_ministack() -> bool:
    """Whether ministack can be started. In CI it must be: a missing engine there is a failure, not a skip."""
    if find_ministack() is not None:
        return True
    if os.environ.get("CI"):
        raise RuntimeError("ministack is not installed; run: python3 scripts/dev.py tools ministack")
    return False


def servers() -> list[str]:
    """Return the names of the servers that keep tables and can be started here."""
    usable = {
        "ministack": has_ministack,
        "dynoxide": lambda: _dynoxide() is not None,
        "dynamodb-local": lambda: _dynamodb_local() is not None,
        "custom": lambda: bool(os.environ.get(CUSTOM_VARIABLE)),
    }
    return [name for name, is_usable in usable.items() if is_usable()]


def sqs_engines() -> list[str]:
    """Return the names of the engines that have queues."""
    return ["moto", *(name for name in servers() if name in ("ministack", "custom"))]


def make_client(engine: str, service: str, **settings: Any) -> AwsClient:
    """Return a client of an engine, ready to use."""
    client = _account(engine).client(service, **settings)
    with patch.dict(os.environ, {} if engine == "moto" else aws_environment(endpoint(engine))):
        client.warm_up()
    return client


@cache
def _account(engine: str) -> Aws:
    """Shared, as it remembers what it has read of botocore's files."""
    return moto.MotoAws() if engine == "moto" else Aws()


@cache
def endpoint(name: str) -> str:
    """The URL of an engine, which is started if it isn't yet."""
    return _START[name]()


def aws_environment(url: str) -> dict[str, str]:
    """The environment variables with which boto3 talks to an engine: dummy keys, region, AWS_ENDPOINT_URL."""
    return credentials(url)


def _start_ministack() -> str:
    engine = Ministack()
    atexit.register(engine.stop)
    return engine.endpoint


def _dynoxide() -> str | None:
    packages = sorted(NODE_MODULES.glob("@dynoxide/*/dynoxide"))
    named = os.environ.get("MAIL_DYNOXIDE") or shutil.which("dynoxide")
    return named or next((str(binary) for binary in packages), None)


def _start_dynoxide() -> str:
    command = _dynoxide()
    assert command is not None
    port = free_port()
    return _start("dynoxide", [command, "serve", "--host", LOOPBACK, "--port", str(port)], port)


def _dynamodb_local() -> Path | None:
    """Only where it is asked for: it listens on all addresses of the machine, and can't be told otherwise."""
    named = os.environ.get("MAIL_DYNAMODB_LOCAL")
    return Path(named) if named and shutil.which("java") else None


def _start_dynamodb_local() -> str:
    jar = _dynamodb_local()
    assert jar is not None
    port = free_port()
    libraries = f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"
    flags = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    return _start("DynamoDB Local", ["java", "-Xmx512m", libraries, "-jar", str(jar), *flags], port)


def _start(name: str, command: list[str], port: int) -> str:
    engine = KeptProcess(command, env=system_environment())
    atexit.register(engine.stop)
    engine.wait_until(lambda: listens(port), seconds=TIMEOUT, name=name)
    return f"http://{LOOPBACK}:{port}"


_START: dict[str, Callable[[], str]] = {
    "ministack": _start_ministack,
    "dynoxide": _start_dynoxide,
    "dynamodb-local": _start_dynamodb_local,
    "custom": lambda: os.environ[CUSTOM_VARIABLE],
}
