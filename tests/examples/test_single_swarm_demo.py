"""scripts/single_swarm_demo.py, as people run it: by rules, and with a model behind the wire of a provider."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import run_python
from support.services.llm_stub import LLMStub, Request, call, reply

SCRIPT = Path(__file__).parents[2] / "scripts" / "single_swarm_demo.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(str(SCRIPT), *arguments)


def test_by_rules() -> None:
    done = run("weather in Oslo and 2**10")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "ann → supervisor: weather in Oslo and 2**10"
    assert {"supervisor → weather", "supervisor → math"} <= {line.partition(":")[0] for line in lines}
    assert "math → supervisor: 2**10 = 1024." in lines
    assert lines[-1].startswith("The answer: The weather in Oslo today: ")
    assert lines[-1].endswith("2**10 = 1024.")


def test_nothing_to_ask() -> None:
    done = run("")
    assert (done.returncode, done.stderr) == (1, "body must not be empty\n")


def answer(request: Request) -> Any:
    tools = {tool["name"] for tool in request.body["tools"]}
    said = json.dumps(request.body["input"])
    if "calculate_expression" in tools:
        if "function_call_output" in said:
            return reply(call("send_response", target="supervisor", subject="Re: sum", body="It is 84."))
        return reply(call("calculate_expression", expression="12*7"))
    if "It is 84." in said:
        return reply(call("task_complete", finish_message="84, says math."))
    return reply(
        call("send_request", target="math", subject="sum", body="12*7, please"), call("await_message")
    )


def test_with_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with LLMStub() as stub:
        for name, value in stub.environ.items():
            monkeypatch.setenv(name, value)
        stub.otherwise = answer
        done = run("--llm", "openai/gpt-5", "How much is 12*7?")
    assert stub.complaints == []
    assert done.returncode == 0, done.stderr
    assert {request.body["model"] for request in stub.requests} == {"gpt-5"}
    assert "supervisor → math: 12*7, please" in done.stdout
    assert "math → supervisor: It is 84." in done.stdout
    assert done.stdout.endswith("The answer: 84, says math.\n")


def test_without_the_virtual_environment() -> None:
    done = subprocess.run([sys.executable, "-S", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, ". .venv/bin/activate" in done.stderr) == (1, True)
