"""Manual mode through `MAILSwarm`: the mode itself, steps with other models and prompts, and long histories."""

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from support.services.templates import agent, template

from mail import MAILSwarm
from mail.core.task.swarm import History
from mail.errors import BadRequest
from mail.factories import compression
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


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reads 4000 tokens of a character each."""

    async def window(_llm: str) -> int:
        return 4000

    async def count(_llm: str, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    monkeypatch.setattr(compression, "context_window", window)
    monkeypatch.setattr(compression, "count_tokens", count)


def prompts(history: History) -> str:
    return "\n".join(str(entry["content"]) for entry in history if entry["role"] == "user")


@pytest.mark.usefixtures("small_window")
class TestLongHistories:
    async def play(self, model: FakeModel, steps: int, ratio: float) -> None:
        async with playing(game(model)) as swarm:
            for n in range(steps):
                await swarm.manual_step(TASK, "Bob", payload=f"step {n} {'.' * 200}", dynamic_ctx_ratio=ratio)

    async def test_the_beginning_becomes_a_summary(self) -> None:
        model = FakeModel()
        await self.play(model, 12, 0.5)
        summaries = [asked for asked in model.asked if asked[3] == "none"]
        steps = [asked for asked in model.asked if asked[3] == "auto"]
        assert len(steps) == 12
        assert 0 < len(summaries) < 8
        assert {asked[1] for asked in summaries} == {compression.SUMMARIZE}
        assert "step 0" in str(summaries[0][2])
        last = steps[-1][2]
        assert prompts(last).startswith("<summary_of_earlier_events>")
        assert "step 0 " not in prompts(last)
        assert "step 10 " in prompts(last)
        assert "step 11 " in prompts(last)
        assert all(sum(len(str(entry)) for entry in asked[2]) < 2600 for asked in steps)

    async def test_a_later_summary_holds_the_earlier_one(self) -> None:
        model = FakeModel()
        await self.play(model, 20, 0.5)
        summaries = [asked[2] for asked in model.asked if asked[3] == "none"]
        assert len(summaries) > 1
        assert "Ann lied." not in str(summaries[0])
        assert "Ann lied." in str(summaries[1])

    async def test_without_a_ratio_nothing_is_summarized(self) -> None:
        model = FakeModel()
        await self.play(model, 12, 0.0)
        assert {asked[3] for asked in model.asked} == {"auto"}
        assert "step 0 " in prompts(model.asked[-1][2])

    async def test_no_summary_no_harm(self, caplog: pytest.LogCaptureFixture) -> None:
        class Fails(FakeModel):
            async def __call__(self, history: History, choice: Any = "required") -> Any:
                if choice == "none":
                    raise RuntimeError("no model today")
                return await super().__call__(history, choice)

        model = Fails()
        await self.play(model, 12, 0.5)
        assert "step 0 " in prompts(model.asked[-1][2])
        assert "could not be summarized" in caplog.text

    async def test_an_empty_summary_is_none(self) -> None:
        model = FakeModel()
        model.summary = ""
        await self.play(model, 12, 0.5)
        assert "step 0 " in prompts(model.asked[-1][2])


@pytest.mark.usefixtures("small_window")
class TestBudget:
    """Of 4000 tokens, 1000 are kept for the reply."""

    async def compressed(self, model: FakeModel, entries: int, ratio: float = 1.0) -> tuple[int, str] | None:
        compress = compression.compressor(model, ratio)
        assert compress is not None
        history: History = [
            {"role": "user" if n % 2 == 0 else "assistant", "content": "." * 468} for n in range(entries)
        ]
        return await compress(history, [{"role": "user", "content": "now"}])

    async def test_the_reply_needs_room(self) -> None:
        assert await self.compressed(FakeModel(), 5) is None  # 2500 and what is new
        assert await self.compressed(FakeModel(), 6) is not None

    async def test_a_reply_of_a_known_length_needs_as_much(self) -> None:
        model = FakeModel()
        model.max_tokens = 100  # type: ignore[attr-defined]
        assert await self.compressed(model, 7) is None
        assert await self.compressed(model, 8) is not None

    @pytest.mark.parametrize("fixed", [{"system": "." * 1000}, {"tools": [{"name": "." * 1000}]}])
    async def test_instructions_and_tools_need_room(self, fixed: dict[str, Any]) -> None:
        model = FakeModel()
        vars(model).update(fixed)
        assert await self.compressed(model, 3) is None
        assert await self.compressed(model, 5) is not None

    @pytest.mark.parametrize("entries", [40, 400])
    async def test_what_is_past_the_window_is_summarized_in_pieces(self, entries: int) -> None:
        model = FakeModel()
        model.summary = "so far: " + "!" * 400
        compressed = await self.compressed(model, entries)
        assert compressed is not None
        assert model.summary in compressed[1]
        assert len(model.asked) > entries / 5
        asked = [str(history[0]["content"]) for _, _, history, _ in model.asked]
        assert all(len(text) <= 3000 for text in asked)
        assert ["<summary_so_far>" in text for text in asked] == [False] + [True] * (len(asked) - 1)
        assert sum(text.count("." * 468) for text in asked) == compressed[0]

    async def test_one_message_that_is_longer_than_the_window(self) -> None:
        model = FakeModel()
        compress = compression.compressor(model, 1.0)
        assert compress is not None
        text = "".join(f"{n} " for n in range(5000))
        assert await compress([{"role": "user", "content": text}], []) is not None
        asked = [str(history[0]["content"]) for _, _, history, _ in model.asked]
        assert all(len(text) <= 3000 for text in asked)
        assert all(f" {n}" in "".join(asked) or n < 10 for n in range(0, 5000, 500))

    async def test_a_piece_without_a_summary_leaves_the_history_as_it_is(self) -> None:
        class Tires(FakeModel):
            async def __call__(self, history: History, choice: Any = "required") -> Any:
                await super().__call__(history, choice)
                return (None if len(self.asked) == 3 else "more"), []

        assert await self.compressed(Tires(), 100) is None


@pytest.mark.full
async def test_tokens_are_counted_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def count(_llm: str, messages: list[dict[str, Any]]) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return len(messages[0]["content"])

    monkeypatch.setattr("mail.factories.models.count_tokens", count)
    assert await compression.count_tokens("openai/gpt-5-mini", ["a", "bc"]) == [1, 2]
    assert threads == [False, False]


def test_only_whole_turns_are_cut() -> None:
    history: History = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "tool", "content": "c"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "e"},
    ]
    cut = compression._cut
    assert cut(history, [1] * 5, 5) == 0
    assert cut(history, [1] * 5, 4) == 3
    assert cut(history, [1] * 5, 2) == 3
    assert cut(history, [1] * 5, 1) == 5
    assert cut([], [], 1) == 0
