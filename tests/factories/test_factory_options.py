"""Options of model calls: they reach the provider over both APIs, typos get a hint, and keys stay secret."""

import inspect
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from factory_agents import GPT, prompt
from support.services.llm_stub import LLMStub, bad_request, call, reply

from mail import Agent, Swarm
from mail.api.agents import MAILAgentTemplate
from mail.api.swarms import MAILSwarmTemplate
from mail.bootstrap.system import read_swarm
from mail.config import ServerConfig
from mail.core.protocol.calls import ToolFormat
from mail.errors import AgentUnavailable, ConfigurationError, ModelError
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.swarms_json.build import build_swarm
from mail.swarms_json.specs import SwarmSpec

KEY = "sk-secret-of-ours"
CLAUDE = "anthropic/claude-sonnet-4-5"


def agent(tool_format: ToolFormat = "responses", **options: Any) -> LiteLLMAgentFunction:
    wiring: dict[str, Any] = {"name": "boss", "comm_targets": [], "tool_format": tool_format}
    return LiteLLMSupervisorFunction(**{"llm": "openai/gpt-4o", **wiring, **options})


async def ask(stub: LLMStub, function: LiteLLMAgentFunction) -> dict[str, Any]:
    stub.script(reply(call("help")))
    await function([prompt()])
    return stub.requests[-1].body


def test_settings_of_a_cloud_are_options() -> None:
    agent(aws_region_name="eu-west-1", vertex_project="ours", langfuse_public_key="pk", verbose=False)


@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_options_reach_the_provider(stub: LLMStub, tool_format: ToolFormat) -> None:
    options = {"temperature": 0, "top_p": 0.5, "parallel_tool_calls": False, "user": "ann"}
    headers = {"X-Team": "search"}
    function = agent(tool_format, **options, extra_headers=headers, api_key=KEY, timeout=30)
    body = await ask(stub, function)
    assert {name: body[name] for name in options} == options
    assert stub.requests[-1].headers["x-team"] == "search"
    assert stub.requests[-1].key == KEY


async def test_options_of_one_api(stub: LLMStub) -> None:
    body = await ask(stub, agent("completions", seed=7, stop=["END"], frequency_penalty=0.5))
    assert (body["seed"], body["stop"], body["frequency_penalty"]) == (7, ["END"], 0.5)
    body = await ask(stub, agent("responses", truncation="auto", verbosity="low", llm=GPT))
    assert (body["truncation"], body["text"]) == ("auto", {"verbosity": "low"})
    with pytest.raises(
        ConfigurationError, match="'seed' is an option of the other API; set tool_format to 'completions'"
    ):
        agent("responses", seed=7)
    assert Agent("a", model=GPT, seed=7).tool_format == "completions"
    assert Agent("a", model=GPT, temperature=0).tool_format == "responses"


async def test_claude_takes_the_options_of_chat(stub: LLMStub) -> None:
    body = await ask(stub, agent("responses", llm=CLAUDE, temperature=0.5, top_k=3, thinking_budget=None))
    assert (body["temperature"], body["top_k"]) == (0.5, 3)


async def test_another_address(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
    base = stub.environ["OPENAI_BASE_URL"]
    for name in stub.environ:
        monkeypatch.delenv(name)
    for tool_format in ("responses", "completions"):
        for name in ("api_base", "base_url"):
            await ask(stub, agent(tool_format, **{name: base}, api_key=KEY))
    assert len(stub.requests) == 4


async def test_keys_by_reference(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
    function = agent(api_key="${OUR_KEY}", extra_headers={"X-Token": "${OUR_TOKEN}"})
    with pytest.raises(AgentUnavailable, match=r"its api_key is \$\{OUR_KEY\}, but this variable is not set"):
        await function([prompt()])
    monkeypatch.setenv("OUR_KEY", KEY)
    monkeypatch.setenv("OUR_TOKEN", "token")
    await ask(stub, function)
    assert (stub.requests[-1].key, stub.requests[-1].headers["x-token"]) == (KEY, "token")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("temprature", "Did you mean 'temperature'"),
        ("api_bse", "Did you mean 'api_base'"),
        ("reasoning_efort", "Did you mean 'reasoning_effort'"),
        ("sytem", "Did you mean 'system'"),
        ("wobble_factor_xyz", "extra_body"),
        ("messages", "the engine sends the agent's history"),
        ("tool_choice", "use default_tool_choice"),
        ("stream", "use stream_tokens"),
        ("max_completion_tokens", "use max_tokens"),
        ("num_retries", "retry_policy"),
        ("cooldown_time", "retry_policy"),
        ("rpm", "[server.models], or as Swarm(model_limits=…)"),
        ("max_parallel_requests", "[server.models]"),
        ("fallbacks", "use fallback"),
        ("context_window_fallbacks", "use fallback"),
        ("max_budget", "a budget, or set one for its caller in [server.budgets]"),
        (
            "guardrails",
            "needs_approval; if llm is called through litellm's proxy, name its guardrails in extra_body",
        ),
        ("routing_strategy", "no router"),
        ("keepalive_seconds", "only litellm's proxy"),
    ],
)
def test_what_is_not_an_option(name: str, problem: str) -> None:
    refused = f"agent 'boss': '{name}' is not an option.*{re.escape(problem)}"
    with pytest.raises(ConfigurationError, match=refused):
        agent(**{name: 1})
    with pytest.raises(ConfigurationError, match=refused):
        Agent("boss", model=GPT, **{name: 1})


def test_no_option_is_only_for_a_router() -> None:
    """Of the options of litellm's router, a call has two."""
    import litellm

    of_calls = {"timeout", "stream_timeout"}
    for name in inspect.signature(litellm.Router).parameters.keys() - of_calls:
        with pytest.raises(ConfigurationError, match=f"'{name}' is not an option"):
            agent(**{name: 1})
    agent(**dict.fromkeys(of_calls, 1))


def test_a_timeout_is_a_number() -> None:
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds"):
        agent(timeout="10")


def entry(**params: Any) -> SwarmSpec:
    boss = {
        "name": "boss",
        "factory": "python::mail.factories:LiteLLMSupervisorFunction",
        "agent_params": {"llm": GPT, **params},
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return SwarmSpec.model_validate(
        {"name": "office", "version": "1", "entrypoint": "boss", "agents": [boss]}
    )


async def test_swarms_json(stub: LLMStub) -> None:
    function: Any = build_swarm(entry(user="ann", api_key=KEY)).agents["boss"].function
    assert (await ask(stub, function))["user"] == "ann"
    with pytest.raises(
        ConfigurationError, match=r"swarm 'office', agent 'boss'.*'temprature'.*'temperature'"
    ):
        build_swarm(entry(temprature=0))


def test_a_loaded_swarm_can_t_send_keys_elsewhere() -> None:
    build_swarm(entry(temperature=0), allowed_prefixes=["mail"])
    for params in (
        {"api_base": "http://elsewhere"},
        {"aws_sts_endpoint": "http://elsewhere"},
        {"extra_headers": {}},
        {"api_key": "${AWS_SECRET}"},
    ):
        with pytest.raises(ConfigurationError, match=r"only in the server's own swarms\.json"):
            build_swarm(entry(**params), allowed_prefixes=["mail"])


@pytest.mark.parametrize(
    "params",
    [
        {"user": "${AWS_SECRET}"},
        {"metadata": {"a": {"b": "${AWS_SECRET}"}}},
        {"metadata": {"a": ["${AWS_SECRET}"]}},
    ],
)
def test_a_loaded_swarm_can_t_read_the_environment(params: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"agent 'boss': \w+: a swarm that is loaded .* environment variables"
    ):
        build_swarm(entry(**params), allowed_prefixes=["mail"])
    with pytest.raises(ConfigurationError, match="environment variables"):
        MAILSwarmTemplate.from_swarm_json(entry(**params).model_dump_json(), allowed_prefixes=["mail"])
    with pytest.raises(ConfigurationError, match="environment variables"):
        MAILAgentTemplate("boss", GPT, [], [], params, allowed_prefixes=["mail"])
    build_swarm(entry(**params))
    build_swarm(entry(system="In a shell, ${AWS_SECRET} is a variable."), allowed_prefixes=["mail"])


def test_a_typo_in_the_server_s_swarms_json_names_the_file(tmp_path: Path) -> None:
    source = tmp_path / "swarms.json"
    source.write_text(f"[{entry(temprature=0).model_dump_json()}]")
    config = ServerConfig.model_validate({"swarm": {"name": "office", "source": str(source)}})
    with pytest.raises(ConfigurationError, match=r"swarms\.json: .*agent 'boss'.*'temprature'.*Did you mean"):
        read_swarm(config)


async def test_keys_stay_secret(stub: LLMStub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mail")
    function = agent(api_key=KEY, extra_headers={"X-Token": "very-secret"})
    stub.script(bad_request(f"the key {KEY} or very-secret is bad"))
    with pytest.raises(ModelError) as raised:
        await function([prompt()])
    template = Swarm(Agent("boss", model=GPT, api_key=KEY)).template
    shown = [
        raised.value,
        function,
        function.request([prompt()]),
        template.spec,
        entry(api_key=KEY),
        caplog.text,
    ]
    shown.append(json.dumps([template.to_core().agents["boss"].comm_targets]))
    assert caplog.records
    for each in shown:
        assert KEY not in f"{each} {each!r}"
        assert "very-secret" not in f"{each} {each!r}"


async def test_a_subclass_keeps_its_own_parameters(stub: LLMStub) -> None:
    class Own(LiteLLMAgentFunction):
        def __init__(self, colour: str = "red", **wiring: Any) -> None:
            super().__init__(**wiring, weight=3)
            self.colour = colour

    own = Own(name="own", comm_targets=[], llm="openai/gpt-4o", colour="blue", temperature=0.5, debug=True)
    assert (own.colour, own.extra["weight"], own.extra["debug"]) == ("blue", 3, True)
    body = await ask(stub, own)
    assert body["temperature"] == 0.5
    assert not {"weight", "debug"} & body.keys()
