"""The Lambda of the tests behaves as Lambda does, as far as our functions can tell."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.engines.lambda_runtime import (
    HOW_TO_INSTALL,
    FunctionFailed,
    LambdaRuntime,
    has_emulator,
    source_function,
)

pytestmark = pytest.mark.skipif(not has_emulator(), reason=HOW_TO_INSTALL)

APP = """
import json, os, sys, time

print(json.dumps({"initialised": os.getpid(), "path": sys.path}), flush=True)
calls = 0

def handler(event, context):
    global calls
    calls += 1
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "fail" in event:
        raise ValueError(event["fail"])
    if "exit" in event:
        os._exit(event["exit"])
    return {
        "event": event,
        "calls": calls,
        "left": context.get_remaining_time_in_millis(),
        "function": context.function_name,
        "memory": context.memory_limit_in_mb,
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


def test_it_tells_the_function_where_it_is(running: LambdaRuntime) -> None:
    answer = running.invoke({})
    assert 15_000 < answer["left"] <= 30_000
    assert answer["function"] == "app"
    assert int(answer["memory"]) == 512
    environment = answer["environment"]
    assert environment["NAME"] == "value"
    assert environment["LAMBDA_TASK_ROOT"] == str(running.function.root)
    assert environment["_HANDLER"] == "app.handler"


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


def test_an_exception_is_an_error_of_the_function_and_the_process_lives(running: LambdaRuntime) -> None:
    before = running.invoke({})["calls"]
    with pytest.raises(FunctionFailed, match="ValueError: no luck") as failure:
        running.invoke({"fail": "no luck"})
    assert failure.value.type == "ValueError"
    assert running.invoke({})["calls"] == before + 2


def test_past_its_time_the_process_is_killed_and_the_next_invocation_starts_anew(tmp_path: Path) -> None:
    """The time limit is the first that is long enough for a start on this machine."""
    (tmp_path / "app.py").write_text(APP)
    for timeout in (2, 8, 32):
        function = source_function("app.handler", timeout=timeout, root=tmp_path)
        with LambdaRuntime(function, {}) as running, suppress(FunctionFailed):
            assert running.invoke({})["calls"] == 1
            with pytest.raises(FunctionFailed, match=rf"Task timed out after {timeout}\.00 seconds"):
                running.invoke({"sleep": 600})
            assert running.invoke({})["calls"] == 1
            assert len(running.inits) == 2
            return
    pytest.fail("no process started in time")


def test_a_process_that_dies_is_an_error_and_the_next_invocation_starts_anew(running: LambdaRuntime) -> None:
    with pytest.raises(FunctionFailed, match="exit status 3") as failure:
        running.invoke({"exit": 3})
    assert failure.value.type == "Runtime.ExitError"
    assert running.invoke({})["calls"] == 1


def test_it_ends_with_its_user(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with LambdaRuntime(source_function("app.handler", root=tmp_path), {}) as made:
        made.invoke({})
        (pid,) = [record["initialised"] for record in made.records]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
