"""Text of an agent that calls no tool is taken as the answer it was meant for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mail.core.task.events import EventKind
from mail.core.task.swarm import AgentCore, AgentOutput, History, SwarmCore, ToolChoice
from mail.testing.agents import (
    Call,
    Rule,
    View,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    interrupt,
    request,
    respond,
    scripted,
    turns,
    wait,
)
from mail.testing.rig import Outcome, Rig, ask_once

Said = str | Sequence[Call]


def said(*script: Said) -> Rule:
    """Play one entry per turn: text, or tool calls."""
    return turns(*([call("text_output", content=each)] if isinstance(each, str) else each for each in script))


async def run(
    *supervisor: Said, worker: Sequence[Said] = (), other: Sequence[Said] = (), **settings: Any
) -> Outcome:
    agents = {"supervisor": said(*supervisor), "worker": said(*worker), "other": said(*other)}
    return await ask_once(build_swarm(agents, **settings))


def taken(outcome: Outcome) -> list[tuple[str, str | None]]:
    """Each text's agent, and the tool that it was taken as."""
    return [(event.agent, event.extra.as_json()["taken_as"]) for event in outcome.of(EventKind.TEXT_ANSWER)]


async def test_the_answer_to_the_user_ends_the_task() -> None:
    outcome = await run("Hello, user!")
    assert outcome.answer == "Hello, user!"
    assert taken(outcome) == [("supervisor", "task_complete")]
    assert not outcome.of(EventKind.AGENT_ERROR)
    assert outcome.of(EventKind.TASK_COMPLETE_CALL)


async def test_the_answer_to_a_request_goes_to_the_agent_that_asked() -> None:
    outcome = await run([request("worker")], "The worker says 42.", worker=["42"])
    assert outcome.answer == "The worker says 42."
    assert taken(outcome) == [("worker", "send_response"), ("supervisor", "task_complete")]
    answered = outcome.messages[2].message
    assert (answered.subject, answered.body) == ("Re: Request", "42")
    assert answered.own_id == outcome.messages[1].message.own_id


async def test_the_results_of_an_action_lead_to_the_agent_that_asked() -> None:
    async def look_up(_arguments: dict[str, Any]) -> str:
        return "42"

    outcome = await run(
        [request("worker")],
        "It is 42.",
        worker=[[call("look_up")], "I found 42"],
        actions={"look_up": look_up},
    )
    assert outcome.answer == "It is 42."
    assert taken(outcome)[0] == ("worker", "send_response")


async def test_the_answer_has_the_subject_of_the_request_whatever_was_read_last() -> None:
    async def look_up(_arguments: dict[str, Any]) -> str:
        return "42"

    outcome = await run(
        [request("worker", subject="The number")],
        "It is 42.",
        worker=[[call("look_up")], [request("other", subject="A check")], "It is 42"],
        other=["Right"],
        actions={"look_up": look_up},
    )
    assert [(sent.message.subject, sent.message.body) for sent in outcome.messages[-3:-1]] == [
        ("Re: A check", "Right"),
        ("Re: The number", "It is 42"),
    ]


async def test_a_response_leads_to_the_last_agent_that_waits() -> None:
    """The worker asks the other agent before it answers the supervisor."""
    outcome = await run(
        [request("worker")], "done", worker=[[request("other")], "passed on"], other=["known"]
    )
    assert [message.message.body for message in outcome.messages[1:]] == [
        "please",
        "please",
        "known",
        "passed on",
        "done",
    ]
    assert outcome.answer == "done"


async def test_text_does_not_end_a_task_that_waits_for_others() -> None:
    """The supervisor has asked two agents, and speaks after each answer."""
    outcome = await run(
        [request("worker"), request("other")], "One is here.", "Both are here.", worker=["a"], other=["b"]
    )
    assert outcome.answer == "Both are here."
    assert taken(outcome)[-2:] == [("supervisor", None), ("supervisor", "task_complete")]
    remark = outcome.of(EventKind.TEXT_ANSWER)[-2]
    assert remark.extra.as_json()["content"] == "One is here."
    assert not outcome.of(EventKind.AGENT_ERROR)


async def test_text_ends_a_task_in_which_nobody_can_answer_any_more() -> None:
    """The worker fails, so its answer will never come."""

    def failing(_view: View) -> list[Call]:
        raise RuntimeError

    agents = {"supervisor": said([request("worker")], "Without the worker: 42."), "worker": failing}
    outcome = await ask_once(build_swarm(agents))
    assert outcome.answer == "Without the worker: 42."


async def test_an_interrupt_is_answered_and_a_broadcast_is_not() -> None:
    outcome = await run(
        [interrupt("worker"), broadcast()],
        "done",
        worker=["stopped", "heard"],
        other=["heard"],
    )
    assert sorted(taken(outcome), key=str) == sorted(
        [("worker", "send_response"), ("worker", None), ("other", None), ("supervisor", "task_complete")],
        key=str,
    )
    assert outcome.answer == "done"


async def test_text_after_the_step_limit_is_the_answer() -> None:
    outcome = await run(
        [request("worker")], "All I know.", worker=[[request("supervisor")]] * 3, task_message_limit=2
    )
    assert outcome.answer == "All I know."


async def test_an_agent_that_cannot_answer_the_user_is_told_so() -> None:
    entry = build_agent(said("Hi!", [request("boss")], "Told you."), targets=["boss"], enable_entrypoint=True)
    boss = build_agent(said([complete("the boss's answer")]), targets=["entry"], supervises=True)
    outcome = await ask_once(build_swarm({"entry": entry, "boss": boss}))
    assert outcome.answer == "the boss's answer"
    assert "text alone reaches nobody" in outcome.of(EventKind.AGENT_ERROR)[0].text


async def test_an_agent_that_is_asked_by_the_user_directly_answers_in_text() -> None:
    worker = build_agent(said("I am the worker."), enable_entrypoint=True)
    outcome = await ask_once(
        build_swarm({"supervisor": said(), "worker": worker}), entrypoint="worker", is_direct=True
    )
    assert outcome.answer == "I am the worker."


async def test_strict_agents_must_call_a_tool() -> None:
    strict = build_agent(said("Hello!", [complete("called")]), supervises=True, strict_tools=True)
    outcome = await ask_once(build_swarm({"supervisor": strict}))
    assert outcome.answer == "called"
    assert not taken(outcome)
    assert "text alone reaches nobody" in outcome.of(EventKind.AGENT_ERROR)[0].text


def function_that_says(*texts: str) -> AgentCore:
    """Return an agent whose function returns text and no calls at all."""
    script = iter(texts)

    async def function(_history: History, _choice: ToolChoice) -> AgentOutput:
        return next(script), []

    return replace(build_agent(said(), supervises=True), function=function)


async def test_text_without_a_call_object_counts_and_is_remembered() -> None:
    swarm: SwarmCore = build_swarm({"supervisor": function_that_says("Hello!")})
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        history = await rig.history("supervisor", outcome.key)
    assert outcome.answer == "Hello!"
    assert history[-1] == {"role": "assistant", "content": "Hello!"}


async def test_blank_text_is_an_error() -> None:
    outcome = await run("  ", [complete("done")])
    assert outcome.answer == "done"
    assert len(outcome.of(EventKind.AGENT_ERROR)) == 1


@pytest.mark.parametrize("beside", [wait(), request("worker")])
async def test_text_beside_tool_calls_stays_a_preamble(beside: Call) -> None:
    def supervisor(view: View) -> list[Call]:
        return [request("worker"), beside] if len(view.messages) == 1 else [complete("done")]

    core = build_agent(supervisor, targets=["worker"], supervises=True)
    core = replace(core, function=scripted(supervisor, text="I'll ask the worker."))
    worker = said([respond("supervisor")], [respond("supervisor")])
    outcome = await ask_once(build_swarm({"supervisor": core, "worker": worker}))
    assert outcome.answer == "done"
    assert not taken(outcome)
