"""The samples of docs/client.md run and print what it says, and so do those of the seeds, as they stand.

Only the port in `http://localhost:8000` is another one.
"""

import ast
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from client_stage import CONFIG, RESPONSE, answered
from starlette.responses import JSONResponse
from support.processes import forkserver
from support.processes.document_samples import DOCS, ROOT, blocks, run
from support.processes.http_server import HTTPServer
from support.processes.server import environment
from support.seeds import blocks as seed_blocks

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.client import MAILClient
from mail.client.operations import OPERATIONS
from mail.config import ServerConfig
from mail.core.protocol.tool_schemas import AgentToolCall
from mail.core.task.swarm import AgentCore, SwarmCore
from mail.errors import Unauthenticated
from mail.server.process import serving
from mail.swarms_json.utils import PACKAGED_SOURCE
from mail.testing.agents import build_swarm, complete, read_message, tool_results

DOCUMENT = DOCS / "client.md"
SAID = "http://localhost:8000"

# -------------------------------------------------------------------------------------------------- our page


@pytest.fixture
async def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of `mail server` with its example swarm; TOKEN is in the environment."""
    defaults = ServerConfig.model_validate({})
    config = defaults.with_overrides(database=str(tmp_path / "mail.db"), swarm_source=str(PACKAGED_SOURCE))
    system = local(config, environ={})
    monkeypatch.setenv("TOKEN", await issue_token(system.documents, Caller("user", "ann")))
    async with serving(system) as url:
        yield url


async def test_our_samples(
    example: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace: dict[str, Any] = {"__name__": "document"}
    async with MAILClient(example, os.environ["TOKEN"], config=CONFIG) as client:
        namespace["client"] = client
        for _, code in blocks(DOCUMENT, "python"):
            await run(code.replace(SAID, example), namespace)
    assert capsys.readouterr().out.splitlines() == [
        "12*(3+4) = 84.",
        "agent supervisor called send_request",
        "agent supervisor called await_message",
        "agent weather called get_weather_forecast",
        "agent weather called send_response",
        "agent supervisor called task_complete",
        "The weather in Tokyo today: rainy, 6 °C.",
        "new_message",
        "task_complete",
        "2**4 = 16.",
        "you may",
        "question 2",
        "sums 2",
        "0 0.0 []",
        '404 you have no task "nobody\'s"',
    ]
    assert namespace["TracedClient"](example)._build_headers()["X-Request-Source"] == "night shift"


async def test_the_quickstart_of_the_seeds(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    await run(seed("docs/quickstart.md", 1).replace(SAID, example), {"__name__": "__main__"})
    root, answer = capsys.readouterr().out.splitlines()
    assert "'protocol_version': '1.3'" in root
    assert ast.literal_eval(answer)["response"].startswith("I can tell you the weather")


def test_every_method_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    methods = [name for name in vars(MAILClient) | vars(MAILClient.__base__) if not name.startswith("_")]
    assert set(OPERATIONS) <= set(methods)
    for name in methods:
        assert f"`{name}(" in text, name


def test_the_demo(tmp_path: Path) -> None:
    done = forkserver.run(
        [sys.executable, str(ROOT / "scripts" / "demo_client.py")],
        cwd=tmp_path,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "The weather in Tokyo today",
        " 15 task_complete              12*(3+4) = 84.",
        " 10 task_complete              you may",
        "as a user: POST /health: 403",
        "as an admin: the swarm is busy",
    ):
        assert line in done.stdout
    assert done.stdout.endswith("\nThe server has ended.\n")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------- the seeds


def seed(document: str, number: int) -> str:
    for block in seed_blocks():
        if (block.document, block.language, block.number) == (document, "python", number):
            return block.code
    pytest.skip("the seeds are not at hand")


class OneToken:
    """Knows the token of the samples."""

    async def authenticate(self, bearer: str) -> Caller:
        if bearer != "user-token":
            raise Unauthenticated
        return Caller("user", "ann")


def sample_swarm() -> SwarmCore:
    """Asks for the weather by the tool call `bp-1`, when it is asked to plan; else it answers at once."""

    async def supervise(history: Any, _choice: Any) -> tuple[None, list[AgentToolCall]]:
        letters = [letter for entry in history if (letter := read_message(entry)) is not None]
        if letters[-1].body.startswith("Plan") and not tool_results(history):
            return None, [_call("forecast", "bp-1", {})]
        forecasts = [result for result in tool_results(history) if "Forecast" in result]
        answer = forecasts[0] if forecasts else f"heard: {letters[-1].body}"
        return None, [_call(complete().tool, f"done{len(history)}", {"finish_message": answer})]

    agent = AgentCore(
        function=supervise,
        comm_targets=[],
        actions=[],
        tool_format="completions",
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    return build_swarm({"supervisor": agent}, breakpoint_tools=frozenset({"forecast"}))


def _call(tool: str, call_id: str, arguments: dict[str, Any]) -> AgentToolCall:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    completion = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return AgentToolCall(tool_name=tool, tool_args=arguments, tool_call_id=call_id, completion=completion)


async def test_the_samples_of_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    document = "docs/client.md"
    async with HTTPServer(sample_swarm(), authenticator=OneToken()) as server:
        url = server.uvicorn.url
        await run(seed(document, 1).replace(SAID, url), {"__name__": "__main__"})
        version, answer, *events = capsys.readouterr().out.splitlines()
        assert version == "1.3"
        assert "'response': 'heard: Hello from MAILClient', 'events': [{" in answer
        assert [line.partition(" ")[0] for line in events] == [
            "new_message", "tool_call", "task_complete_call", "new_message", "task_complete",
        ]  # fmt: skip
        async with MAILClient(url, "user-token", config=CONFIG) as client:
            namespace: dict[str, Any] = {"client": client}
            for number in (2, 3, 4, 5):
                await run(seed(document, number), namespace)
    out = capsys.readouterr().out
    assert '"response":"heard: Need live updates"' in out.splitlines()[0]
    assert namespace["response"]["response"] == "heard: What will the weather in San Francisco be tomorrow?"
    assert namespace["follow_up"]["response"].startswith("heard: How does that compare")
    weather = namespace["tasks"]["weather-task"]
    assert "sunny with a high of 75" in weather["events"][-1]["data"]
    assert "weather-task True False" in out
    assert out.splitlines()[-1] == "task_complete"


async def test_the_responses_sample_of_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    async with answered(JSONResponse(RESPONSE)) as (client, recorder):
        await run(seed("docs/client.md", 6), {"client": client})
    assert "hello" in capsys.readouterr().out
    assert [each["role"] for each in recorder.bodies[0]["input"]] == ["system", "user"]
