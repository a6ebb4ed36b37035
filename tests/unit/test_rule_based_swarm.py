"""The default swarm at work: the packaged swarms.json on the real engine, in both tool formats."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plugins.tiers import sized

from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.documents import IN_MEMORY
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskStatus
from mail.errors import Subject
from mail.examples.rule_based.agents import EXPLANATION
from mail.examples.rule_based.calls import say
from mail.swarms_json import build_swarm, load_swarm
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.testing.clock import FakeClock
from mail.testing.rig import Outcome, Rig, ask_once

ANN = Principal(role="user", id="ann", swarm="example-no-proxy")
FORMATS: list[ToolFormat] = ["completions", "responses"]

TOKYO = "The weather in Tokyo today: rainy, 6 °C."
PRODUCT = "12*(3+4) = 84."


def build(tool_format: ToolFormat) -> SwarmCore:
    entry = load_swarm("example-no-proxy", PACKAGED_SOURCE)
    agents = [agent.model_copy(update={"tool_format": tool_format}) for agent in entry.agents]
    return build_swarm(entry.model_copy(update={"agents": agents}))


@pytest.fixture(params=FORMATS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with Rig(build(request.param)) as running:
        yield running


def tools(outcome: Outcome) -> list[str]:
    """Every tool call, as `agent tool`, in order."""
    calls = outcome.of(EventKind.TOOL_CALL)
    return [event.text.removeprefix("agent ").replace(" called ", " ") for event in calls]


def problems(outcome: Outcome) -> list[str]:
    """What went wrong."""
    wrong = (EventKind.AGENT_ERROR, EventKind.ACTION_ERROR, EventKind.TASK_ERROR)
    return [event.text for event in outcome.events if event.kind in wrong]


def exchange(swarm: SwarmCore, agent: str, **changes: Any) -> SwarmCore:
    """The swarm with one agent changed."""
    return replace(swarm, agents={**swarm.agents, agent: replace(swarm.agents[agent], **changes)})


class TestQuestions:
    async def test_both_workers_are_asked_at_once_and_both_answers_given(self, rig: Rig) -> None:
        outcome = await rig.ask("weather in Tokyo and 12*(3+4)")
        assert outcome.answer == f"{TOKYO} {PRODUCT}"
        used = tools(outcome)
        assert used[:3] == ["supervisor send_request", "supervisor send_request", "supervisor await_message"]
        assert sorted(used[3:-2]) == [
            "math calculate_expression",
            "math send_response",
            "weather get_weather_forecast",
            "weather send_response",
        ]
        assert used[-2:] == ["supervisor await_message", "supervisor task_complete"]
        assert not problems(outcome)

    @pytest.mark.parametrize(
        ("question", "answer", "worker"),
        [("weather in Tokyo", TOKYO, "weather"), ("What is 12*(3+4)?", PRODUCT, "math")],
    )
    async def test_only_who_is_needed_is_asked(
        self, rig: Rig, question: str, answer: str, worker: str
    ) -> None:
        outcome = await rig.ask(question)
        assert outcome.answer == answer
        assert {call.split()[0] for call in tools(outcome)} == {"supervisor", worker}

    async def test_one_action_leaves_the_documented_order_of_events(self, rig: Rig) -> None:
        """SPEC, section 9: two agents and one action."""
        outcome = await rig.ask("12*(3+4)")
        assert [kind.value for kind in outcome.kinds] == [
            "new_message",
            *("tool_call", "tool_call", "await_message", "new_message"),
            *("tool_call", "action_call", "action_complete", "new_message"),
            *("tool_call", "new_message"),
            *("tool_call", "task_complete_call", "new_message", "task_complete"),
        ]

    async def test_neither(self, rig: Rig) -> None:
        outcome = await rig.ask("hello")
        assert outcome.answer == EXPLANATION
        assert tools(outcome) == ["supervisor task_complete"]

    @pytest.mark.parametrize(
        ("question", "answer"),
        [
            ("10/0", "10/0 can't be calculated: division by zero."),
            ("2**100000", "2**100000 can't be calculated: the result is too large."),
            ("1/3 to 2 decimals", "1/3 = 0.33."),
            (
                "weather in Tokyo in 99 days",
                "There is no forecast for Tokyo: days_ahead: Input should be less than or equal to 14.",
            ),
            ("weather?", "weather has read 'weather?' and found no place in it."),
            ("10/0 and 12*(3+4)", f"10/0 can't be calculated: division by zero. {PRODUCT}"),
        ],
    )
    async def test_what_workers_say(self, rig: Rig, question: str, answer: str) -> None:
        assert (await rig.ask(question)).answer == answer

    @pytest.mark.parametrize("msg_type", ["request", "response", "interrupt", "broadcast"])
    async def test_every_type_of_message(self, rig: Rig, msg_type: str) -> None:
        outcome = await rig.ask("12*(3+4)", msg_type=msg_type)
        assert outcome.answer == PRODUCT
        assert not problems(outcome)


class TestRounds:
    async def test_follow_ups(self, rig: Rig) -> None:
        first = await rig.ask("weather in Tokyo and 12*(3+4)")
        task = {"task_id": first.key.task_id}
        assert (await rig.ask("12*(3+4)", resume_from=ResumeFrom.USER_RESPONSE, **task)).answer == PRODUCT
        assert (await rig.ask("thanks", **task)).answer == EXPLANATION
        assert (await rig.ask("weather in Tokyo", **task)).answer == TOKYO

    async def test_a_question_on_top_of_another_is_answered_with_it(self, rig: Rig) -> None:
        """Both wait when the supervisor begins, as people's mail goes before agents'."""
        first = await rig.submit("weather in Tokyo", task_id="t")
        second = await rig.submit("12*(3+4)", task_id="t")
        answers = {(await rig.outcome(each)).answer for each in (first, second)}
        assert answers == {f"{TOKYO} {PRODUCT}"}

    async def test_a_late_answer_to_an_old_question_is_not_taken_for_a_new_one(self, rig: Rig) -> None:
        cut_short = await rig.ask("weather in Rome and 12*(3+4)", steps=2)
        later = await rig.ask("weather in Tokyo", task_id=cut_short.key.task_id)
        assert later.answer == TOKYO


class TestPhrases:
    async def test_human(self, rig: Rig) -> None:
        paused = await rig.ask("ask a human: may I?")
        assert paused.subject == Subject.BREAKPOINT_TOOL_CALL
        assert paused.task.status is TaskStatus.PAUSED
        (call,) = json.loads(paused.answer)
        assert (call["name"], json.loads(call["arguments"])) == ("ask_human", {"question": "may I?"})
        task = {"task_id": paused.key.task_id}
        resumed = await rig.ask(
            "",
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result={"content": "You may."},
            **task,
        )
        assert resumed.answer == "You may."
        assert (await rig.ask("12*(3+4)", **task)).answer == PRODUCT

    async def test_human_is_not_waited_for_when_the_user_asks_something_else(self, rig: Rig) -> None:
        paused = await rig.ask("ask a human: may I?")
        outcome = await rig.ask("12*(3+4)", task_id=paused.key.task_id, drop_question=True)
        assert outcome.answer == PRODUCT

    async def test_announcement(self, rig: Rig) -> None:
        outcome = await rig.ask("announce: lunch is ready")
        assert outcome.answer == "weather has taken note. math has taken note."
        used = tools(outcome)
        assert used[:2] == ["supervisor send_broadcast", "supervisor await_message"]
        assert {"weather acknowledge_broadcast", "math acknowledge_broadcast"} <= set(used)
        assert not problems(outcome)

    @pytest.mark.parametrize(
        ("words", "answer"),
        [("12*(3+4)", PRODUCT), ("stop", "weather has read 'stop' and found no place in it.")],
    )
    async def test_interrupt(self, rig: Rig, words: str, answer: str) -> None:
        outcome = await rig.ask(f"urgent: {words}")
        assert outcome.answer == answer
        assert tools(outcome)[0] == "supervisor send_interrupt"
        assert not problems(outcome)


@pytest.mark.parametrize("tool_format", FORMATS)
class TestTrouble:
    async def test_steps_run_out(self, tool_format: ToolFormat) -> None:
        """The supervisor completes with what it has read so far."""
        outcome = await ask_once(build(tool_format), "weather in Tokyo and 12*(3+4)", steps=4)
        assert outcome.answer.endswith("I could not finish: This task has used up its 4 steps.")
        assert TOKYO in outcome.answer or PRODUCT in outcome.answer
        assert outcome.task.status is TaskStatus.COMPLETED

    async def test_worker_fails(self, tool_format: ToolFormat) -> None:
        async def broken(_history: Any, _choice: Any) -> Any:
            raise RuntimeError("out of order")

        async with Rig(exchange(build(tool_format), "weather", function=broken)) as rig:
            outcome = await rig.ask("weather in Tokyo")
            later = await rig.ask("12*(3+4)", task_id=outcome.key.task_id)
        assert outcome.answer == (
            "I could not finish: agent 'weather' has failed: RuntimeError; the server's log says more."
        )
        assert later.answer == PRODUCT

    async def test_worker_may_not_answer(self, tool_format: ToolFormat) -> None:
        outcome = await ask_once(exchange(build(tool_format), "math", comm_targets=()), "12*(3+4)")
        assert outcome.answer.startswith(
            "I could not finish: agent 'math' has failed: 5 faulty turns in a row;"
        )
        assert "the last: there is nothing to await" in outcome.answer

    async def test_worker_says_nothing(self, tool_format: ToolFormat) -> None:
        """The task stalls, and the supervisor is nudged."""

        async def silent(_history: Any, _choice: Any) -> Any:
            return say(tool_format, [("web_search_call", {})])

        outcome = await ask_once(
            exchange(build(tool_format), "math", function=silent), "weather in Tokyo and 12*(3+4)"
        )
        assert outcome.answer.startswith(
            f"{TOKYO} I could not finish: No agent of this task has any mail left"
        )

    async def test_supervisor_may_not_ask(self, tool_format: ToolFormat) -> None:
        outcome = await ask_once(
            exchange(build(tool_format), "supervisor", comm_targets=("math",)), "weather in Tokyo"
        )
        assert outcome.answer == "I could not finish: you can't write to 'weather'; you can write to math."

    async def test_history_is_all_it_needs(self, tool_format: ToolFormat) -> None:
        history = [{"role": "user", "content": "weather in Tokyo and 12*(3+4)"}]
        functions = [build(tool_format).agents["supervisor"].function for _ in range(2)]
        first, second = [await function(history, "required") for function in functions]
        assert first == second
        assert {call.tool_format for call in first[1]} == {tool_format}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from(FORMATS))
@settings(max_examples=sized(fast=10, full=10, soak=100))
def test_whatever_is_asked_there_is_an_answer(question: str, tool_format: ToolFormat) -> None:
    async def ask() -> Outcome:
        return await ask_once(build(tool_format), question)

    assert asyncio.run(ask()).task.status in (TaskStatus.COMPLETED, TaskStatus.PAUSED)


@given(st.randoms(use_true_random=False), st.sampled_from(FORMATS))
@settings(max_examples=sized(fast=10, full=10, soak=100))
def test_the_answer_depends_neither_on_the_order_of_turns_nor_on_memory(
    chance: random.Random, tool_format: ToolFormat
) -> None:
    """Any mailbox may go next, and every turn is run by agents that were built just for it."""

    async def ask() -> str:
        database = SQLiteDatabase(IN_MEMORY)
        store, clock = SQLiteStore(database), FakeClock()

        def restart() -> Runtime:
            return Runtime(build(tool_format), store, LocalQueue(), clock)

        submitted = await restart().submit(ANN, Submission(body="weather in Tokyo and 12*(3+4)"))
        while ready := await store.list_ready():
            token = chance.choice(ready)
            await restart().run_turn(token.key, token.mailbox)
        response = await restart().wait(submitted, 1)
        database.close()
        assert response is not None
        return response.message.body

    assert asyncio.run(ask()) == f"{TOKYO} {PRODUCT}"
