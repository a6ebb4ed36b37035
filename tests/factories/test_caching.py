"""Prompt caching: what is marked, what a stub that caches by bytes reads, and what broke a prefix."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import caching_process
import factory_agents
import pytest
from caching_process import swarm_of
from factory_agents import CLAUDE, CLAUDES, GPT, prompt
from support.engines.aws import aws_environment, endpoint, has_ministack
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.postgres import borrow_database, has_postgres, return_database
from support.services.llm_stub import LLMStub, PrefixCache, Reply, Request, call, reply, text, thinking

from mail import Agent, Swarm
from mail.core.task.costs import Usage
from mail.core.task.live import LiveKind
from mail.errors import ConfigurationError
from mail.factories import LiteLLMSupervisorFunction
from mail.factories.caching import Prefixes, Sent, cache_key, prefix_ends
from mail.factories.history import read_history
from mail.testing.rig import Rig

REPLY = {"role": "assistant", "content": "Hm."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "done"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("entries", "ends"),
    [
        ([], set()),
        ([prompt()], {0}),
        ([prompt(), REPLY, prompt()], {0, 2}),
        ([prompt(), CALL, RESULT, prompt()], {0, 3}),
        ([prompt(), CALL, RESULT, prompt(), CALL, RESULT, prompt()], {3, 6}),
        ([REPLY, prompt()], {1}),
        ([prompt(), CALL], {0, 2}),  # the call gets a result
    ],
)
def test_prefixes_end_behind_the_previous_input_and_this_one(entries: list[Any], ends: set[int]) -> None:
    assert prefix_ends(read_history(entries)) == ends
    assert prefix_ends(read_history(entries, ["Only now."])) == ends, "a note is in no prefix"


def talk(cache: PrefixCache, turns: int) -> Any:
    """A model that looks something up in each turn, and completes the task in the last."""

    def answer(request: Request) -> Reply:
        tokens = cache.bill(request)
        if len(cache.bills) == turns:
            return reply(thinking("Enough."), call("task_complete", finish_message="Sunny."), tokens=tokens)
        cities = [f"city {len(cache.bills)}", "Oslo"][: 1 + len(cache.bills) % 2]
        return reply(
            thinking(f"I need {cities}."),
            *(call("look_up", city=city) for city in cities),
            tokens=tokens,
        )

    return answer


@pytest.mark.soak(on=("claude-thinking", "gpt-responses"))
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (CLAUDE, {}),
        (CLAUDE, {"thinking_budget": 2048}),
        (GPT, {}),
        (GPT, {"tool_format": "completions"}),
    ],
    ids=["claude", "claude-thinking", "gpt-responses", "gpt-chat"],
)
async def test_a_task_reads_its_prefix_from_the_cache(
    stub: LLMStub, model: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cache = PrefixCache()
    stub.otherwise = talk(cache, 20)
    async with swarm_of(model, **options) as swarm:
        answer = await swarm.aask("Work")
    assert answer.text == "Sunny."
    assert len(cache.bills) == 20
    assert cache.rate >= 0.9
    assert all(bill.cached > 0.9 * bill.input for bill in cache.bills[1:])
    assert "the cached prompt" not in caplog.text
    if model == GPT:
        (key,) = {request.body["prompt_cache_key"] for request in stub.requests}
        assert len(key) <= 64


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.soak) for name in ("file", "postgres", "ministack")]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Where two processes keep a task, one after the other, and the environment that they need for it."""
    match request.param:
        case "file":
            yield str(tmp_path / "mail.db"), {}
        case "postgres":
            if not has_postgres():
                pytest.skip("PostgreSQL is not installed")
            url = borrow_database()
            yield url, {}
            return_database(url)
        case _:
            if not has_ministack():
                pytest.skip("ministack is not installed")
            adapter = DynamoDBAdapter("ministack")
            await adapter.open()
            yield adapter.table, aws_environment(endpoint("ministack"))
            await adapter.close()


async def test_another_process_reads_the_prefix_after_a_kill(
    stub: LLMStub, place: tuple[str, dict[str, str]]
) -> None:
    """50 turns on a prefix of 20,000 tokens; what was billed is in the task, at litellm's prices."""
    cache = PrefixCache()
    act = talk(cache, 50)
    processes: list[asyncio.subprocess.Process] = []

    def answer(request: Request) -> Reply:
        if len(cache.bills) == 24 and len(processes) == 1:
            processes[0].kill()
        return act(request)

    stub.otherwise = answer
    where, needed = place
    environ = {**os.environ, **needed, "PYTHONPATH": str(Path(caching_process.__file__).parents[1])}
    for run in range(2):
        command = [sys.executable, caching_process.__file__, where, str(run)]
        processes.append(
            await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
        )
        output, _ = await processes[-1].communicate()
    assert [process.returncode for process in processes] == [-9, 0]
    assert cache.bills[0].input > 20_000
    assert cache.rate >= 0.9
    assert all(bill.cached > 0.9 * bill.input for bill in cache.bills[1:])
    known = [bill for n, bill in enumerate(cache.bills) if n != 24]  # that reply reached nobody
    calls, read, cached, written, cost = map(float, output.decode().split())
    assert calls == len(known) == 49
    assert read == sum(bill.input for bill in known)
    assert cached == sum(bill.cached for bill in known)
    assert written == sum(bill.written for bill in known)
    dollars = sum(
        (bill.input - bill.cached - bill.written) * 3
        + bill.cached * 0.3
        + bill.written * 3.75
        + bill.output * 15
        for bill in known
    )
    assert cost == pytest.approx(dollars / 1e6)


async def test_without_a_system_prompt_the_tools_are_marked(stub: LLMStub) -> None:
    agent = LiteLLMSupervisorFunction(name="a", comm_targets=[], llm=CLAUDE)
    stub.script(reply(text("Hello")))
    await agent([prompt()])
    tools = stub.requests[0].body["tools"]
    assert ["cache_control" in tool for tool in tools] == [False] * (len(tools) - 1) + [True]


@pytest.mark.parametrize("model", [CLAUDE, GPT])
async def test_caching_can_be_off(stub: LLMStub, model: str) -> None:
    lead = Agent("lead", "You work.", model=model, cache="off")
    stub.script(reply(call("task_complete", finish_message="Done.")))
    await Swarm(lead).aask("Work")
    assert "cache" not in json.dumps(stub.requests[0].body)
    with pytest.raises(ConfigurationError, match="cache must be 'auto' or 'off'"):
        await Swarm(Agent("lead", model=model, cache="on")).aask("Work")


@pytest.mark.parametrize("options", [{"api_base": "{url}/v1"}, {"custom_llm_provider": "openai"}])
async def test_other_servers_get_no_key(stub: LLMStub, options: dict[str, str]) -> None:
    given = {name: value.format(url=stub.url) for name, value in options.items()}
    agent = LiteLLMSupervisorFunction(name="a", comm_targets=[], llm=GPT, api_key="k", **given)
    stub.script(reply(text("Hello")))
    await agent([prompt()])
    assert "prompt_cache_key" not in stub.requests[0].body


@pytest.mark.usefixtures("aws_identity")
async def test_bedrock_gets_cache_points(stub: LLMStub) -> None:
    """Behind the system prompt, the previous input and this one."""
    llm = "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0"
    agent = LiteLLMSupervisorFunction(name="a", comm_targets=[], llm=llm, system="You work.")
    stub.script(reply(text("Hello")))
    await agent([prompt("one"), CALL, RESULT, prompt("two")])
    body = stub.requests[0].body
    point = {"cachePoint": {"type": "default"}}
    assert body["system"] == [{"text": "You work."}, point]
    messages = [message["content"] for message in body["messages"]]
    assert messages[0] == [{"text": "one"}, point]
    assert messages[-1][-2:] == [{"text": "two"}, point]
    assert json.dumps(body).count("cachePoint") == 3


# ------------------------------------------------------------------------------------------- broken prefixes


def sent(**changes: Any) -> Sent:
    parts = {"model": "m", "tools": b"t", "system": b"s", "earlier": b"1", "earlier_size": 10}
    return Sent(**{**parts, "whole": b"2", "size": 20, **changes})


FOLLOWS: dict[str, Any] = {"earlier": b"2", "earlier_size": 20, "whole": b"3", "size": 30}
READ = Usage(calls=1, input_tokens=2100, cached_tokens=2000)
LOST = Usage(calls=1, input_tokens=2100, cached_tokens=1000)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "usage", "later", "broken"),
    [
        ({}, READ, 10, []),
        ({}, LOST, 10, []),  # the provider's own doing
        ({"tools": b"x"}, READ, 10, []),
        ({"tools": b"x"}, LOST, 10, ["tools"]),
        ({"model": "n", "system": b"x"}, LOST, 10, ["model", "system prompt"]),
        ({"system": b"x"}, LOST, 301, []),  # it has expired
        ({"earlier": b"x"}, LOST, 10, ["history"]),
        ({"earlier": b"x", "earlier_size": 5}, LOST, 10, []),  # shortened
    ],
)
def test_what_broke_a_prefix_has_a_name(
    changes: dict[str, Any], usage: Usage, later: float, broken: list[str]
) -> None:
    prefixes = Prefixes()
    first = Usage(calls=1, input_tokens=2000, cached_tokens=500, cache_write_tokens=1500)
    key = cache_key("user:ann@team", "t", "lead")
    assert prefixes.note(key, sent(), first, 100.0) == []
    assert prefixes.note(key, sent(**FOLLOWS | changes), usage, 100.0 + later) == broken
    assert prefixes.note("another", sent(tools=b"y"), LOST, 100.0) == []


async def test_a_broken_prefix_is_reported(stub: LLMStub, caplog: pytest.LogCaptureFixture) -> None:
    """A task that continues with another system prompt reads nothing but its tools."""
    cache = PrefixCache()

    def answer(request: Request) -> Reply:
        return reply(call("task_complete", finish_message="Done."), tokens=cache.bill(request))

    stub.otherwise = answer
    swarm = factory_agents.swarm_of(CLAUDES[0])
    function: Any = swarm.agents["supervisor"].function
    function.system = "You work. " * 1000
    async with Rig(swarm) as rig:
        key = (await rig.ask("Work")).key
        await rig.ask("Again", task_id=key.task_id, resume_from="user_response")
        assert "the cached prompt" not in caplog.text
        function.system += "Hurry."
        async with rig.runtime.turns.live.subscribe(key) as live:
            await rig.ask("Again", task_id=key.task_id, resume_from="user_response")
            ended = [event.extra for event in live.take() if event.kind is LiveKind.MODEL_CALL_ENDED]
    assert [extra["prefix_broken_by"] for extra in ended] == [["system prompt"]]
    assert (
        "the cached prompt of agent supervisor was not read, since its system prompt changed" in caplog.text
    )
    assert cache.bills[1].cached > 2000 > cache.bills[2].cached
