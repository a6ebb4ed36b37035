"""Several models for one agent: when its calls go to another one, for how long, and who is paid."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factory_agents import CLAUDE, GPT, Dialect, prompt, supervisor, swarm_of
from support.services.llm_stub import (
    Failure,
    LLMStub,
    Reply,
    Request,
    Tokens,
    bad_key,
    bad_request,
    call,
    context_exceeded,
    hang_up,
    overloaded,
    quota_used_up,
    rate_limited,
    reply,
    server_error,
    text,
    thinking,
)

from mail import Agent, Swarm
from mail.core.protocol.calls import ToolFormat
from mail.core.task.events import EventKind
from mail.core.task.extras import SwitchExtra
from mail.core.task.fallback import Switch, SwitchCause
from mail.core.task.stored import read_checkpoint, write_checkpoint
from mail.core.task.task import TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.errors import ConfigurationError, ModelRefusal, ModelUnavailable
from mail.factories import LiteLLMSupervisorFunction, fallback
from mail.factories.fallback import CAUSES, Breakers, read_fallback
from mail.factories.options import choose_connection, options_of_fallback
from mail.factories.retry import Cause, RetryPolicy, Stop
from mail.factories.retry import Failure as Failed
from mail.testing.rig import Rig

DEEPSEEK = "deepseek/deepseek-chat"
DONE = reply(thinking("Enough."), call("task_complete", finish_message="Sunny."))


@pytest.fixture(autouse=True)
def breakers(monkeypatch: pytest.MonkeyPatch) -> Breakers:
    """Breakers of this test alone."""
    fresh = Breakers()
    monkeypatch.setattr(fallback, "BREAKERS", fresh)
    return fresh


@pytest.fixture
def stub(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> LLMStub:
    """The stub, in the place of DeepSeek, too."""
    monkeypatch.setenv("DEEPSEEK_API_BASE", f"{stub.url}/v1")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deepseek")
    return stub


# --------------------------------------------------------------------------------------------- decisions, pure


@pytest.mark.fast
@pytest.mark.parametrize("cause", list(Cause))
def test_one_short_retry_comes_before_another_model(cause: Cause) -> None:
    policy, failure = RetryPolicy(), Failed(cause)
    usual = policy.decide(failure, 1, None, 0.5)
    once = policy.decide_once(failure, 1, None, 0.5)
    assert once == (Stop() if cause is Cause.TIMEOUT else usual)
    assert policy.decide_once(failure, 2, None, 0.5) == Stop()
    assert policy.decide_once(Failed(cause, retry_after=20.0), 1, None, 0.5) == Stop()


@pytest.mark.fast
def test_refusals_and_invalid_requests_switch_nothing() -> None:
    assert Cause.REJECTED not in CAUSES
    assert Cause.FILTERED not in CAUSES
    assert Cause.ACCESS not in CAUSES
    assert CAUSES[Cause.QUOTA] is SwitchCause.RATE_LIMIT


def never(_llm: str) -> bool:
    return False


@pytest.mark.fast
def test_the_next_model_depends_on_the_cause() -> None:
    given = {"rate_limit": ["b", "c"], "outage": "c", "context": {"llm": "d", "temperature": 0}}
    _, models = read_fallback("agent 'a'", "a", given)
    assert models is not None
    assert [each.llm for each in models.targets] == ["a", "b", "c", "d"]

    def following(cause: SwitchCause, *tried: str, is_open: Callable[[str], bool] = never) -> str | None:
        found = models.following(cause, tried, is_open)
        return None if found is None else found.llm

    assert following(SwitchCause.RATE_LIMIT, "a") == "b"
    assert following(SwitchCause.RATE_LIMIT, "a", is_open="b".__eq__) == "c"
    assert following(SwitchCause.RATE_LIMIT, "a", is_open=lambda _: True) == "b"
    assert following(SwitchCause.OUTAGE, "a") == "c"
    assert following(SwitchCause.OUTAGE, "a", "c") is None
    assert following(SwitchCause.OUTAGE, "c") == "a"
    assert models.find("d").options == {"temperature": 0}  # type: ignore[union-attr]


@pytest.mark.fast
def test_after_an_exceeded_window_only_a_larger_one_is_tried() -> None:
    names = ["openai/gpt-4o", "openai/gpt-4", "openai/gpt-4.1"]
    _, models = read_fallback("agent 'a'", names, ())
    assert models is not None
    found = models.following(SwitchCause.CONTEXT, names[:1], never)
    assert found is not None
    assert found.llm == "openai/gpt-4.1"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("llm", "given", "problem"),
    [
        ([], (), "the list of models is empty"),
        (["a", "b"], ["c"], "give either several models or fallback, not both"),
        (
            "a",
            {"error": ["b"]},
            "fallback has no cause 'error'; it must be one of rate_limit, outage, context",
        ),
        ("a", [3], "a model of fallback is a name, or a dictionary with llm and options, not 3"),
        ("a", 3, "fallback must be names of models, not 3"),
        ("a", [*"bcdef"], "at most 5 models are allowed, not 6"),
        ("a", [{"llm": "b", "temprature": 1}], "Did you mean 'temperature'"),
    ],
)
def test_bad_settings_say_what_to_change(llm: Any, given: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        LiteLLMSupervisorFunction(name="a", comm_targets=[], llm=llm, fallback=given)
    with pytest.raises(ConfigurationError, match=problem):
        Agent("a", model=llm, fallback=given)


@pytest.mark.fast
def test_a_breaker_stays_open_longer_after_each_failure() -> None:
    breakers = Breakers()
    assert breakers.may_call("a", 0.0)
    breakers.fail("a", 0.0, SwitchCause.OUTAGE, None)
    assert (breakers.until("a"), breakers.is_open("a", 29.0)) == (30.0, True)
    assert not breakers.may_call("a", 29.0)
    assert [breakers.may_call("a", 30.0), breakers.may_call("a", 31.0)] == [True, False], (
        "one caller tries it"
    )
    breakers.fail("a", 40.0, SwitchCause.RATE_LIMIT, None)
    assert (breakers.until("a"), breakers.cause("a")) == (100.0, SwitchCause.RATE_LIMIT)
    breakers.fail("a", 100.0, SwitchCause.RATE_LIMIT, 300.0)
    assert breakers.until("a") == 400.0
    for _ in range(20):
        breakers.fail("a", 1000.0, SwitchCause.OUTAGE, None)
    assert breakers.until("a") == 1600.0
    breakers.succeed("a")
    assert breakers.until("a") == 0.0
    assert breakers.may_call("a", 1001.0)


@pytest.mark.fast
def test_no_key_goes_to_another_provider() -> None:
    options = {"api_key": "k", "api_base": "u", "timeout": 9, "temperature": 0, "truncation": "auto"}
    assert options_of_fallback(options, "openai/a", "openai/b", "responses", {}) == options
    others = options_of_fallback(options, "openai/a", "anthropic/b", "responses", {"api_key": "l"})
    assert others == {"timeout": 9, "temperature": 0, "api_key": "l"}


@pytest.mark.fast
@pytest.mark.parametrize(
    "given",
    [
        [{"llm": "b", "api_base": "u"}],
        {"llm": "b", "api_base": "u"},
        {"outage": [{"llm": "b", "api_base": "u"}]},
    ],
)
def test_a_loaded_swarm_can_not_send_keys_elsewhere_by_a_fallback(given: Any) -> None:
    assert choose_connection({"llm": "a", "fallback": given}) == ["api_base"]


@pytest.mark.fast
def test_a_checkpoint_keeps_the_switch() -> None:
    switch = Switch(model="b", previous="a", cause=SwitchCause.OUTAGE, until=1.5)
    checkpoint = Checkpoint(text=None, calls=(), receipts=(), switch=switch)
    assert read_checkpoint(write_checkpoint(checkpoint)) == checkpoint


# ------------------------------------------------------------------------------------------------------- calls


def of(model: str) -> str:
    """The provider's name of a model."""
    return model.partition("/")[2]


@pytest.mark.parametrize(
    ("failure", "calls", "cause"),
    [
        (rate_limited(), 2, "rate_limit"),
        (rate_limited(30), 1, "rate_limit"),
        (quota_used_up(), 1, "rate_limit"),
        (server_error(), 2, "outage"),
        (hang_up(), 4, "outage"),  # litellm calls again by itself
        (context_exceeded(), 1, "context"),
    ],
)
async def test_a_failure_switches_the_task(stub: LLMStub, failure: Failure, calls: int, cause: str) -> None:
    """One event tells it; the next turn stays where it is."""
    primary, other = "openai/gpt-4o", CLAUDE
    stub.script(*[failure] * calls, to=of(primary))
    stub.script(reply(thinking("Hm."), call("look_up", city="Oslo")), DONE, to=of(other))
    swarm = swarm_of(Dialect(primary, "responses"), fallback=[other])
    async with Rig(swarm) as rig:
        outcome = await rig.ask("What is the weather?")
    assert outcome.answer == "Sunny."
    assert [request.body["model"] for request in stub.requests] == [of(primary)] * calls + [of(other)] * 2
    (event,) = outcome.of(EventKind.MODEL_SWITCHED)
    extra = event.extra.as_json()
    assert (extra["agent"], extra["model"], extra["previous"]) == ("supervisor", other, primary)
    assert extra["cause"] == cause
    assert (extra.get("until") is None) == (cause == "context")
    assert [timed["model"] for timed in extra["timing"]["model_calls"]] == [primary, other]
    assert outcome.task.models.keys() == {other}
    assert outcome.task.switches["supervisor"].model == other
    assert stub.complaints == []


async def test_the_task_returns_to_its_first_model(
    stub: LLMStub, breakers: Breakers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "OPEN_SECONDS", 0.0)
    stub.script(*[overloaded()] * 2, DONE, to=of(CLAUDE))
    stub.script(reply(call("look_up", city="Oslo")), to=of(GPT))
    async with Rig(swarm_of(Dialect(CLAUDE, "responses"), fallback=GPT)) as rig:
        outcome = await rig.ask("What is the weather?")
    switches = [event.extra for event in outcome.of(EventKind.MODEL_SWITCHED)]
    assert [(extra.model, extra.cause) for extra in switches if isinstance(extra, SwitchExtra)] == [
        (GPT, "outage"),
        (CLAUDE, "recovered"),
    ]
    assert outcome.task.switches == {}
    assert breakers.until(CLAUDE) == 0.0
    assert outcome.task.models.keys() == {GPT, CLAUDE}


async def test_another_task_leaves_a_broken_model_alone(stub: LLMStub) -> None:
    stub.script(*[server_error()] * 2, to=of(CLAUDE))
    stub.script(DONE, DONE, to=of(GPT))
    async with Rig(swarm_of(Dialect(CLAUDE, "responses"), fallback=GPT)) as rig:
        await rig.ask("One")
        outcome = await rig.ask("Two")
    assert [request.body["model"] for request in stub.requests].count(of(CLAUDE)) == 2
    assert len(outcome.of(EventKind.MODEL_SWITCHED)) == 1


@pytest.mark.parametrize("failure", [bad_request(), bad_key()])
async def test_what_another_model_would_refuse_as_well_is_final(stub: LLMStub, failure: Failure) -> None:
    stub.script(failure)
    agent = supervisor(Dialect(GPT, "responses"), fallback=[CLAUDE])
    with pytest.raises(Exception, match="gpt-5-mini"):
        await agent([prompt()])
    assert len(stub.requests) == 1


async def test_the_error_lists_what_all_models_said(stub: LLMStub) -> None:
    stub.script(*[server_error()] * 2, to=of(GPT))
    stub.script(bad_request(), to=of(CLAUDE))
    agent = supervisor(Dialect(GPT, "responses"), fallback=[CLAUDE])
    with pytest.raises(
        ModelRefusal, match=r"gpt-5-mini is unavailable.*; .*claude-sonnet-4-5 rejects the request"
    ):
        await agent([prompt()])


async def test_the_last_model_gets_all_its_retries(stub: LLMStub) -> None:
    stub.otherwise = lambda _: server_error()
    agent = supervisor(Dialect(GPT, "responses"), fallback=[CLAUDE])
    with pytest.raises(ModelUnavailable, match=r"; .*on all 6 attempts"):
        await agent([prompt()])
    assert Counter(request.body["model"] for request in stub.requests) == {of(GPT): 2, of(CLAUDE): 6}


# ---------------------------------------------------------------------------------- histories across providers


PAIRS = [
    (first, second, tool_format)
    for tool_format in ("responses", "completions")
    for first in (GPT, CLAUDE, DEEPSEEK)
    for second in (GPT, CLAUDE, DEEPSEEK)
    if first != second
]


@pytest.mark.parametrize(
    ("first", "second", "tool_format"),
    PAIRS,
    ids=["-to-".join(map(of, pair[:2])) + f"-{pair[2]}" for pair in PAIRS],
)
async def test_histories_cross_providers(
    stub: LLMStub, first: str, second: str, tool_format: ToolFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thinking and parallel calls of both; what one can't read of the other is rewritten; nothing is refused."""
    monkeypatch.setattr(fallback, "OPEN_SECONDS", 0.0)
    work = reply(
        thinking("I need both."),
        text("I look them up."),
        call("look_up", city="Oslo"),
        call("look_up", city="Bergen"),
    )
    stub.script(work, *[server_error()] * 2, *[server_error()] * 2, work, DONE, to=of(first))
    stub.script(work, work, to=of(second))
    async with Rig(swarm_of(Dialect(first, tool_format), fallback=second)) as rig:
        outcome = await rig.ask("What is the weather?")
    assert outcome.answer == "Sunny."
    assert stub.complaints == []
    assert stub.is_done
    answered = [
        timed.model
        for event in outcome.events
        if event.extra.timing
        for timed in event.extra.timing.model_calls
    ]
    assert answered == [first, first, second, first, second, first, first]
    assert "written_by" not in json.dumps([request.body for request in stub.requests])
    assert json.dumps(stub.requests[-1].body).count("Bergen") >= 8, "calls and results of all turns"


# ------------------------------------------------------------------------------------------------ under failures


@pytest.mark.parametrize(
    ("tasks", "timeout"),
    [(10, 2), pytest.param(500, 20, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])],
)
async def test_no_task_fails_while_its_first_model_fails_at_random(
    stub: LLMStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, timeout: int
) -> None:
    """The cost of each reply is charged to the model that has written it."""
    monkeypatch.setattr(fallback, "OPEN_SECONDS", 0.02)
    monkeypatch.setattr(fallback, "LONGEST_OPEN", 0.05)
    monkeypatch.setattr(fallback, "PROBE_SECONDS", 0.05)
    dice = random.Random(7)
    tokens = {of(CLAUDE): Tokens(input=100, output=10), of(GPT): Tokens(input=50, output=5)}
    turns: Counter[str] = Counter()
    replies: Counter[str] = Counter()

    def answer(request: Request) -> Any:
        model = request.body["model"]
        if model == of(CLAUDE) and dice.random() < 0.4:
            cut = reply(text("I was about"), tokens=tokens[model], cut_after=3)
            return dice.choice(
                [rate_limited(), server_error(), hang_up(), DONE.but(delay=4.0 * timeout), cut]
            )
        replies[model] += 1
        task = next(word for word in json.dumps(request.body).split() if word.startswith("task-"))[:8]
        turns[task] += 1
        said: Reply = DONE if turns[task] >= 20 else reply(thinking("Hm."), call("look_up", city="Oslo"))
        return said.but(tokens=tokens[model])

    stub.otherwise = answer
    swarm = swarm_of(Dialect(CLAUDE, "responses"), fallback=[GPT], timeout=timeout)
    async with Rig(swarm, path=tmp_path / "mail.db", concurrency=16) as rig:
        asked = [await rig.submit(f"Work on task-{n:03}") for n in range(tasks)]
        outcomes = await asyncio.gather(*(rig.outcome(each, seconds=3_600) for each in asked))
    assert {(outcome.task.status, outcome.answer) for outcome in outcomes} == {
        (TaskStatus.COMPLETED, "Sunny.")
    }
    assert sum(turns.values()) >= tasks * 20
    assert stub.complaints == []
    spent = {model: [outcome.task.models[model] for outcome in outcomes] for model in (CLAUDE, GPT)}
    for model, usages in spent.items():
        calls = sum(usage.calls for usage in usages)
        assert 20 < calls <= replies[of(model)]  # some came too late
        assert sum(usage.input_tokens for usage in usages) == calls * tokens[of(model)].input
    paid = sum(usage.calls for usage in spent[CLAUDE]) * (100 * 3 + 10 * 15) / 1e6
    assert sum(usage.cost for usage in spent[CLAUDE]) == pytest.approx(paid)
    for outcome in outcomes:
        models = [event.extra.model for event in outcome.events if isinstance(event.extra, SwitchExtra)]
        assert all(one != other for one, other in itertools.pairwise(models)), "one event per switch"


async def test_a_swarm_takes_a_list_of_models(stub: LLMStub) -> None:
    stub.script(*[server_error()] * 2, to=of(GPT))
    stub.script(DONE, to=of(CLAUDE))
    async with Swarm(Agent("lead", "You work.", model=[GPT, CLAUDE])) as swarm:
        assert (await swarm.aask("Work")).text == "Sunny."
