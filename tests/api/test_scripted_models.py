"""`mail.testing` in place of language models: in swarms of swarms.json and of Python."""

from pathlib import Path
from typing import Any

import pytest
from support.processes.projects import entry, supervisor, write_project

from mail import Agent, MAILSwarmTemplate, Swarm
from mail.errors import ConfigurationError
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.testing import call, request, wait, with_scripts

SCRIPTS: dict[str, Any] = {
    "supervisor": [[request("math", "6*7"), wait()], "It is 42."],
    "math": [[call("calculate_expression", expression="6*7")], "42"],
}


def example() -> MAILSwarmTemplate:
    return MAILSwarmTemplate.from_swarm_json_file("example", str(PACKAGED_SOURCE))


@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_scripts_play_instead_of_models(tool_format: Any) -> None:
    template = with_scripts(example(), SCRIPTS)
    for agent in template.agents:
        agent.tool_format = tool_format
    swarm = template.instantiate({}, user_id="test")
    answer, events = await swarm.post_message_and_run("6*7?", show_events=True)
    await swarm.shutdown()
    assert answer["message"]["body"] == "It is 42."
    results = [event for event in events if event.event == "action_complete"]
    assert len(results) == 1
    assert "42" in str(results[0].data)


async def test_a_swarm_of_python_can_be_asked() -> None:
    swarm = Swarm(Agent("greeter", "You greet.", model="openai/gpt-5-mini"))
    scripted = with_scripts(swarm, {"greeter": ["Hello!", "Hello again!"]})
    async with scripted:
        answer = await scripted.aask("Hi")
        again = await scripted.aask("Hi", task_id=answer.task_id)
    assert (str(answer), str(again)) == ("Hello!", "Hello again!")


def test_no_task_of_a_test_is_left_in_the_database_of_the_swarm(tmp_path: Path) -> None:
    swarm = Swarm(
        Agent("greeter", "You greet.", model="openai/gpt-5-mini"), database=str(tmp_path / "own.db")
    )
    with with_scripts(swarm, {"greeter": ["Hello!"]}) as scripted:
        assert str(scripted.ask("Hi")) == "Hello!"
    assert list(tmp_path.iterdir()) == []
    with with_scripts(swarm, {"greeter": ["Hello!"]}, database=str(tmp_path / "kept.db")) as scripted:
        scripted.ask("Hi")
    assert (tmp_path / "kept.db").exists()


def test_the_given_swarm_keeps_its_models() -> None:
    given = example()
    with_scripts(given, SCRIPTS)
    assert [agent.agent_params["llm"] for agent in given.agents] == ["openai/gpt-5-mini"] * 3


def test_a_mistyped_name() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no agent 'maths'\. Did you mean 'math'"):
        with_scripts(example(), {"maths": []})


async def test_as_a_factory_in_swarms_json(tmp_path: Path) -> None:
    clock = supervisor(
        "clock",
        "mail.testing:scripted_model",
        actions=["calculate_expression"],
        agent_params={"script": [[{"tool": "calculate_expression", "args": {"expression": "6+6"}}], "Noon."]},
    )
    imports = ["python::mail.examples.math_dummy.actions:calculate_expression"]
    path = write_project(tmp_path, entry("clock", clock, action_imports=imports)) / "swarms.json"
    swarm = MAILSwarmTemplate.from_swarm_json_file("clock", str(path)).instantiate({}, user_id="test")
    answer, _ = await swarm.post_message_and_run("When?")
    await swarm.shutdown()
    assert answer["message"]["body"] == "Noon."


async def test_a_script_that_is_too_short_ends_the_task_with_the_cause() -> None:
    swarm = with_scripts(example(), {"supervisor": []}).instantiate({}, user_id="test")
    answer, _ = await swarm.post_message_and_run("6*7?")
    await swarm.shutdown()
    assert "the script of 'supervisor' ends after 0 replies" in answer["message"]["body"]


async def test_the_engine_decides_whom_a_text_is_for() -> None:
    """A deputy that may complete tasks answers the agent that asked it, as a model's text would."""
    deputy = Agent("deputy", "You help.", model="openai/gpt-5-mini", can_complete_tasks=True)
    lead = Agent("lead", "You lead.", model="openai/gpt-5-mini", team=[deputy])
    scripts = {"lead": [[request("deputy", "2 + 2?"), wait()], "It is 4."], "deputy": ["4"]}
    async with with_scripts(Swarm(lead), scripts) as swarm:
        assert (await swarm.aask("What is 2 + 2?")).text == "It is 4."
