"""Agents whose history outgrows the window of their model, with a provider that refuses what doesn't fit."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.engines.adapters import STORES
from support.services.llm_stub import LLMStub, Tokens, call, context_exceeded, reply, text
from support.services.llm_stub.script import Reply, Turn, bad_key, unknown_model
from support.services.llm_stub.server import Request

from mail.core.task.context import WHOLE, Context
from mail.core.task.events import EventKind
from mail.core.task.extras import ContextExtra, SwitchExtra
from mail.core.task.fallback import SwitchCause
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore, AgentCore, SwarmCore
from mail.core.task.task import TaskStatus
from mail.factories import LiteLLMSupervisorFunction
from mail.testing.rig import Outcome, Rig

SMALL = "openai/gpt-4"
"""A model whose window is known to have 8192 tokens."""

UNKNOWN = "openai/house-model"

USUAL = Context()

SECONDS = 240
"""How long a task may take: it makes hundreds of real requests on a machine with other things to do."""

FACTS = [f"fact-{n}-{n * 7919 % 1000}" for n in range(20)]

SUMMARY = "In short: " + "much was looked at. " * 8


@dataclass
class Provider:
    """A provider with a window, for an agent that looks until it answers: a token for every four characters.

    Attributes:
        window: the most tokens that it reads in a call.
        looks: how many times the agent looks.
        read: the messages of each call of the agent, as JSON.
        new: the characters of the messages that no earlier call had.
    """

    window: int
    looks: int
    then: Callable[[str], Reply] = lambda said: reply(
        call("task_complete", finish_message=f"{sum(fact in said for fact in FACTS)} facts")
    )
    read: list[list[str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    refused: int = 0
    summaries: int = 0
    looked: int = 0
    new: int = 0

    def __call__(self, request: Request) -> Turn:
        messages = request.body.get("messages") or request.body["input"]
        said = json.dumps([messages, request.body.get("instructions"), request.body.get("tools")])
        size = len(said) // 4
        if size > self.window:
            self.refused += 1
            return context_exceeded()
        tokens = Tokens(input=size, output=20)
        if "You are the memory of an agent" in said:
            self.summaries += 1
            return reply(text(SUMMARY), tokens=tokens)
        self.read.append([json.dumps(message) for message in messages])
        new = {message for message in self.read[-1] if "read_more(ref=" not in message} - self.known
        self.known |= new
        self.new += sum(map(len, new))
        if self.looked < self.looks:
            self.looked += 1
            return reply(call("look", n=self.looked), tokens=tokens)
        return replace(self.then(said), tokens=tokens)


def looker(llm: str, size: int, context: Context | None = USUAL, larger: Sequence[str] = ()) -> SwarmCore:
    """A swarm of one agent, whose action returns so many characters."""

    async def look(arguments: dict[str, Any]) -> str:
        return f"seen {arguments['n']}: " + "".join(f"{n:9}," for n in range(size // 10))

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    action = ActionCore(
        name="look", function=look, parameters=parameters, description="Look.", read_only=True
    )
    function = LiteLLMSupervisorFunction(
        name="lead",
        comm_targets=[],
        system="You look.",
        tools=[action.to_tool_dict("completions")],
        tool_format="completions",
        llm=llm,
        fallback={"context": larger},
    )
    agent = AgentCore(
        function=function,
        actions=("look",),
        can_complete_tasks=True,
        enable_entrypoint=True,
        tool_format="completions",
        context=context,
    )
    return SwarmCore(
        name="looker",
        version="1.0",
        entrypoint="lead",
        agents={"lead": agent},
        actions={"look": action},
        task_message_limit=10_000,
    )


async def play(
    stub: LLMStub,
    provider: Provider,
    swarm: SwarmCore,
    question: str,
    seconds: float = SECONDS,
    store: Store | None = None,
) -> Outcome:
    stub.otherwise = provider
    async with Rig(swarm, store=store) as rig:
        outcome = await rig.outcome(await rig.submit(question), seconds=seconds)
        assert not stub.complaints
    return outcome


def cuts(outcome: Outcome) -> list[ContextExtra]:
    return [
        event.extra for event in outcome.of(EventKind.CONTEXT_CUT) if isinstance(event.extra, ContextExtra)
    ]


MANY = [pytest.mark.soak, pytest.mark.timeout(3_600)]


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize(
    ("where", "turns", "size"),
    [
        *((name, 20, 1_500) for name in ("sqlite-memory", "dynamodb-moto", "postgres") if name in STORES),
        pytest.param("sqlite-slow", 2_000, 300, marks=MANY),
        *(
            pytest.param(name, 500, 300, marks=MANY)
            for name in ("dynamodb-ministack", "postgres")
            if name in STORES
        ),
    ],
)
async def test_a_history_that_outgrows_its_window_many_times(
    stub: LLMStub, tmp_path: Path, where: str, turns: int, size: int
) -> None:
    provider, adapter = Provider(8_192, turns), STORES[where](tmp_path)
    question = f"Look, and remember these facts: {', '.join(FACTS)}."
    await adapter.open()
    try:
        outcome = await play(stub, provider, looker(SMALL, size), question, SECONDS + turns, adapter.store)
    finally:
        await adapter.close()
    assert outcome.answer == "20 facts"
    assert provider.refused == 0
    assert 0 < provider.summaries <= provider.new / 4 / (0.4 * provider.window)
    assert provider.summaries == len([cut for cut in cuts(outcome) if cut.summary])
    assert outcome.task.usage["lead"].calls == turns + 1 + provider.summaries
    moved = [n for n, cut in enumerate(cuts(outcome)) if cut.summary]
    changed = sum(
        later[: len(earlier)] != earlier
        for earlier, later in zip(provider.read, provider.read[1:], strict=False)
    )
    assert changed == len(cuts(outcome)) >= len(moved)  # between two cuts, the beginning is the same


@pytest.mark.soak
@pytest.mark.full
async def test_a_window_that_nobody_knows_is_learnt_from_a_refusal(stub: LLMStub) -> None:
    provider = Provider(8_192, 60)
    outcome = await play(stub, provider, looker(UNKNOWN, 300), f"Look: {FACTS}.")
    assert outcome.answer == "20 facts"
    assert 1 <= provider.refused <= 2
    assert 7_000 < outcome.task.contexts["lead"].window < 8_192


async def test_without_it_the_window_ends_the_task(stub: LLMStub) -> None:
    outcome = await play(stub, Provider(8_192, 60), looker(SMALL, 2_000, None), "Look.")
    assert "no longer fits into the context window" in outcome.answer


@pytest.mark.soak
async def test_a_result_of_megabytes_is_stored_once_and_read_in_pieces(stub: LLMStub) -> None:
    size = 5_000_000

    def read_on(said: str) -> Reply:
        if f"{size // 10 - 1:9}," in said.replace("\\n", ""):
            return reply(call("task_complete", finish_message="read to its end"))
        (total, ref), *_ = re.findall(r"of (\d+) characters; read_more\(ref='([0-9a-f]{32})'", said)
        return reply(call("read_more", ref=ref, offset=int(total) - 50))

    provider = Provider(8_192, 1, read_on)
    outcome = await play(stub, provider, looker(SMALL, size), "Look.")
    assert outcome.answer == "read to its end"
    assert provider.refused == 0
    assert size < outcome.task.stored_bytes < size * 1.02
    stub.reset()


@pytest.mark.soak
@pytest.mark.parametrize(
    "where", [name for name in ("sqlite-memory", "dynamodb-moto", "postgres") if name in STORES]
)
async def test_a_long_conversation_with_a_hundred_calls(stub: LLMStub, tmp_path: Path, where: str) -> None:
    """The case of temporalio/sdk-python#1890, in which a workflow ended after 53 calls."""
    provider, adapter = Provider(128_000, 100), STORES[where](tmp_path)
    await adapter.open()
    try:
        before = await adapter.size()
        swarm = looker("openai/gpt-4o", 7_800)
        outcome = await play(stub, provider, swarm, f"Look: {FACTS}.", store=adapter.store)
        size = await adapter.size() - before
    finally:
        await adapter.close()
    assert outcome.answer == "20 facts"
    assert provider.new / 4 > 209_000
    assert provider.refused == 0
    print(f"{where}: {outcome.task.stored_bytes / 1e6:.2f} MB of texts take {size / 1e6:.2f} MB")
    assert outcome.task.stored_bytes < 4_000_000
    assert size < 4_000_000


@pytest.mark.full
class TestASummaryThatFails:
    """Nothing is left out without a summary while the call still fits into the window."""

    async def test_the_agents_own_model_writes_what_the_set_one_cannot(self, stub: LLMStub) -> None:
        provider = Provider(8_192, 40)

        def answer(request: Request) -> Turn:
            is_wrong = request.body["model"] == "no-such-model"
            return unknown_model() if is_wrong else provider(request)

        settings = Context(model="openai/no-such-model")
        stub.otherwise = answer
        async with Rig(looker(SMALL, 600, settings)) as rig:
            outcome = await rig.outcome(await rig.submit(f"Look: {FACTS}."), seconds=SECONDS)
        assert outcome.answer == "20 facts"
        assert provider.summaries
        assert all(cut.summary for cut in cuts(outcome) if cut.begin > 1)

    @pytest.mark.soak
    async def test_the_history_is_whole_up_to_the_end_of_the_window(self, stub: LLMStub) -> None:
        provider = Provider(8_192, 40)
        sizes = []

        def answer(request: Request) -> Turn:
            said = json.dumps(request.body)
            if "You are the memory of an agent" in said:
                return bad_key()
            sizes.append(len(said) // 4)
            return provider(request)

        stub.otherwise = answer
        async with Rig(looker(SMALL, 600)) as rig:
            outcome = await rig.outcome(await rig.submit(f"Look: {FACTS}."), seconds=SECONDS)
        assert outcome.answer == "20 facts"
        assert provider.refused == 0
        assert max(sizes) > 0.9 * provider.window
        assert any(not cut.summary for cut in cuts(outcome) if cut.begin > 1)

    async def test_a_turn_that_fails_keeps_no_cut(self, stub: LLMStub) -> None:
        """The provider fails from the first summary on, then works again: the next run has all that was there."""
        provider = Provider(8_192, 60)
        is_down, down_since = True, False

        def answer(request: Request) -> Turn:
            nonlocal down_since
            if "You are the memory of an agent" in json.dumps(request.body):
                down_since = True
            return bad_key() if down_since and is_down else provider(request)

        stub.otherwise = answer
        async with Rig(looker(SMALL, 600)) as rig:
            first = await rig.submit(f"Look: {FACTS}.", task_id="t")
            failed = await rig.outcome(first, seconds=SECONDS)
            assert down_since
            assert [cut for cut in cuts(failed) if cut.begin > 1] == []
            assert failed.task.contexts["lead"].cut.begin == WHOLE.begin
            is_down = False
            provider.looks = 0
            again = await rig.outcome(await rig.submit("And now?", task_id="t"), seconds=SECONDS)
        assert all(cut.summary for cut in cuts(again) if cut.begin > 1)
        assert provider.summaries == 1


LARGE = "openai/gpt-4o"


class TestARefusedCall:
    """A provider that refuses calls which should fit: each step is one more request, in this order."""

    LOOKS = 6

    async def play(
        self, stub: LLMStub, larger: Sequence[str], refusals: Mapping[str, int]
    ) -> tuple[Outcome, list[tuple[str, int]]]:
        """Let the agent look, then refuse so many calls of each model; return the outcome, and the calls since then.

        A call is its model and the characters of its messages, 0 for a summary.
        """
        provider, left = Provider(128_000, self.LOOKS), dict(refusals)
        calls: list[tuple[str, int]] = []

        def answer(request: Request) -> Turn:
            model, said = f"openai/{request.body['model']}", json.dumps(request.body["messages"])
            is_summary = "You are the memory of an agent" in said
            if provider.looked == self.LOOKS:
                calls.append((model, 0 if is_summary else len(said)))
                if not is_summary and left.get(model):
                    left[model] -= 1
                    return context_exceeded()
            return provider(request)

        stub.otherwise = answer
        async with Rig(looker(SMALL, 1_500, larger=larger)) as rig:
            outcome = await rig.outcome(await rig.submit(f"Look: {FACTS}."), seconds=SECONDS)
        (_, first), summary, (_, second), *_ = calls
        assert summary == (SMALL, 0)
        assert second < 0.7 * first
        return outcome, calls

    async def test_is_repeated_with_half_of_the_context(self, stub: LLMStub) -> None:
        outcome, calls = await self.play(stub, [], {SMALL: 1})
        assert outcome.answer == "20 facts"
        assert [model for model, _ in calls] == [SMALL] * 3
        assert [cut.begin > 1 for cut in cuts(outcome)] == [True]

    async def test_then_goes_to_a_model_with_a_larger_window(self, stub: LLMStub) -> None:
        outcome, calls = await self.play(stub, [LARGE], {SMALL: 2})
        assert outcome.answer == "20 facts"
        assert [model for model, _ in calls] == [SMALL] * 3 + [LARGE]
        (switch,) = [event.extra for event in outcome.of(EventKind.MODEL_SWITCHED)]
        assert isinstance(switch, SwitchExtra)
        assert (switch.model, switch.previous) == (LARGE, SMALL)
        assert (switch.cause, switch.until) == (SwitchCause.CONTEXT, None)

    @pytest.mark.parametrize("larger", [[], [LARGE]], ids=["no other", "a larger one"])
    async def test_fails_its_turn_at_last_and_says_why(self, stub: LLMStub, larger: list[str]) -> None:
        outcome, calls = await self.play(stub, larger, {SMALL: 2, LARGE: 1})
        assert [model for model, _ in calls] == [SMALL] * 3 + larger
        assert outcome.task.status is TaskStatus.FAILED
        for model in (SMALL, *larger):
            assert f"no longer fits into the context window of {model}" in outcome.answer
        assert outcome.task.contexts["lead"].cut == WHOLE
