"""Limits of providers: kept before a call, and learnt from what providers say."""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest
from factory_agents import CHAT, swarm_of
from support.services.llm_stub import LLMStub, call, rate_limited, reply

from mail import Agent, Swarm
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.core.engine.permits import ModelPermits
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.permits import ModelLimits
from mail.errors import ConfigurationError
from mail.factories.rates import closed_for, limits_told
from mail.testing.rig import Rig

DONE = reply(call("task_complete", finish_message="42"))
NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)


def keep(rig: Rig, **limits: int) -> None:
    """Keep limits for the models of OpenAI; without any, learn them."""
    kept = {"openai/*": ModelLimits(**limits)} if limits else {}
    rig.runtime.permits = ModelPermits(SQLiteDocuments(rig.database), rig.clock, kept, pause=0.0)


async def test_a_call_past_the_limit_waits_outside_of_its_turn(stub: LLMStub) -> None:
    stub.otherwise = lambda _request: DONE
    async with Rig(swarm_of(CHAT[0])) as rig:
        keep(rig, requests_per_minute=6)
        await rig.ask("one")
        submitted = await rig.submit("two")
        lease = await rig.parked(submitted.key, "supervisor")
        assert lease.park is not None
        assert (lease.park.on, lease.park.ticket, lease.park.attempts) == ("openai", 2, 0)
        assert len(stub.requests) == 1
        await rig.pass_time(lease.expires - rig.runtime.now() + 1)
        assert (await rig.outcome(submitted)).answer == "42"


async def test_what_one_call_is_refused_the_next_one_knows(stub: LLMStub) -> None:
    stub.script(rate_limited(20), DONE, DONE)
    async with Rig(swarm_of(CHAT[0])) as rig:
        keep(rig)
        first = await rig.submit("one")
        await rig.parked(first.key, "supervisor")
        second = await rig.submit("two")
        lease = await rig.parked(second.key, "supervisor")
        assert lease.expires - rig.runtime.now() >= 20
        assert len(stub.requests) == 1
        await rig.pass_time(60)
        await rig.outcome(first)
        await rig.outcome(second)


async def test_a_turn_that_has_waited_knows_what_other_processes_were_refused_meanwhile(
    stub: LLMStub,
) -> None:
    """A function that resumes it knows nothing of the model yet."""
    stub.script(rate_limited(20), DONE)
    async with Rig(swarm_of(CHAT[0])) as rig:
        keep(rig)
        submitted = await rig.submit("one")
        lease = await rig.parked(submitted.key, "supervisor")
        other = ModelPermits(SQLiteDocuments(rig.database), rig.clock, {}, pause=0.0)
        await other.refuse(swarm_of(CHAT[0]).agents["supervisor"].model or "", ModelLimits(), 300.0)
        keep(rig)
        await rig.pass_time(lease.expires - rig.runtime.now() + 1)
        lease = await rig.parked(submitted.key, "supervisor")
        assert lease.expires - rig.runtime.now() > 200
        assert len(stub.requests) == 1
        await rig.pass_time(400)
        assert (await rig.outcome(submitted)).answer == "42"


async def test_who_watches_sees_the_wait(stub: LLMStub) -> None:
    stub.otherwise = lambda _request: DONE
    live: list[LiveEvent] = []
    async with Rig(swarm_of(CHAT[0])) as rig:
        keep(rig, requests_per_minute=6)
        await rig.ask("one")
        submitted = await rig.submit("two")
        events = rig.runtime.watch(submitted.key, answer_to=submitted.seq)
        async with aclosing(rig.runtime.with_live(submitted.key, events)) as batches:
            async for batch in batches:
                live += [event for event in batch if isinstance(event, LiveEvent)]
                if live and live[-1].extra.get("outcome") == "parked":
                    task = await rig.store.load(submitted.key)
                    assert task is not None
                    (working,) = await rig.runtime.working(task)
                    await rig.pass_time(20)
    (waits,) = [event for event in live if event.kind is LiveKind.MODEL_CALL_WAITS]
    assert waits.text == "agent supervisor waits for openai, 10 s"
    (parked,) = [event for event in live if event.extra.get("outcome") == "parked"]
    assert (parked.text, parked.extra["waits_for"]) == (waits.text, "openai")
    assert [(work.kind, work.name, work.until) for work in working.on] == [
        ("wait", "openai", parked.extra["until"])
    ]


def test_limits_are_read_from_the_headers_of_both_kinds() -> None:
    openai = {"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "90000"}
    assert limits_told(openai) == ModelLimits(requests_per_minute=60, tokens_per_minute=90_000)
    anthropic = {"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-tokens-limit": "x"}
    assert limits_told(anthropic) == ModelLimits(requests_per_minute=50)
    assert limits_told({"x-ratelimit-limit-requests": "0"}) == ModelLimits()


def test_a_limit_that_is_used_up_becomes_free_little_by_little() -> None:
    free = {"x-ratelimit-limit-requests": "30", "x-ratelimit-remaining-requests": "1"}
    assert closed_for(free, NOW) == 0
    used = {**free, "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}
    assert closed_for(used, NOW) == 3
    until = (NOW + timedelta(seconds=60)).isoformat()
    tokens = {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": until}
    assert closed_for(tokens, NOW) == 3


def test_a_swarm_takes_limits_and_refuses_what_is_none() -> None:
    lead = Agent("lead", "You answer.", model="openai/gpt-5-mini")
    swarm = Swarm(lead, model_limits={"openai/*": {"requests_per_minute": 60}})
    assert swarm.template.to_core().model_limits == {"openai/*": ModelLimits(requests_per_minute=60)}
    with pytest.raises(ConfigurationError, match="rpm"):
        Swarm(lead, model_limits={"openai/*": {"rpm": 60}})
