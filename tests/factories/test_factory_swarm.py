"""Swarms of LLM agents on the embedded engine, and what they cost: per call, turn, agent and task."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_agents import (
    ALL,
    CHAT,
    CLAUDES,
    GPT,
    LOOK_UP,
    RESPONSES,
    Dialect,
    of,
    prompt,
    supervisor,
    swarm_of,
)
from support.processes.http_server import HTTPServer
from support.services.llm_stub import LLMStub, Tokens, bad_key, call, reply, text, thinking

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.turns import Turns
from mail.core.task.events import EventKind
from mail.core.task.usage import NO_USAGE, Usage, UsageMeter
from mail.core.turns import context
from mail.testing.rig import Outcome, Rig

TURN = Tokens(input=1000, output=100, cached=400, reasoning=60)


def script_weather(stub: LLMStub) -> None:
    """The supervisor asks the worker, who looks it up and answers; the supervisor finishes."""
    stub.script(
        reply(
            thinking("I must ask."),
            text("I ask the worker."),
            call("send_request", target="worker", subject="Weather", body="Oslo?"),
            call("await_message", reason="the worker's answer"),
            tokens=TURN,
        ),
        reply(thinking("There it is."), call("task_complete", finish_message="It is sunny."), tokens=TURN),
        to="You are the supervisor",
    )
    stub.script(
        reply(thinking("I look it up."), call("look_up", city="Oslo"), tokens=TURN),
        reply(
            thinking("I answer."),
            call("send_response", target="supervisor", subject="Weather", body="Sunny."),
            tokens=TURN,
        ),
        to="You are the worker",
    )


@of(ALL)
async def test_a_swarm_of_models_completes_a_task(stub: LLMStub, dialect: Dialect) -> None:
    script_weather(stub)
    async with Rig(swarm_of(dialect)) as rig:
        outcome = await rig.ask("What is the weather in Oslo?")
        assert outcome.answer == "It is sunny."
        assert stub.is_done
        assert outcome.kinds == [
            EventKind.NEW_MESSAGE,
            EventKind.TOOL_CALL,
            EventKind.TOOL_CALL,
            EventKind.AWAIT_MESSAGE,
            EventKind.NEW_MESSAGE,
            EventKind.TOOL_CALL,
            EventKind.ACTION_CALL,
            EventKind.ACTION_COMPLETE,
            EventKind.NEW_MESSAGE,
            EventKind.TOOL_CALL,
            EventKind.NEW_MESSAGE,
            EventKind.TOOL_CALL,
            EventKind.TASK_COMPLETE_CALL,
            EventKind.NEW_MESSAGE,
            EventKind.TASK_COMPLETE,
        ]
        calls = outcome.of(EventKind.TOOL_CALL)
        reasons = [event.extra.as_json().get("reasoning") for event in calls]
        assert reasons == ["I must ask.", None, "I look it up.", "I answer.", "There it is."]
        assert calls[1].extra.as_json()["reasoning_ref"] == calls[0].extra.as_json()["tool_call_id"]
        assert calls[0].extra.as_json()["preamble"] == "I ask the worker."
        told = str(stub.requests[2].body.get("messages") or stub.requests[2].body["input"])
        assert "it is sunny in Oslo" in told

        again = reply(thinking("Again."), call("task_complete", finish_message="Still sunny."), tokens=TURN)
        stub.script(again, to="You are the supervisor")
        outcome = await rig.ask("And now?", task_id=outcome.key.task_id, resume_from="user_response")
    assert outcome.answer == "Still sunny."


@of(ALL)
async def test_a_breakpoint_is_answered(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(
        reply(thinking("I ask."), call("ask", question="Which city?"), call("help")),
        reply(thinking("Oslo."), call("task_complete", finish_message="It is sunny in Oslo.")),
    )
    async with Rig(swarm_of(dialect, breakpoint_tools=["ask"])) as rig:
        outcome = await rig.ask("What is the weather?")
        assert "Which city?" in outcome.answer
        outcome = await rig.ask(
            "",
            task_id=outcome.key.task_id,
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result="Oslo",
        )
    assert outcome.answer == "It is sunny in Oslo."
    assert "Oslo" in str(stub.requests[1].body.get("messages") or stub.requests[1].body["input"])


@of(ALL)
async def test_a_swarm_of_models_that_call_no_tools_completes_a_task(stub: LLMStub, dialect: Dialect) -> None:
    """Each model answers in plain text, except to ask the other one."""
    stub.script(
        reply(call("send_request", target="worker", subject="Weather", body="Oslo?")),
        reply(text("It is sunny.")),
        to="You are the supervisor",
    )
    stub.script(reply(call("look_up", city="Oslo")), reply(text("Sunny.")), to="You are the worker")
    async with Rig(swarm_of(dialect)) as rig:
        outcome = await rig.ask("What is the weather in Oslo?")
        again = reply(text("Still sunny."))
        stub.script(again, to="You are the supervisor")
        later = await rig.ask("And now?", task_id=outcome.key.task_id)
    assert (outcome.answer, later.answer) == ("It is sunny.", "Still sunny.")
    assert [event.extra.as_json()["taken_as"] for event in outcome.of(EventKind.TEXT_ANSWER)] == [
        "send_response",
        "task_complete",
    ]
    assert "It is sunny." in str(stub.requests[-1].body), "the model remembers what it said"


SCORES: dict[str, Any] = {
    "type": "object",
    "properties": {"scores": {"type": "array", "items": {"$ref": "#/$defs/score"}}},
    "required": ["scores"],
    "$defs": {"score": {"type": "integer", "maximum": 10}},
}


@of(ALL)
async def test_the_answer_fits_the_output_schema(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(
        reply(call("task_complete", output={"scores": [9, 11]})),
        reply(text("Sorry, I can't.")),
        reply(call("task_complete", output={"scores": [9, 10]})),
    )
    async with HTTPServer(swarm_of(dialect)) as server:
        answer = await server.ask(body="Rate it.", output_schema=SCORES, task_id="t")
        task = await server.task("t")
    assert answer["response"] == '{"scores":[9,10]}'
    assert answer["output"] == {"scores": [9, 10]}
    assert (task["output"], task["output_schema"]) == ({"scores": [9, 10]}, SCORES)
    offered, second, third = (str(request.body) for request in stub.requests)
    assert "'maximum': 10" in offered, "the model sees the schema"
    assert "finish_message" not in offered
    assert "at /scores/1: 11 is greater than the maximum of 10" in second
    assert "it is not JSON" in third


@of(ALL)
async def test_text_that_fits_the_output_schema_is_the_answer(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(text('```json\n{"scores": [7]}\n```')))
    async with Rig(swarm_of(dialect)) as rig:
        outcome = await rig.ask("Rate it.", output_schema=SCORES)
    assert outcome.answer == '{"scores":[7]}'


# ----------------------------------------------------------------------------------------------------- what it costs

PRICE = {"openai/gpt-5-mini": (0.25e-6, 0.025e-6, 2e-6), "anthropic/claude-sonnet-4-5": (3e-6, 0.3e-6, 15e-6)}
"""US dollars per token read, read from the cache, and written; as the providers publish them."""


def cost_of(llm: str, tokens: Tokens) -> float:
    read, cached, written = PRICE[llm]
    return (tokens.input - tokens.cached) * read + tokens.cached * cached + tokens.output * written


@pytest.fixture
def meter() -> Iterator[UsageMeter]:
    """That of a turn, in which the test calls models."""
    meter = UsageMeter()
    token = context.TURN.set(context.TurnContext(meter=meter))
    yield meter
    context.TURN.reset(token)


@of(ALL)
async def test_a_call_is_accounted_for(stub: LLMStub, meter: UsageMeter, dialect: Dialect) -> None:
    stub.script(reply(thinking("I must ask."), call("help"), tokens=TURN))
    await supervisor(dialect)([prompt()])
    spent = meter.spent
    assert (spent.calls, spent.input_tokens, spent.cached_tokens, spent.output_tokens) == (1, 1000, 400, 100)
    assert spent.cost == pytest.approx(cost_of(dialect.llm, TURN))
    assert spent.unpriced_calls == 0
    if "claude" not in dialect.llm:  # Anthropic doesn't tell, and litellm estimates
        assert spent.reasoning_tokens == 60


@of([CHAT[0], RESPONSES[1], CLAUDES[0]])
async def test_every_attempt_that_was_paid_for_counts(
    stub: LLMStub, meter: UsageMeter, dialect: Dialect
) -> None:
    stub.script(reply(call("help", "no json"), tokens=TURN), reply(call("help"), tokens=TURN))
    await supervisor(dialect)([prompt()])
    assert (meter.spent.calls, meter.spent.input_tokens) == (2, 2000)


async def test_a_model_without_a_price_is_counted_as_such(stub: LLMStub, meter: UsageMeter) -> None:
    stub.script(reply(call("help"), tokens=TURN))
    await supervisor(Dialect("openai/gpt-of-tomorrow", "completions"))([prompt()])
    assert (meter.spent.input_tokens, meter.spent.cost, meter.spent.unpriced_calls) == (1000, 0.0, 1)


async def test_a_call_by_way_of_a_proxy_has_the_model_s_price(stub: LLMStub, meter: UsageMeter) -> None:
    stub.script(*[reply(call("help"), tokens=TURN)] * 2)
    for dialect in (CHAT[0], CLAUDES[0]):
        await supervisor(dialect, use_proxy=True, user_token="token")([prompt()])
    costs = sum(cost_of(dialect.llm, TURN) for dialect in (CHAT[0], CLAUDES[0]))
    assert meter.spent.cost == pytest.approx(costs)


def total(outcome: Outcome) -> Usage:
    return sum(outcome.task.usage.values(), NO_USAGE)


async def test_turns_agents_and_tasks_are_charged(stub: LLMStub) -> None:
    script_weather(stub)
    async with Rig(swarm_of(RESPONSES[0])) as rig:
        outcome = await rig.ask("What is the weather in Oslo?")
        usage = outcome.task.usage
        assert {agent: (spent.calls, spent.input_tokens) for agent, spent in usage.items()} == {
            "supervisor": (2, 2000),
            "worker": (2, 2000),
        }
        assert total(outcome).cost == pytest.approx(4 * cost_of(GPT, TURN))
        told = [event.extra.usage.input_tokens for event in outcome.events if event.extra.usage is not None]
        assert told == [1000] * 4, "the first event of each turn tells what the turn cost"

        stub.script(reply(call("task_complete", finish_message="Yes."), tokens=TURN))
        outcome = await rig.ask("Sure?", task_id=outcome.key.task_id, resume_from="user_response")
        assert outcome.task.usage["supervisor"].calls == 3, "another generation adds to it"


async def test_a_turn_that_failed_is_charged(stub: LLMStub) -> None:
    stub.script(reply(call("help", "no json"), tokens=TURN), bad_key())
    async with Rig(swarm_of(RESPONSES[0])) as rig:
        outcome = await rig.ask("What is the weather?")
    assert outcome.task.usage["supervisor"].input_tokens == 1000
    (event,) = (event for event in outcome.events if event.extra.usage is not None)
    assert event.kind is EventKind.AGENT_ERROR


async def test_the_task_record_shows_it(stub: LLMStub) -> None:
    script_weather(stub)
    async with HTTPServer(swarm_of(RESPONSES[0])) as server:
        await server.ask(task_id="t1")
        record = await server.task("t1")
    assert record["usage"]["total"]["input_tokens"] == 4000
    assert record["usage"]["agents"]["worker"]["calls"] == 2
    assert record["usage"]["agents"]["worker"]["cost"] == pytest.approx(2 * cost_of(GPT, TURN))
    assert record["usage"]["models"] == {GPT: record["usage"]["total"]}


async def test_the_report_of_a_turn_carries_it(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[TurnReport] = []
    run = Turns.run

    async def spy(self: Turns, *arguments: Any, **options: Any) -> TurnReport:
        reports.append(await run(self, *arguments, **options))
        return reports[-1]

    monkeypatch.setattr(Turns, "run", spy)
    script_weather(stub)
    async with Rig(swarm_of(CHAT[0])) as rig:
        await rig.ask("What is the weather in Oslo?")
    committed = [report for report in reports if report.outcome is TurnReport.Outcome.COMMITTED]
    assert [report.usage.input_tokens for report in committed] == [1000] * 4


async def test_a_turn_that_is_taken_up_again_keeps_its_usage(stub: LLMStub, tmp_path: Path) -> None:
    """The process dies while an action runs; after the restart the model is not called again, and not forgotten."""
    script_weather(stub)
    began = asyncio.Event()

    async def look_up(_arguments: dict[str, Any]) -> str:
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return "it is sunny"

    slow = replace(LOOK_UP, function=look_up, idempotent=True)
    swarm = replace(swarm_of(RESPONSES[0]), actions={"look_up": slow})
    async with Rig(swarm, path=tmp_path / "mail.db") as rig:
        submitted = await rig.submit("What is the weather in Oslo?")
        await began.wait()
        await rig.restart()
        outcome = await rig.outcome(submitted)
    assert outcome.answer == "It is sunny."
    assert stub.is_done
    assert len(stub.requests) == 4
    assert outcome.task.usage["worker"].calls == 2
    assert total(outcome).input_tokens == 4000
    assert outcome.task.models == {GPT: total(outcome)}


# -------------------------------------------------------------------------------------------------- the sum, pure


def test_usage_adds_up() -> None:
    one = Usage(calls=1, input_tokens=10, output_tokens=5, cost=0.1)
    two = Usage(calls=1, input_tokens=1, cached_tokens=1, reasoning_tokens=2, cost=0.2, unpriced_calls=1)
    assert one + two == Usage(
        calls=2,
        input_tokens=11,
        cached_tokens=1,
        output_tokens=5,
        reasoning_tokens=2,
        cost=0.3,
        unpriced_calls=1,
    )
    assert not NO_USAGE
    assert one + NO_USAGE == one
