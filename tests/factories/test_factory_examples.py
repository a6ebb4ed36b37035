"""The example swarms with a language model, from the package's swarms.json and from a file as MAIL 1.3.6 has it."""

import importlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from factory_agents import GPT
from support.services.llm_stub import LLMStub, Reply, call, reply

import mail.examples
from mail import MAILAction, MAILSwarmTemplate
from mail.factories import LiteLLMActionAgentFunction, LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.swarms_json.load import PACKAGED_SOURCE

NAMES = [swarm["name"] for swarm in json.loads(PACKAGED_SOURCE.read_text(encoding="utf-8"))]


def ask(target: str, body: str) -> Any:
    return call("send_request", target=target, subject="s", body=body)


def respond(target: str, body: str) -> Reply:
    return reply(call("send_response", target=target, subject="s", body=body))


def wait(*calls: Any) -> Reply:
    return reply(*calls, call("await_message"))


def finish(text: str) -> Reply:
    return reply(call("task_complete", finish_message=text))


MAIL = "My shoes are broken and I am furious. Can I return them?"
CLAIM = "A storm destroyed the eastern quay of Ostwick in 1904."
EVIDENCE = {"source": "Storms of the north coast", "source_type": "academic", "supports": True}

SCRIPTS: dict[str, dict[str, list[Reply]]] = {
    "example": {
        "You supervise": [
            wait(ask("weather", "Tokyo?"), ask("math", "12*(3+4)?")),
            wait(),
            finish("Rainy, and 84."),
        ],
        "the weather.": [
            reply(call("get_weather_forecast", location="Tokyo")),
            respond("supervisor", "Rainy."),
        ],
        "You calculate for": [
            reply(call("calculate_expression", expression="12*(3+4)")),
            respond("supervisor", "84"),
        ],
    },
    "support": {
        "You lead the help desk": [
            wait(ask("faq", "Returns?"), ask("classifier", MAIL), ask("sentiment", MAIL)),
            wait(),
            wait(),
            finish("Within 30 days; somebody will call you: ESC-68ED47DA."),
        ],
        "common questions of": [
            reply(call("search_faq", query="Can I return my shoes?", max_results=1)),
            respond("coordinator", "Within 30 days."),
        ],
        "You classify messages": [
            reply(call("classify_ticket", text=MAIL)),
            respond("coordinator", "returns, high"),
        ],
        "You judge how": [
            reply(call("analyze_sentiment", text=MAIL)),
            reply(call("create_escalation", ticket_id="T-1", reason="furious", priority="high")),
            respond("coordinator", "negative"),
        ],
    },
    "research": {
        "You lead a research desk": [
            wait(ask("searcher", "When was the storm?")),
            wait(ask("verifier", CLAIM)),
            wait(ask("summarizer", "Please list the source.")),
            finish("In November 1904 (Berg)."),
        ],
        "You find facts": [
            reply(call("search_topic", query="storm Ostwick", source="academic")),
            reply(call("extract_facts", text="A storm destroyed the quay in 1904. Why?")),
            respond("researcher", "In November 1904."),
        ],
        "You verify claims": [
            reply(call("verify_claim", claim=CLAIM)),
            reply(call("rate_confidence", claim=CLAIM, evidence=[EVIDENCE])),
            respond("researcher", "supported"),
        ],
        "You summarize texts": [
            reply(call("summarize_text", text=f"{CLAIM} Hello.", max_length=90)),
            reply(
                call(
                    "create_bibliography", sources=[{"title": "Storms", "author": "Berg, L.", "date": "1998"}]
                )
            ),
            respond("researcher", "Berg, L. (1998). Storms."),
        ],
    },
    "data-analysis": {
        "You lead a team": [
            wait(ask("processor", "The weather?")),
            wait(ask("statistics", "1, 2, 4")),
            wait(ask("reporter", "The mean is 2.33.")),
            finish("It is 2.33 degrees on average."),
        ],
        "You provide data": [
            reply(call("generate_sample_data", dataset="weather", rows=3)),
            reply(call("parse_csv", data="degrees,place\n1,a\n2,b\n4,c\n")),
            respond("analyst", "1, 2, 4"),
        ],
        "You calculate figures": [
            reply(call("calculate_statistics", data=[1, 2, 4], metrics=["mean", "median"])),
            reply(call("run_correlation", x=[1, 2, 3], y=[2, 4, 6])),
            respond("analyst", "The mean is 2.33."),
        ],
        "You write up figures": [
            reply(call("format_report", title="Weather", sections=[{"heading": "Mean", "content": "2.33"}])),
            respond("analyst", "# Weather"),
        ],
    },
}
"""What the model of each agent says, by a piece of its system prompt."""

SHOWN = {
    "example": ["rainy", "84"],
    "support": [
        "Within 30 days, unused",
        '"category":"returns","priority":"high"',
        '"sentiment":"negative"',
        "ESC-",
    ],
    "research": [
        "The quay was not rebuilt until 1911",
        '"numbers":["1904"]',
        '"verdict":"supported"',
        '"confidence":0.67',
        "Berg, L. (1998). Storms.",
    ],
    "data-analysis": [
        "date,temperature,rain_mm,wind_kmh",
        '"degrees":[1.0,2.0,4.0]',
        '"median":2.0',
        '"correlation":1.0',
        "## Mean",
    ],
}
"""What the actions must have told the models."""


def play(stub: LLMStub, name: str) -> None:
    for to, replies in SCRIPTS[name].items():
        stub.script(*replies, to=to)


@pytest.mark.parametrize("name", NAMES)
def test_every_swarm_of_the_package_loads(name: str) -> None:
    template = MAILSwarmTemplate.from_swarm_json_file(name, PACKAGED_SOURCE)
    assert template.name == name
    assert template.to_core().agents.keys() == {agent.name for agent in template.agents}


OLD = Path(__file__).parents[1] / "fixtures" / "swarms-1.3.6.json"
"""The seven swarms of MAIL 1.3.6, in its form: actions by `action_imports`, agents by its classes and older factories.
"""

OLD_NAMES = [swarm["name"] for swarm in json.loads(OLD.read_text(encoding="utf-8"))]


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", OLD_NAMES)
def test_swarms_of_mail_1_3_6_load(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        core = MAILSwarmTemplate.from_swarm_json_file(name, OLD).to_core({"user_token": "t"})
    assert core.agents[core.entrypoint].can_complete_tasks
    assert core.actions
    assert caplog.text == ""


def test_mail_1_3_6_has_seven_swarms() -> None:
    assert len(OLD_NAMES) == 7
    assert {"support", "research", "data-analysis"} < set(OLD_NAMES)


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("source", "name", "script"),
    [
        *((PACKAGED_SOURCE, name, name) for name in SCRIPTS),
        (OLD, "example-no-proxy", "example"),
        *((OLD, name, name) for name in SCRIPTS if name != "example"),  # that one needs a proxy
    ],
    ids=lambda value: "old" if value == OLD else "packaged" if isinstance(value, Path) else value,
)
async def test_a_swarm_with_a_model(stub: LLMStub, source: Path, name: str, script: str) -> None:
    play(stub, script)
    swarm = MAILSwarmTemplate.from_swarm_json_file(name, source).instantiate({"user_token": "t"})
    response, _ = await swarm.post_message_and_run("Please help.", max_steps=40)
    last = SCRIPTS[script][next(iter(SCRIPTS[script]))][-1].parts[0]
    assert response.message.body == last.arguments["finish_message"]  # type: ignore[union-attr]
    told = json.dumps([request.body for request in stub.requests], ensure_ascii=False).replace("\\", "")
    assert [piece for piece in SHOWN[script] if piece not in told] == []
    assert stub.is_done
    await swarm.shutdown()


@pytest.mark.parametrize(
    ("package", "prefix", "kind", "action"),
    [
        ("supervisor", "supervisor", LiteLLMSupervisorFunction, None),
        ("weather_dummy", "weather", LiteLLMActionAgentFunction, "get_weather_forecast"),
        ("math_dummy", "math", LiteLLMActionAgentFunction, "calculate_expression"),
        ("analyst_dummy", "analyst", LiteLLMAgentFunction, None),
        ("consultant_dummy", "consultant", LiteLLMAgentFunction, None),
    ],
)
def test_what_the_packages_of_examples_offer(
    package: str, prefix: str, kind: Any, action: str | None
) -> None:
    module = importlib.import_module(f"mail.examples.{package}")
    assert module is getattr(mail.examples, package)
    params = getattr(module, f"{prefix}_agent_params")
    assert params["system"] == getattr(module, f"{prefix.upper()}_SYSPROMPT")
    made = getattr(module, f"LiteLLM{prefix.capitalize()}Function")
    assert issubclass(made, kind)
    assert made is getattr(importlib.import_module(f"mail.examples.{package}.agent"), made.__name__)
    assert f"LiteLLM{prefix.capitalize()}Function" in dir(module)
    old = getattr(module, "supervisor_factory" if prefix == "supervisor" else f"factory_{package}")
    with pytest.warns(DeprecationWarning, match=f"use {made.__name__}"):
        assert isinstance(old(name="a", comm_targets=["b"], **params), made)
    if action is not None:
        tool = getattr(module, f"action_{action}")
        assert isinstance(tool, MAILAction)
        assert tool is getattr(importlib.import_module(f"mail.examples.{package}.actions"), action)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("action_agent_factory", LiteLLMActionAgentFunction),
        ("base_agent_factory", LiteLLMAgentFunction),
        ("supervisor_factory", LiteLLMSupervisorFunction),
    ],
)
def test_old_factories(name: str, kind: Any) -> None:
    factory = getattr(importlib.import_module("mail.factories"), name)
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated; use {kind.__name__}"):
        made = factory(name="a", comm_targets=["b"], llm=GPT, user_token="t")
    assert type(made) is kind
    assert factory.supervises == kind.supervises
