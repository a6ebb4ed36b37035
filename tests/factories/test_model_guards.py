"""Guards of agents with a language model, and a language model that judges: no text leaves before a verdict."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from factory_agents import GPT
from support.services.llm_stub import LLMStub, Tokens, call, reply, text, thinking
from test_factory_traces import Recorded

from mail import ALLOW, Act, Agent, Refuse, Ruling, Swarm, action, guard
from mail.adapters.telemetry.contents import Contents
from mail.errors import TaskFailed
from mail.stdlib.guards import judge

MARKER = "k7Qz9vXw3LpT"
JUDGE = "openai/gpt-5-nano"
TOKENS = Tokens(input=100, output=10)


@guard(on=["answer", "call"])
async def no_marker(act: Act) -> Ruling:
    return Refuse("it has the marker") if MARKER in act.text else ALLOW


@action
def note(words: str) -> str:
    """Note something."""
    return f"noted {words}"


@guard(on="result", name="results")
def no_result(act: Act) -> Ruling:
    return Refuse("it has the marker") if MARKER in act.text else ALLOW


def text_of(recorded: Recorded) -> str:
    return repr([span.to_json() for span in recorded.all])


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """The spans of a swarm, with all texts."""
    recorded = Recorded(Contents("all"))
    yield recorded
    recorded.tracer.close()


@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_no_delta_span_log_or_console_has_what_was_refused(
    stub: LLMStub,
    recorded: Recorded,
    tool_format: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, logger="mail")
    stub.script(
        reply(thinking(f"I think of {MARKER}"), call("note", words=MARKER), tokens=TOKENS),
        reply(call("task_complete", finish_message=f"It is {MARKER}"), tokens=TOKENS),
        reply(text(f"So: {MARKER}"), tokens=TOKENS),
        reply(call("task_complete", finish_message="nothing"), tokens=TOKENS),
    )
    agent = Agent(
        "lead",
        "You answer.",
        model=GPT,
        actions=[note],
        guards=[no_marker],
        tool_format=tool_format,
        stream_tokens=True,
    )
    async with Swarm(agent) as swarm:
        swarm.running.runtime.engine.tracer = recorded.tracer
        seen = [repr(piece) async for piece in swarm.stream("Hello")]
    assert any("nothing" in piece for piece in seen)
    shown = (*seen, text_of(recorded), caplog.text, *capfd.readouterr(), *map(repr, stub.requests[1:]))
    assert not [each[:300] for each in shown if MARKER in each]
    refused = {"mail.guard.name": "no_marker", "mail.guard.outcome": "refuse", "mail.guard.failed": False}
    told = [dict(each.attributes or {}) for span in recorded.all for each in span.events]
    verdicts = [each["mail.guard.on"] for each in told if refused.items() <= each.items()]
    assert verdicts == ["call", "answer", "answer"]


async def test_a_refused_result_is_in_no_span(stub: LLMStub, recorded: Recorded) -> None:
    stub.script(reply(call("note", words="x")), reply(call("task_complete", finish_message="done")))

    @action(name="note")
    def tell(words: str) -> str:
        """Tell."""
        return MARKER + words

    agent = Agent("lead", "You answer.", model=GPT, actions=[tell], guards=[no_result])
    async with Swarm(agent) as swarm:
        swarm.running.runtime.engine.tracer = recorded.tracer
        assert (await swarm.aask("Hello")).text == "done"
    assert MARKER not in text_of(recorded)
    assert not [each for each in stub.requests if MARKER in repr(each)]


async def test_a_model_judges_and_its_cost_is_the_agents(stub: LLMStub) -> None:
    stub.script(
        reply(call("task_complete", finish_message=f"You get a refund, {MARKER}."), tokens=TOKENS),
        reply(text(f'{{"allowed": false, "reason": "{MARKER} promises a refund"}}'), tokens=TOKENS),
        reply(call("task_complete", finish_message="Ask the office."), tokens=TOKENS),
        reply(text('{"allowed": true}'), tokens=TOKENS),
    )
    agent = Agent("lead", "You answer.", model=GPT, guards=[judge(JUDGE, "Promise no refund.")])
    async with Swarm(agent) as swarm:
        answer = await swarm.aask("Hello")
        events = await swarm.running.runtime.read_events(answer.task_id)
    assert answer.text == "Ask the office."
    assert MARKER not in repr([event.data for event in events])
    assert "refused the answer by agent lead: Promise no refund." in repr([event.data for event in events])
    assert [request.body["model"] for request in stub.requests] == [
        *("gpt-5-mini", "gpt-5-nano"),
        *("gpt-5-mini", "gpt-5-nano"),
    ]
    assert answer.usage.calls == 4


async def test_a_judge_that_says_nothing_useful_refuses(stub: LLMStub) -> None:
    stub.script(
        reply(call("task_complete", finish_message="hello")),
        *[reply(text("Well, who knows?")), reply(call("task_complete", finish_message="hello"))] * 5,
    )
    agent = Agent("lead", "You answer.", model=GPT, guards=[judge(JUDGE, "Be brief.")])
    async with Swarm(agent) as swarm:
        with pytest.raises(TaskFailed, match="guard judge failed"):
            await swarm.aask("Hello")
