"""Manual mode through `MAILSwarm`: the mode itself, steps with other models and prompts, and long histories."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from support.services.templates import agent, template

from mail import MAILSwarm
from mail.core.task.swarm import History
from mail.errors import BadRequest
from mail.testing.agents import View, call

TASK = "game"


class FakeModel:
    """An agent function that looks as if a language model took its turns."""

    def __init__(self, llm: str = "fake/small", system: str = "You play.", **_wiring: Any) -> None:
        self.llm = llm
        self.system = system
        self.print_llm_streams = True
        self.asked: list[tuple[str, str, History, Any]] = []
        self.summary = "Ann lied."

    def but(self, *, llm: str | None = None, system: str | None = None) -> Self:
        other = copy.copy(self)
        other.llm, other.system = llm or self.llm, self.system if system is None else system
        return other

    async def __call__(self, history: History, choice: Any = "required") -> Any:
        self.asked.append((self.llm, self.system, history, choice))
        return (self.summary if choice == "none" else "my words"), []


def speaker(view: View) -> list[Any]:
    return [call("text_output", content=f"I am at {len(view.history)}")]


def game(model: FakeModel | None = None) -> MAILSwarm:
    return template(
        agent("GM", speaker, supervises=True),
        agent("Ann", speaker),
        agent("Bob", factory=(lambda **_: model) if model else None),
    ).instantiate({"user_token": "dummy"}, "TheGame")


@asynccontextmanager
async def playing(swarm: MAILSwarm, body: str = "Game starting") -> AsyncIterator[MAILSwarm]:
    """Run a swarm in manual mode, with a task that has begun."""
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    message = swarm.build_message(
        subject="::init::", body=body, targets=["all"], sender_type="user", type="broadcast", task_id=TASK
    )
    await swarm.submit_message_nowait(message)
    await swarm.await_queue_empty()
    yield swarm
    await swarm.shutdown()
    await running


class TestMode:
    async def test_nobody_speaks_unasked(self) -> None:
        async with playing(game()) as swarm:
            await asyncio.sleep(0.05)
            assert [event.event for event in swarm._runtime.get_events_by_task_id(TASK)] == ["new_message"]
            response = await swarm.manual_step(task_id=TASK, target="Ann", payload="Speak.")
            assert response["message"]["body"] == "I am at 1"
            assert (response.msg_type, response["message"]["sender"]["address"]) == ("broadcast", "Ann")

    async def test_steps_of_several_agents_at_once(self) -> None:
        async with playing(game()) as swarm:
            answers = await asyncio.gather(*(swarm.manual_step(TASK, name) for name in ("GM", "Ann")))
            assert [answer.message.sender.address for answer in answers] == ["GM", "Ann"]

    async def test_the_latest_task_is_the_default(self) -> None:
        swarm = game()
        with pytest.raises(BadRequest, match="task_id is missing"):
            await swarm.manual_step(target="GM")
        async with playing(swarm):
            assert (await swarm.manual_step(target="GM")).task_id == TASK

    async def test_a_task_that_was_begun_in_continuous_mode(self) -> None:
        swarm = game()
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["GM"], task_id=TASK))
        assert (await swarm.manual_step(TASK, "GM", payload="now")).message.body == "I am at 1"
        await swarm.await_queue_empty()
        assert [event.event for event in swarm._runtime.get_events_by_task_id(TASK)].count("tool_call") == 1

    async def test_not_while_agents_take_turns_by_themselves(self) -> None:
        swarm = game()
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["GM"], task_id=TASK))
        running = asyncio.create_task(swarm.run_continuous())
        await asyncio.sleep(0)
        with pytest.raises(BadRequest, match="take turns by themselves"):
            await swarm.manual_step(TASK, "GM")
        await swarm.shutdown()
        await running

    async def test_an_answer_in_manual_mode(self) -> None:
        gm = agent("GM", lambda _: [call("task_complete", finish_message="Ann wins")], supervises=True)
        swarm = template(gm).instantiate({})
        running = asyncio.create_task(swarm.run_continuous(mode="manual"))
        asking = asyncio.create_task(
            swarm.submit_message(swarm.build_message("s", "Who wins?", ["GM"], task_id=TASK))
        )
        await asyncio.sleep(0)
        assert (await swarm.manual_step(TASK, "GM")).message.body == "Ann wins"
        response, _ = await asking
        assert response["message"]["subject"] == "::task_complete::"
        assert response["message"]["body"] == "Ann wins"
        await swarm.shutdown()
        await running


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ({}, "'' is not an agent"),
            ({"target": "GM", "response_type": "response"}, "response_targets is missing"),
            ({"target": "GM", "_llm": "x/y"}, "'GM' takes no other model"),
            ({"target": "GM", "_system": "x"}, "'GM' takes no other model or system prompt"),
            ({"target": "GM", "dynamic_ctx_ratio": 1.5}, "between 0.0 and 1.0, not 1.5"),
            (
                {"target": "GM", "dynamic_ctx_ratio": "0.5"},
                "must be a number between .* not '0.5'",
            ),
            ({"target": "GM", "response_type": "x"}, "response_type must be .*, not 'x'"),
        ],
    )
    async def test_wrong(self, arguments: dict[str, Any], complaint: str) -> None:
        async with playing(game()) as swarm:
            with pytest.raises(BadRequest, match=complaint):
                await swarm.manual_step(**arguments)

    async def test_one_target_as_text(self) -> None:
        async with playing(game()) as swarm:
            said = await swarm.manual_step(TASK, "GM", "all")
            assert [each.address for each in said.message.recipients] == ["all"]
            said = await swarm.manual_step(TASK, "GM", "Ann", "response")
            assert [each.address for each in said.message.recipients] == ["Ann"]

    async def test_nobody_waits_for_what_nobody_gives(self) -> None:
        async with playing(game()) as swarm:
            async with asyncio.timeout(60):
                for waiting in (
                    swarm.post_message("x"),
                    swarm.post_message_and_run("x"),
                    swarm.post_message_stream("x"),
                    swarm._runtime.run(),
                ):
                    with pytest.raises(BadRequest, match="manual mode"):
                        await waiting
            assert list(swarm._runtime.events) == [TASK]

    async def test_rules_need_no_context_window(self) -> None:
        async with playing(game()) as swarm:
            assert (await swarm.manual_step(TASK, "GM", dynamic_ctx_ratio=0.1)).message.body


class TestModels:
    async def test_another_model_and_prompt_for_one_step(self) -> None:
        model = FakeModel()
        async with playing(game(model)) as swarm:
            await swarm.manual_step(TASK, "Bob", _llm="fake/large")
            await swarm.manual_step(TASK, "Bob", _system="You are interrogated.")
            await swarm.manual_step(TASK, "Bob")
            assert [asked[:2] for asked in model.asked] == [
                ("fake/large", "You play."),
                ("fake/small", "You are interrogated."),
                ("fake/small", "You play."),
            ]
            assert {asked[3] for asked in model.asked} == {"auto"}


def prompts(history: History) -> str:
    return "\n".join(str(entry["content"]) for entry in history if entry["role"] == "user")


class SmallModel(FakeModel):
    """A model that reads 1500 tokens, and summarizes."""

    fixed_size = 0

    async def window(self) -> int:
        return 1500

    async def summarize(self, text: str, model: str | None) -> str:
        self.asked.append((model or self.llm, text, [], "none"))
        return self.summary


class TestLongHistories:
    async def play(self, model: FakeModel, steps: int, ratio: float) -> None:
        async with playing(game(model)) as swarm:
            for n in range(steps):
                await swarm.manual_step(TASK, "Bob", payload=f"step {n} {'.' * 200}", dynamic_ctx_ratio=ratio)

    async def test_the_beginning_becomes_a_summary(self) -> None:
        model = SmallModel()
        await self.play(model, 12, 0.75)
        summaries = [asked for asked in model.asked if asked[3] == "none"]
        steps = [asked for asked in model.asked if asked[3] == "auto"]
        assert len(steps) == 12
        assert 0 < len(summaries) < 5
        assert "step 0" in summaries[0][1]
        last = steps[-1][2]
        assert prompts(last).startswith("<summary_of_earlier_events>")
        assert "step 0 " not in prompts(last)
        assert "step 10 " in prompts(last)
        assert "step 11 " in prompts(last)
        assert all(sum(len(str(entry)) for entry in asked[2]) < 4500 for asked in steps)

    async def test_a_later_summary_holds_the_earlier_one(self) -> None:
        model = SmallModel()
        await self.play(model, 20, 0.75)
        summaries = [asked[1] for asked in model.asked if asked[3] == "none"]
        assert len(summaries) > 1
        assert "Ann lied." not in summaries[0]
        assert "Ann lied." in summaries[1]

    async def test_no_summary_no_harm(self, caplog: pytest.LogCaptureFixture) -> None:
        class Fails(SmallModel):
            async def summarize(self, text: str, model: str | None) -> str:
                raise RuntimeError("no model today")

        model = Fails()
        await self.play(model, 12, 0.75)
        assert "no longer fit into your context" in prompts(model.asked[-1][2])
        assert "can't summarize the oldest turns" in caplog.text
