"""The example swarms with a language model, from the package's swarms.json and from a file as MAIL 1.3.6 has it."""

import importlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from factory_agents import GPT
from support.llm_stub import LLMStub, Reply, call, reply

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
            wait(ask("faq", "Returns?"), ask("orders", "AB-12345?")),
            wait(),
            finish("Within 30 days."),
        ],
        "common questions of": [
            reply(call("search_faq", question="Can I return my shoes?")),
            respond("coordinator", "Within 30 days."),
        ],
        "You look up orders": [
            reply(call("look_up_order", order="AB-12345")),
            respond("coordinator", "On its way."),
        ],
    },
    "research": {
        "You lead a research desk": [
            wait(ask("searcher", "When was the storm?")),
            wait(ask("checker", "The storm was in 1904 [L2].")),
            finish("In November 1904 [L2]."),
        ],
        "You find facts": [
            reply(call("search_library", query="storm Ostwick")),
            reply(call("read_source", source="L2")),
            respond("lead", "In November 1904 [L2]."),
        ],
        "You verify claims": [reply(call("read_source", source="L2")), respond("lead", "confirmed")],
    },
    "data_analysis": {
        "You lead a team": [
            wait(ask("tables", "The loaves?")),
            wait(ask("statistician", "212, 198, …")),
            wait(ask("writer", "The mean is 220.7.")),
            finish("The bakery bakes 221 loaves a day."),
        ],
        "You read tables": [
            reply(call("list_tables")),
            reply(call("read_column", table="bakery", column="loaves per day")),
            respond("lead", "212, 198, …"),
        ],
        "You calculate figures": [
            reply(call("describe_numbers", numbers=[212, 198, 205, 240, 260, 310, 120])),
            respond("lead", "The mean is 220.7."),
        ],
        "You write up figures": [respond("lead", "The bakery bakes 221 loaves a day.")],
    },
}
"""What the model of each agent says, by a piece of its system prompt."""

SHOWN = {
    "example": ["rainy", "84"],
    "support": ["Within 30 days, unused", "arrives_in_days"],
    "research": ["Annals of Ostwick", "It was not rebuilt until 1911"],
    "data_analysis": ["temperature in °C", "260", '"median": 212'],
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


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_swarm_with_a_model(stub: LLMStub, name: str) -> None:
    play(stub, name)
    swarm = MAILSwarmTemplate.from_swarm_json_file(name, PACKAGED_SOURCE).instantiate({})
    response, _ = await swarm.post_message_and_run("Please help.", max_steps=40)
    assert (
        response.message.body
        == SCRIPTS[name][next(iter(SCRIPTS[name]))][-1].parts[0].arguments["finish_message"]
    )  # type: ignore[union-attr, index]
    told = json.dumps([request.body["input"] for request in stub.requests], ensure_ascii=False)
    assert [
        piece
        for piece in SHOWN[name]
        if json.dumps(piece, ensure_ascii=False)[1:-1] not in told.replace("\\\\", "\\")
    ] == []
    assert stub.is_done
    await swarm.shutdown()


OLD = Path(__file__).parents[1] / "fixtures" / "swarms-1.3.6.json"
"""swarms.json as MAIL 1.3.6 documents it: actions by `action_imports`, agents by its classes and by older factories."""


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["example-no-proxy", "example", "swarm-alpha", "swarm-beta"])
def test_swarms_of_mail_1_3_6_load(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        core = MAILSwarmTemplate.from_swarm_json_file(name, OLD).to_core({"user_token": "t"})
    assert core.entrypoint == "supervisor"
    assert core.actions
    assert caplog.text == ""


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
async def test_the_default_swarm_of_mail_1_3_6_answers(stub: LLMStub) -> None:
    play(stub, "example")
    swarm = MAILSwarmTemplate.from_swarm_json_file("example-no-proxy", OLD).instantiate({"user_token": "t"})
    response, _ = await swarm.post_message_and_run("The weather in Tokyo, and 12*(3+4)?")
    assert response.message.body == "Rainy, and 84."
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
