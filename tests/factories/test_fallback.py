"""Several models for one agent: when its calls go to another one, for how long, and who is paid."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory_agents import CLAUDE, GPT, Dialect, prompt, supervisor, swarm_of
from support.engines.adapters import STORES
from support.plugins.tiers import sized
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
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.core.decisions import fallback
from mail.core.decisions.fallback import opened, tried
from mail.core.engine.permits import ModelPermits
from mail.core.engine.watch import Submitted
from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.events import EventKind
from mail.core.task.extras import SwitchExtra
from mail.core.task.fallback import Breaker, Switch, SwitchCause
from mail.core.task.permits import ModelLimits
from mail.core.task.stored import read_checkpoint, write_checkpoint
from mail.core.task.task import TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.core.turns.context import TURN
from mail.errors import ConfigurationError, ModelRefusal, ModelUnavailable, StoreUnavailable
from mail.factories import LiteLLMSupervisorFunction
from mail.factories.fallback import CAUSES, read_fallback
from mail.factories.options import choose_connection, options_of_fallback
from mail.factories.retry import Cause, RetryPolicy, Stop
from mail.factories.retry import Failure as Failed
from mail.testing.rig import Outcome, Rig

DEEPSEEK = "deepseek/deepseek-chat"
DONE = reply(thinking("Enough."), call("task_complete", finish_message="Sunny."))


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
    first = opened(None, 0.0, SwitchCause.OUTAGE)
    assert first == Breaker(until=30.0, failures=1, cause=SwitchCause.OUTAGE)
    assert opened(first, 29.0, SwitchCause.RATE_LIMIT) is first, "this call began before"
    second = opened(first, 40.0, SwitchCause.RATE_LIMIT)
    assert second == Breaker(until=100.0, failures=2, cause=SwitchCause.RATE_LIMIT)
    asked = opened(second, 100.0, SwitchCause.RATE_LIMIT, 300.0)
    assert asked.until == 400.0
    for n in range(2, 20):
        asked = opened(asked, 1_000.0 * n, SwitchCause.OUTAGE)
    assert asked.until == 19_600.0


@pytest.mark.fast
def test_one_call_tries_a_model_whose_breaker_has_been_open_for_its_time() -> None:
    assert tried(None, 0.0) is None
    breaker = opened(None, 0.0, SwitchCause.OUTAGE)
    assert tried(breaker, 29.0) is breaker
    probed = tried(breaker, 30.0)
    assert probed == Breaker(until=90.0, failures=1, cause=SwitchCause.OUTAGE, is_tried=True)
    assert tried(probed, 31.0) is probed, "others wait for it"
    assert opened(probed, 40.0, SwitchCause.OUTAGE) == Breaker(100.0, 2, SwitchCause.OUTAGE)
    assert tried(probed, 90.0) == Breaker(150.0, 1, SwitchCause.OUTAGE, is_tried=True), "its process has died"


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


async def test_the_task_returns_to_its_first_model(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert breaker(rig, CLAUDE) is None
    assert outcome.task.models.keys() == {GPT, CLAUDE}


def breaker(rig: Rig, model: str) -> Breaker | None:
    assert rig.runtime.permits is not None
    return rig.runtime.permits.breaker(model)


def limited(rig: Rig, *patterns: str) -> None:
    """Let models of these patterns begin a call every ten seconds."""
    limits = dict.fromkeys(patterns, ModelLimits(requests_per_minute=6))
    rig.runtime.permits = ModelPermits(SQLiteDocuments(rig.database), rig.clock, limits, pause=0.0)


async def test_a_call_past_the_limit_of_a_model_goes_to_the_next_one(stub: LLMStub) -> None:
    stub.otherwise = lambda _: DONE
    async with Rig(swarm_of(Dialect(GPT, "responses"), fallback=[CLAUDE])) as rig:
        limited(rig, "openai/*")
        await rig.ask("One")
        outcome = await rig.ask("Two")
    assert [request.body["model"] for request in stub.requests] == [of(GPT), of(CLAUDE)]
    (event,) = outcome.of(EventKind.MODEL_SWITCHED)
    extra = event.extra.as_json()
    assert (extra["model"], extra["cause"]) == (CLAUDE, "rate_limit")
    assert extra["until"], "the task stays there for a while, for the sake of its cache"
    assert breaker(rig, GPT) is None, "the model works, and others may call it"


async def test_where_all_models_are_at_their_limits_the_turn_waits_for_the_first(stub: LLMStub) -> None:
    stub.otherwise = lambda _: DONE
    async with Rig(swarm_of(Dialect(GPT, "responses"), fallback=[CLAUDE])) as rig:
        limited(rig, "openai/*", "anthropic/*")
        await rig.ask("One")
        await rig.ask("Two")
        submitted = await rig.submit("Three")
        lease = await rig.parked(submitted.key, "supervisor")
        assert lease.park is not None
        assert (lease.park.on, lease.park.ticket) == ("openai", 1)
        await rig.pass_time(lease.expires - rig.runtime.now() + 1)
        assert (await rig.outcome(submitted)).answer == "Sunny."
    assert [request.body["model"] for request in stub.requests] == [of(GPT), of(CLAUDE), of(GPT)]


async def test_the_window_is_that_of_the_model_in_use(stub: LLMStub) -> None:
    function = supervisor(Dialect(GPT, "responses"), fallback=[DEEPSEEK])
    other = supervisor(Dialect(DEEPSEEK, "responses"))
    first = await function.window()
    turn = TURN.set(
        replace(TURN.get(), switch=Switch(model=DEEPSEEK, previous=GPT, cause=SwitchCause.OUTAGE))
    )
    try:
        assert await function.window() == await other.window() != first
    finally:
        TURN.reset(turn)


@pytest.mark.parametrize("place", ["here", "another process"])
async def test_another_task_leaves_a_broken_model_alone(stub: LLMStub, place: str) -> None:
    stub.script(*[server_error()] * 2, to=of(CLAUDE))
    stub.script(DONE, DONE, to=of(GPT))
    swarm = swarm_of(Dialect(CLAUDE, "responses"), fallback=GPT)
    async with Rig(swarm) as rig, Rig(swarm) as elsewhere:
        elsewhere.runtime.permits = ModelPermits(SQLiteDocuments(rig.database), elsewhere.clock, {})
        other = rig if place == "here" else elsewhere
        await rig.ask("One")
        outcome = await other.ask("Two")
        known = breaker(other, CLAUDE)
    assert [request.body["model"] for request in stub.requests].count(of(CLAUDE)) == 2
    (event,) = outcome.of(EventKind.MODEL_SWITCHED)
    assert known is not None
    assert event.extra.as_json()["until"] == known.until


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


async def test_the_last_model_gets_all_its_retries(stub: LLMStub, caplog: pytest.LogCaptureFixture) -> None:
    stub.otherwise = lambda _: server_error()
    agent = supervisor(Dialect(GPT, "responses"), fallback=[CLAUDE])
    with pytest.raises(ModelUnavailable, match=r"; .*on all 6 attempts"):
        await agent([prompt()])
    assert Counter(request.body["model"] for request in stub.requests) == {of(GPT): 2, of(CLAUDE): 6}
    assert f"{GPT}: HTTP 500, attempt 1 of 2" in caplog.text
    assert f"{CLAUDE}: HTTP 500, attempt 1 of 6" in caplog.text


# ---------------------------------------------------------------------------------- histories across providers


PAIRS = [
    (first, second, tool_format)
    for tool_format in ("responses", "completions")
    for first in (GPT, CLAUDE, DEEPSEEK)
    for second in (GPT, CLAUDE, DEEPSEEK)
    if first != second
]


@pytest.mark.soak(on="deepseek")
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


async def outcome_of(rig: Rig, submitted: Submitted) -> Outcome:
    """Wait for the answer as a client does, which asks again where a busy machine keeps the store from replying."""
    while True:
        try:
            return await rig.outcome(submitted, seconds=7_000)
        except StoreUnavailable:
            await asyncio.sleep(1.0)


MANY = [pytest.mark.soak, pytest.mark.timeout(7_200)]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("where", "tasks"),
    [
        ("sqlite-memory", 3),
        pytest.param("sqlite-slow", 500, marks=MANY),
        *(
            pytest.param(name, 25, marks=MANY)
            for name in ("dynamodb-ministack", "postgres")
            if name in STORES
        ),
    ],
)
async def test_no_task_fails_while_its_first_model_fails_at_random(
    stub: LLMStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, tasks: int
) -> None:
    """Each task has twenty turns, and is charged for the model that has replied in each of them."""
    monkeypatch.setattr(fallback, "OPEN_SECONDS", 0.02)
    monkeypatch.setattr(fallback, "LONGEST_OPEN", 0.05)
    monkeypatch.setattr(fallback, "PROBE_SECONDS", 0.05)
    dice = random.Random(7)
    tokens = {of(CLAUDE): Tokens(input=100, output=10), of(GPT): Tokens(input=50, output=5)}
    turns: Counter[str] = Counter()
    hangs = sized(fast=0, full=0, soak=1)
    failures = [
        rate_limited(),
        server_error(),
        hang_up(),
        reply(text("I was about"), cut_after=3),
        DONE.but(delay=60.0),
    ]

    def answer(request: Request) -> Any:
        model = request.body["model"]
        if model == of(CLAUDE) and dice.random() < 0.4:
            return dice.choices(failures, [12, 12, 12, 12, hangs])[0]
        task = next(word for word in json.dumps(request.body).split() if word.startswith("task-"))[:8]
        turns[task] += 1
        said: Reply = DONE if turns[task] >= 20 else reply(thinking("Hm."), call("look_up", city="Oslo"))
        return said.but(tokens=tokens[model])

    stub.otherwise = answer
    swarm = swarm_of(Dialect(CLAUDE, "responses"), fallback=[GPT], timeout=20)
    adapter = STORES[where](tmp_path)
    await adapter.open()
    try:
        async with Rig(swarm, store=adapter.store, clock=SYSTEM_CLOCK, concurrency=16) as rig:
            rig.runtime.permits = ModelPermits(adapter.records._documents, SYSTEM_CLOCK, {})
            asked = [await rig.submit(f"Work on task-{n:03}") for n in range(tasks)]
            outcomes = await asyncio.gather(*(outcome_of(rig, each) for each in asked))
    finally:
        await adapter.close()
    assert {(outcome.task.status, outcome.answer) for outcome in outcomes} == {
        (TaskStatus.COMPLETED, "Sunny.")
    }
    assert stub.complaints == []
    assert sum(turns.values()) >= tasks * 20
    total: Counter[str] = Counter()
    for outcome in outcomes:
        assert outcome.of(EventKind.AGENT_ERROR) == []
        timings = [event.extra.timing for event in outcome.events if event.extra.timing]
        replied = Counter(timing.model_calls[-1].model for timing in timings if timing.model_calls)
        assert replied == {model: usage.calls for model, usage in outcome.task.models.items()}
        for model, usage in outcome.task.models.items():
            assert usage.input_tokens == usage.calls * tokens[of(model)].input
            assert usage.output_tokens == usage.calls * tokens[of(model)].output
        models = [event.extra.model for event in outcome.events if isinstance(event.extra, SwitchExtra)]
        assert all(one != other for one, other in itertools.pairwise(models)), "one event per switch"
        total += replied
    assert min(total[CLAUDE], total[GPT]) > tasks
    spent = sum(outcome.task.models[CLAUDE].cost for outcome in outcomes if CLAUDE in outcome.task.models)
    assert spent == pytest.approx(total[CLAUDE] * (100 * 3 + 10 * 15) / 1e6)
    print(f"{where}: {total=} {len(stub.requests)=}")


async def test_a_swarm_takes_a_list_of_models(stub: LLMStub) -> None:
    stub.script(*[server_error()] * 2, to=of(GPT))
    stub.script(DONE, to=of(CLAUDE))
    async with Swarm(Agent("lead", "You work.", model=[GPT, CLAUDE])) as swarm:
        assert (await swarm.aask("Work")).text == "Sunny."
