"""A swarm whose parts don't fit together is refused, with a word on what to change."""

from typing import Any

import pytest

from mail.core.task.swarm import ActionCore, AgentCore, SwarmCore
from mail.errors import AgentUnavailable, ConfigurationError
from mail.testing.agents import build_agent, build_swarm, complete, output, turns


async def returns(output: Any) -> Any:
    async def function(_history: Any, _choice: Any) -> Any:
        return output

    return await AgentCore(function).step([], "auto")


async def test_a_step_of_an_agent() -> None:
    (made,) = output([complete()])
    assert await returns(("text", [made])) == ("text", [made])
    assert await returns((None, (made,))) == (None, [made])


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("words", "returned str; an agent function is async"),
        (None, "returned NoneType; "),
        (("text", "calls"), "returned tuple of str, str; "),
        (("text",), "returned tuple of str; "),
        ((1, []), "returned tuple of int, list; "),
        ((None, None), "returned tuple of NoneType, NoneType; "),
        ((None, [], []), "returned tuple of NoneType, list, list; "),
        ((None, [None]), r"returns \(text or None, \[AgentToolCall"),
        ((None, [{"tool_name": "help"}]), r"returns \(text or None, \[AgentToolCall"),
    ],
)
async def test_what_an_agent_may_not_return(result: Any, told: str) -> None:
    with pytest.raises(AgentUnavailable, match=told):
        await returns(result)


async def test_an_agent_function_that_is_not_async() -> None:
    with pytest.raises(AgentUnavailable, match="returned tuple of str, list; an agent function is async"):
        await AgentCore(lambda _history, _choice: ("text", [])).step([], "auto")  # type: ignore[return-value]


async def act(args: dict[str, Any]) -> str:
    return "acted"


def agent(**settings: Any) -> AgentCore:
    return build_agent(turns([complete()]), **settings)


CHIEF = agent(supervises=True)
ACT = ActionCore("act", act)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "a:b"}, "':'"),
    ({"name": "a@b"}, "'@'"),
    ({"entrypoint": "cheif"}, "Did you mean 'chief'"),
    ({"entrypoint": "worker"}, "enable_entrypoint"),
    ({"agents": {"chief": agent(enable_entrypoint=True)}}, "can_complete_tasks"),
    ({"agents": {"chief": CHIEF, "all": agent()}}, "'all'"),
    ({"agents": {"chief": CHIEF, "": agent()}}, "name"),
    ({"agents": {"chief": CHIEF, "a@b": agent()}}, "'@'"),
    ({"agents": {"chief": CHIEF, "a#b": agent()}}, "'#'"),
    ({"agents": {"chief": CHIEF, "worker": agent(targets=["cheif"])}}, "Did you mean 'chief'"),
    ({"agents": {"chief": CHIEF, "worker": agent(targets=["nobody@example"])}}, "nobody"),
    ({"agents": {"chief": CHIEF, "worker": agent(actions=["akt"])}}, "Did you mean 'act'"),
    ({"agents": {"chief": CHIEF, "worker": agent(exclude_tools=frozenset({"halp"}))}}, "halp"),
    ({"actions": {"act": ACT, "task_complete": ACT}}, "task_complete"),
    ({"task_message_limit": 0}, "task_message_limit"),
]


@pytest.mark.parametrize(("change", "hint"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_does_not_fit_is_refused(change: dict[str, Any], hint: str) -> None:
    parts: dict[str, Any] = {
        "name": "example",
        "version": "1",
        "entrypoint": "chief",
        "agents": {"chief": CHIEF, "worker": agent()},
        "actions": {"act": ACT},
    }
    SwarmCore(**parts)
    with pytest.raises(ConfigurationError) as refusal:
        SwarmCore(**(parts | change))
    assert hint in refusal.value.detail


def test_targets_in_other_swarms_are_not_ours_to_judge() -> None:
    build_swarm({"chief": agent(supervises=True, targets=["anybody@elsewhere"])})


def test_who_runs_a_tool() -> None:
    swarm = build_swarm(
        {"chief": turns()}, actions={"act": act, "ask": act}, breakpoint_tools=frozenset({"ask"})
    )
    chief = swarm.agents["chief"]
    assert swarm.runs_as_action(chief, "act")
    assert not swarm.runs_as_action(chief, "ask")
    assert not swarm.runs_as_action(chief, "send_request")
    assert not swarm.runs_as_action(agent(), "act")


def test_who_finishes_a_task() -> None:
    swarm = build_swarm(
        {"front": agent(enable_entrypoint=True), "chief": CHIEF, "deputy": agent(supervises=True)},
        entrypoint="chief",
    )
    assert [swarm.closing_agent(name) for name in ("front", "chief", "deputy", "gone")] == [
        "chief", "chief", "deputy", "chief",
    ]  # fmt: skip
