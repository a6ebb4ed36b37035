"""Manual mode through `MAILSwarm`: the mode itself, steps with other models and prompts, and long histories."""

import asyncio
import copy
from typing import Any, Self

import pytest
from support.services.templates import agent, template

from mail import MAILAction, MAILSwarm
from mail.core.task.swarm import History
from mail.errors import BadRequest, StepFailed, TaskNotFound
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


async def begin(swarm: MAILSwarm, body: str = "Game starting") -> asyncio.Task[None]:
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    message = swarm.build_message(
        subject="::init::", body=body, targets=["all"], sender_type="user", type="broadcast", task_id=TASK
    )
    await swarm.submit_message_nowait(message)
    await swarm.await_queue_empty()
    return running


class TestMode:
    async def test_nobody_speaks_unasked(self) -> None:
        swarm = game()
        running = await begin(swarm)
        await asyncio.sleep(0.05)
        assert [event.event for event in swarm._runtime.get_events_by_task_id(TASK)] == ["new_message"]
        response = await swarm.manual_step(task_id=TASK, target="Ann", payload="Speak.")
        assert response["message"]["body"] == "I am at 1"
        assert (response.msg_type, response["message"]["sender"]["address"]) == ("broadcast", "Ann")
        await swarm.shutdown()
        await running

    async def test_buffers(self) -> None:
        seen: list[str] = []

        def listen(view: View) -> list[Any]:
            seen.append(str(view.history[-1]["content"]))
            return [call("text_output", content="heard you all")]

        swarm = template(
            agent("Alice", listen, supervises=True), agent("Bob", speaker), agent("Cid", speaker)
        ).instantiate({})
        running = await begin(swarm)
        for sender in ("Bob", "Cid"):
            await swarm.submit_message_nowait(
                swarm.build_message("s", f"from {sender}", ["Alice"], "agent", task_id=TASK, sender=sender)
            )
        await swarm.manual_step(TASK, "Alice", ["Bob"], "response", payload="Respond to everyone above")
        assert seen[0].index("from Bob") < seen[0].index("from Cid") < seen[0].index("Respond to everyone")
        assert "heard by: Bob" in seen[0]
        await swarm.manual_step(TASK, "Alice")
        assert "from Bob" not in seen[1]
        await swarm.shutdown()
        await running

    async def test_tools_change_the_game_before_the_step_returns(self) -> None:
        scores: dict[str, int] = {}

        async def score(arguments: dict[str, Any]) -> str:
            scores[arguments["player"]] = 1
            return "scored"

        tool = MAILAction("score", "d", {"type": "object", "required": ["player"]}, score)
        gm = agent(
            "GM",
            lambda view: (
                [call("text_output", content="done")] if view.results else [call("score", player="Ann")]
            ),
            supervises=True,
            actions=[tool],
        )
        swarm = template(gm).instantiate({})
        running = await begin(swarm)
        assert (await swarm.manual_step(TASK, "GM")).message.body == "done"
        assert scores == {"Ann": 1}
        await swarm.shutdown()
        await running

    async def test_steps_of_several_agents_at_once(self) -> None:
        swarm = game()
        running = await begin(swarm)
        answers = await asyncio.gather(*(swarm.manual_step(TASK, name) for name in ("GM", "Ann")))
        assert [answer.message.sender.address for answer in answers] == ["GM", "Ann"]
        await swarm.shutdown()
        await running

    async def test_one_step_of_an_agent_at_a_time(self) -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def slow(_view: View) -> list[Any]:
            begun.set()
            await gate.wait()
            return [call("text_output", content="at last")]

        swarm = template(agent("GM", slow, supervises=True)).instantiate({})
        running = await begin(swarm)
        first = asyncio.create_task(swarm.manual_step(TASK, "GM"))
        await begun.wait()
        with pytest.raises(StepFailed, match="'GM' is busy"):
            await swarm.manual_step(TASK, "GM")
        gate.set()
        assert (await first).message.body == "at last"
        await swarm.shutdown()
        await running

    async def test_the_latest_task_is_the_default(self) -> None:
        swarm = game()
        with pytest.raises(BadRequest, match="task_id is missing"):
            await swarm.manual_step(target="GM")
        running = await begin(swarm)
        assert (await swarm.manual_step(target="GM")).task_id == TASK
        await swarm.shutdown()
        await running

    async def test_a_task_that_was_begun_in_continuous_mode(self) -> None:
        swarm = game()
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["GM"], task_id=TASK))
        assert (await swarm.manual_step(TASK, "GM", payload="now")).message.body == "I am at 1"
        await swarm.await_queue_empty()
        assert [event.event for event in swarm._runtime.get_events_by_task_id(TASK)].count("tool_call") == 1
        await swarm.shutdown()

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
        ("arguments", "error", "complaint"),
        [
            ({"target": "Anne"}, BadRequest, r"'Anne' is not an agent of swarm 'team'. Did you mean 'Ann'"),
            ({}, BadRequest, "'' is not an agent"),
            ({"target": "GM", "response_targets": ["Bobby"]}, BadRequest, r"'Bobby' .*'Bob'"),
            ({"target": "GM", "response_targets": []}, BadRequest, "response_targets is empty"),
            ({"target": "GM", "response_type": "response"}, BadRequest, "response_targets is missing"),
            ({"target": "GM", "response_type": "shout"}, BadRequest, "response_t"),
            (
                {"target": "GM", "response_type": "shout", "response_targets": ["all"]},
                BadRequest,
                "response_type must",
            ),
            ({"target": "GM", "_llm": "x/y"}, BadRequest, "'GM' takes no other model"),
            ({"target": "GM", "_system": "x"}, BadRequest, "'GM' takes no other model or system prompt"),
            ({"target": "GM", "dynamic_ctx_ratio": 1.5}, BadRequest, "between 0.0 and 1.0, not 1.5"),
            (
                {"target": "GM", "dynamic_ctx_ratio": "0.5"},
                BadRequest,
                "must be a number between .* not '0.5'",
            ),
            ({"target": "GM", "response_type": "x"}, BadRequest, "response_type must be .*, not 'x'"),
            ({"target": "GM", "task_id": "other"}, TaskNotFound, "submit a message with this task_id first"),
        ],
    )
    async def test_wrong(self, arguments: dict[str, Any], error: Any, complaint: str) -> None:
        swarm = game()
        running = await begin(swarm)
        with pytest.raises(error, match=complaint):
            await swarm.manual_step(**arguments)
        await swarm.shutdown()
        await running

    async def test_one_target_as_text(self) -> None:
        swarm = game()
        running = await begin(swarm)
        said = await swarm.manual_step(TASK, "GM", "all")
        assert [each.address for each in said.message.recipients] == ["all"]
        said = await swarm.manual_step(TASK, "GM", "Ann", "response")
        assert [each.address for each in said.message.recipients] == ["Ann"]
        await swarm.shutdown()
        await running

    async def test_nobody_waits_for_what_nobody_gives(self) -> None:
        swarm = game()
        running = await begin(swarm)
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
        await swarm.shutdown()
        await running

    async def test_rules_need_no_context_window(self) -> None:
        swarm = game()
        running = await begin(swarm)
        assert (await swarm.manual_step(TASK, "GM", dynamic_ctx_ratio=0.1)).message.body
        await swarm.shutdown()
        await running


class TestModels:
    async def test_another_model_and_prompt_for_one_step(self) -> None:
        model = FakeModel()
        swarm = game(model)
        running = await begin(swarm)
        await swarm.manual_step(TASK, "Bob", _llm="fake/large")
        await swarm.manual_step(TASK, "Bob", _system="You are interrogated.")
        await swarm.manual_step(TASK, "Bob")
        assert [asked[:2] for asked in model.asked] == [
            ("fake/large", "You play."),
            ("fake/small", "You are interrogated."),
            ("fake/small", "You play."),
        ]
        assert {asked[3] for asked in model.asked} == {"auto"}
        await swarm.shutdown()
        await running


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
        swarm = game(model)
        running = await begin(swarm)
        for n in range(steps):
            await swarm.manual_step(TASK, "Bob", payload=f"step {n} {'.' * 200}", dynamic_ctx_ratio=ratio)
        await swarm.shutdown()
        await running

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
        assert "left out without a summary" in caplog.text
