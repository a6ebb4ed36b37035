"""The Lambda of the tests behaves as Lambda does, as far as our functions can tell."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines.lambda_runtime import (
    HOW_TO_INSTALL,
    LambdaRuntime,
    has_emulator,
    source_function,
)

pytestmark = pytest.mark.skipif(not has_emulator(), reason=HOW_TO_INSTALL)

APP = """
import json, os, sys

print(json.dumps({"initialised": os.getpid(), "path": sys.path}), flush=True)
calls = 0

def handler(event, context):
    global calls
    calls += 1
    return {
        "event": event,
        "calls": calls,
        "request": context.aws_request_id,
        "environment": dict(os.environ),
    }
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaRuntime]:
    folder = tmp_path_factory.mktemp("function")
    (folder / "app.py").write_text(APP)
    with LambdaRuntime(source_function("app.handler", root=folder), {"NAME": "value"}) as made:
        yield made


def test_it_initialises_once_and_answers(running: LambdaRuntime) -> None:
    first, second = running.invoke({"n": 1}), running.invoke({"n": "ü"})
    assert first["event"] == {"n": 1}
    assert second["event"] == {"n": "ü"}
    assert second["calls"] == first["calls"] + 1
    assert first["request"] != second["request"]
    assert len(running.inits) == 1
    assert running.inits[0] > 0


def test_it_hands_on_nothing_that_configures_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_TABLE", "real")
    monkeypatch.setenv("AWS_PROFILE", "real")
    (tmp_path / "app.py").write_text(APP)
    with LambdaRuntime(source_function("app.handler", root=tmp_path), {}) as made:
        assert "real" not in made.invoke({})["environment"].values()


def test_it_listens_for_this_machine_only(running: LambdaRuntime) -> None:
    running.invoke({})
    listening = Path("/proc/net/tcp").read_text()
    ours = re.findall(rf"^ +\d+: ([0-9A-F]+):{running.port:04X} 0+:0000 0A", listening, re.MULTILINE)
    assert ours == ["0100007F"]


def test_it_ends_with_its_user(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with LambdaRuntime(source_function("app.handler", root=tmp_path), {}) as made:
        made.invoke({})
        (pid,) = [record["initialised"] for record in made.records]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
