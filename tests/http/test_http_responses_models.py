"""`POST /responses` to agents that are language models: they are offered the caller's tools, and call them."""

from typing import Any

import pytest
from responses_stage import WEATHER, Bridge, calls_of, result
from support.services.llm_stub import LLMStub, Request, Tokens, call, reply

from mail.core.protocol.calls import ToolFormat
from mail.core.task.swarm import AgentCore, SwarmCore
from mail.factories import LiteLLMSupervisorFunction
from mail.testing.agents import build_swarm

pytestmark = pytest.mark.full

GPT, CLAUDE = "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"
OTHER: Any = {**WEATHER, "name": "get_time"}


def swarm_of(llm: str, tool_format: ToolFormat, **params: Any) -> SwarmCore:
    function = LiteLLMSupervisorFunction(
        name="supervisor",
        comm_targets=[],
        llm=llm,
        system="You are the supervisor.",
        tool_format=tool_format,
        print_llm_streams=False,
        **params,
    )
    agent = AgentCore(function, enable_entrypoint=True, can_complete_tasks=True, tool_format=tool_format)
    return build_swarm({"supervisor": agent})


def tools_of(request: Request) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in request.body["tools"]]


@pytest.mark.parametrize(
    ("llm", "tool_format"), [(GPT, "completions"), (GPT, "responses"), (CLAUDE, "completions")]
)
async def test_a_model_calls_the_callers_tool(stub: LLMStub, llm: str, tool_format: ToolFormat) -> None:
    tokens = Tokens(input=100, output=10, cached=40, written=50, reasoning=6)
    stub.script(
        reply(call("get_weather", city="Tokyo"), call("get_weather", city="Oslo"), tokens=tokens),
        reply(call("task_complete", finish_message="Sunny and cold."), tokens=tokens),
    )
    async with Bridge(swarm_of(llm, tool_format)) as server:
        client = server.sdk()
        asked = await client.responses.create(model="m", input="Weather?", tools=[WEATHER])
        calls = calls_of(asked)
        assert [call.arguments for call in calls] == ['{"city": "Tokyo"}', '{"city": "Oslo"}']
        assert asked.usage is not None
        assert (asked.usage.input_tokens, asked.usage.output_tokens, asked.usage.total_tokens) == (
            100,
            10,
            110,
        )
        details = asked.usage.input_tokens_details
        assert (details.cached_tokens, details.cache_write_tokens) == (40, 50)
        results = [result(call, text) for call, text in zip(calls, ["sunny", "cold"], strict=True)]
        told = await client.responses.create(model="m", input=results, previous_response_id=asked.id)
        assert told.output_text == "Sunny and cold."
    first, second = stub.requests
    assert "get_weather" in tools_of(first)
    assert "task_complete" in tools_of(first)
    assert "get_weather" not in tools_of(second)  # they were not lent again
    history = str(second.body.get("messages") or second.body["input"])
    assert "sunny" in history
    assert "cold" in history


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "get_time"}])
async def test_a_demand_is_made_of_the_model(stub: LLMStub, choice: Any) -> None:
    stub.script(reply(call("get_time", city="Tokyo")))
    async with Bridge(swarm_of(GPT, "responses", default_tool_choice="auto")) as server:
        asked = await server.sdk().responses.create(
            model="m", input="?", tools=[WEATHER, OTHER], tool_choice=choice
        )
        assert [item.type for item in asked.output] == ["function_call"]
    [request] = stub.requests
    if choice == "auto":
        assert request.body["tool_choice"] == "auto"
        assert {"get_weather", "get_time", "task_complete"} <= set(tools_of(request))
    elif choice == "required":
        assert request.body["tool_choice"] == "required"
        assert tools_of(request) == ["get_weather", "get_time"]
    else:
        assert request.body["tool_choice"] == choice
        assert tools_of(request) == ["get_time"]
