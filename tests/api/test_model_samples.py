"""The samples of the seeds on factories and configuration run; those of the Python API are in
`test_documented_samples`.

Language models are played by the stub of `support.services.llm_stub`, through the real litellm.
"""

import json
import socket
import tomllib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import test_documented_samples as documented
from support.seeds import blocks
from support.services.llm_stub import LLMStub, Request, call, reply, text, thinking
from test_documented_samples import run

from mail import MAILAgentTemplate
from mail.config import ClientConfig, ServerConfig
from mail.core.protocol.calls import TEXT_OUTPUT
from mail.core.task.events import EventKind
from mail.errors import ConfigurationError
from mail.examples.analyst_dummy.agent import LiteLLMAnalystFunction
from mail.examples.analyst_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction
from mail.swarms_json import build_swarm, load_swarm, validate_swarm_from_swarms_json
from mail.testing.rig import ask_once

FACTORIES = "docs/factories.md"
CONFIGURATION = "docs/configuration.md"
pytestmark = pytest.mark.skipif(not blocks(), reason="the seeds are not at hand")


def sample(document: str, language: str, number: int) -> str:
    """The code of a sample; each is asked for by what runs it."""
    wanted = (document, language, number)
    return next(each.code for each in blocks() if (each.document, each.language, each.number) == wanted)


# ------------------------------------------------------------------------------------------------ language models


@pytest.fixture
async def stub(stub: LLMStub) -> AsyncIterator[LLMStub]:
    yield stub
    await documented.finish_tasks()


# -------------------------------------------------------------------------------------------- docs/factories.md

NO_PARAMETERS = '{"type": "object", "properties": {}}'


class TestFactories:
    async def test_quick_start(self, stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
        """Samples 1 and 2; the first runs as it stands, but no provider takes `{...}` as a JSON Schema."""
        namespace: dict[str, Any] = {"Any": Any}
        await run(sample(FACTORIES, "python", 1), namespace)
        assert isinstance(namespace["analytics_agent"], LiteLLMAgentFunction)
        await run(sample(FACTORIES, "python", 1).replace("{...}", NO_PARAMETERS), namespace)
        stub.script(reply(thinking("Hm."), text("Fine.")))
        await run(sample(FACTORIES, "python", 2), namespace)
        said, (made,) = namespace["agent_output"]
        assert (said, made.tool_name, made.reasoning) == ("Fine.", TEXT_OUTPUT, ["Hm."])
        assert capsys.readouterr().out == "[analyst] Hm.\n[analyst] Fine.\n"
        (request,) = stub.requests
        assert request.path == "/responses"
        asked = {name: request.body[name] for name in ("model", "tool_choice", "max_output_tokens", "stream")}
        assert asked == {
            "model": "openai/gpt-5-mini",  # the proxy, and not litellm, takes the provider off
            "tool_choice": "auto",
            "max_output_tokens": 6000,
            "stream": True,
        }
        assert request.body["reasoning"]["effort"] == "low"
        assert request.body["tools"][0]["name"] == "fetch_report"

    async def test_subclass(self, stub: LLMStub) -> None:
        """Sample 3."""
        namespace: dict[str, Any] = {}
        await run(sample(FACTORIES, "python", 3), namespace)
        analyst = namespace["LiteLLMAnalystFunction"](
            name="analyst", comm_targets=["boss"], llm="openai/gpt-5-mini"
        )
        stub.script(reply(call("send_response", target="boss", subject="s", body="b")))
        _, (made,) = await analyst([{"role": "user", "content": "Test message"}])
        assert made.tool_name == "send_response"

    def test_agent_in_swarms_json(self) -> None:
        """The JSON sample; its `system` has no `python::` before it."""
        made = MAILAgentTemplate.from_swarm_json(sample(FACTORIES, "json", 1))
        assert (made.name, made.comm_targets) == ("analyst", ["consultant", "supervisor"])
        function = made.instantiate({}).function
        assert isinstance(function, LiteLLMAnalystFunction)
        assert (function.llm, function.system) == ("openai/gpt-5-mini", SYSPROMPT)
        with pytest.raises(ConfigurationError, match="Did you mean 'SYSPROMPT'"):
            MAILAgentTemplate.from_swarm_json(sample(FACTORIES, "json", 1).replace("SYSPROMPT", "SYSPROMT"))

    def test_agent_in_a_swarm(self) -> None:
        """`build_swarm` reads it in the same way, and allows nothing that it would not allow with `python::`."""
        analyst = json.loads(sample(FACTORIES, "json", 1))
        others = [
            {"name": name, "factory": "python::mail.factories:LiteLLMSupervisorFunction",
             "agent_params": {"llm": "openai/gpt-5-mini", "system": "You lead."},
             "enable_entrypoint": True, "can_complete_tasks": True}
            for name in analyst["comm_targets"]
        ]  # fmt: skip
        entry = validate_swarm_from_swarms_json(
            {"name": "s", "version": "1", "entrypoint": "supervisor", "agents": [analyst, *others]}
        )
        function = build_swarm(entry).agents["analyst"].function
        assert isinstance(function, LiteLLMAnalystFunction)
        assert function.system == SYSPROMPT
        allowed = ["mail.factories", "mail.examples.analyst_dummy.agent"]
        with pytest.raises(ConfigurationError, match="SYSPROMPT' may not be imported"):
            build_swarm(entry, allowed_prefixes=allowed)


# -------------------------------------------------------------------------------------------- docs/configuration.md


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no way to https://example.com, on any machine: its proxy is a port at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{unused.getsockname()[1]}")


class TestConfiguration:
    @pytest.mark.usefixtures("unreachable")
    async def test_swarms_json(self, stub: LLMStub, tmp_path: Path) -> None:
        """Loaded, checked, built, and asked something that needs all its agents and both their actions."""
        source = tmp_path / "swarms.json"
        source.write_text(sample(CONFIGURATION, "json", 1), encoding="utf-8")
        swarm = build_swarm(load_swarm("example", source))
        assert set(swarm.actions) == {
            "get_weather_forecast",
            "calculate_expression",
            "mcp_ping",
            "mcp_list_tools",
        }
        stub.otherwise = Office()
        outcome = await ask_once(swarm, "What is 6 times 7, and the weather in Oslo?")
        assert outcome.answer == "Both are done."
        called = Counter(event.extra.as_json()["tool_name"] for event in outcome.of(EventKind.TOOL_CALL))
        assert (called["get_weather_forecast"], called["calculate_expression"]) == (1, 1)
        written = {message.message.sender.address: message.message.body for message in outcome.messages}
        assert "Oslo" in written["weather"]
        assert "42" in written["math"]
        systems = {request.body["instructions"] for request in stub.requests}
        assert systems == {
            f"https://example.com/sysprompts/{name}.json" for name in ("supervisor", "weather")
        }

    def test_mail_toml(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every value of the file is the configuration's; they are also the defaults without any file."""
        for name in ("MAIL_CONFIG_PATH", "DATABASE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)
        text = sample(CONFIGURATION, "toml", 1)
        defaults = ServerConfig(), ClientConfig()
        Path("mail.toml").write_text(text, encoding="utf-8")
        assert (ServerConfig(), ClientConfig()) == defaults
        wanted = tomllib.loads(text)
        assert subset(ServerConfig().model_dump(), wanted["server"]) == wanted["server"]
        assert ClientConfig().model_dump() == wanted["client"]
        assert load_swarm(ServerConfig().swarm.name, ServerConfig().swarm.source).name == "example-no-proxy"

    def test_mail_toml_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With other values than the defaults: the sample's keys are those that are read."""
        text = sample(CONFIGURATION, "toml", 1)
        for value, other in {"8000": "8001", "0.0.0.0": "::1", "15": "16", "true": "false", "3600.0": "5.0",
                             "example-no-proxy": "other", "swarms.json": "more.json"}.items():  # fmt: skip
            assert value in text
            text = text.replace(value, other)
        path = tmp_path / "other.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))
        wanted = tomllib.loads(text)
        server = ServerConfig()
        assert subset(server.model_dump(), wanted["server"]) == wanted["server"]
        assert ClientConfig().model_dump() == wanted["client"]
        assert server != ServerConfig.model_validate({})


def subset(value: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """`value` with these keys only, at any depth."""
    return {
        name: subset(value[name], inner) if isinstance(inner, dict) else value[name]
        for name, inner in keys.items()
    }


class Office:
    """Plays the three agents of the documented swarm, each known by its tools."""

    def __call__(self, request: Request) -> Any:
        tools = {tool["name"] for tool in request.body["tools"]}
        said = json.dumps(request.body["input"])
        results = [
            item["output"] for item in request.body["input"] if item.get("type") == "function_call_output"
        ]
        if "get_weather_forecast" in tools:
            return self._work("get_weather_forecast", results, location="Oslo", days_ahead=0, metric=True)
        if "calculate_expression" in tools:
            return self._work("calculate_expression", results, expression="6*7")
        if not results:
            return reply(
                call("send_request", target="weather", subject="Weather", body="In Oslo?"),
                call("send_request", target="math", subject="Sum", body="6 times 7?"),
                call("await_message"),
            )
        if "Oslo weather" in said and "The sum" in said:
            return reply(call("task_complete", finish_message="Both are done."))
        return reply(call("await_message"))

    def _work(self, action: str, results: list[str], **arguments: Any) -> Any:
        if not results:
            return reply(call(action, **arguments))
        subject = {"get_weather_forecast": "Oslo weather", "calculate_expression": "The sum"}[action]
        return reply(call("send_response", target="supervisor", subject=subject, body=results[0]))
