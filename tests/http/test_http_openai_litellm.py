"""A swarm as a model of litellm: for a program that calls litellm, and for an agent of another swarm."""

from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.protocol.calls import ToolFormat
from mail.core.task.swarm import AgentCore
from mail.core.tools import caller_tools, declared_name
from mail.factories import LiteLLMSupervisorFunction
from mail.testing.agents import Call, View, build_swarm, call, complete

pytestmark = pytest.mark.full


def desk(view: View) -> list[Call]:
    """Have the caller look something up, if it can, then have it complete its task; else answer."""
    offered = [declared_name(tool) for tool in caller_tools()]
    if "look_up" in offered and not view.results:
        return [call("look_up", city="Tokyo")]
    words = view.results[-1] if view.results else view.mail.body
    if "caller__task_complete" in offered:
        return [call("caller__task_complete", finish_message=f"desk: {words}")]
    return [complete(f"desk: {words}")]


async def test_litellm_asks_a_swarm() -> None:
    import litellm  # takes seconds in each process that collects the tests

    async with HTTPServer(build_swarm({"supervisor": desk})) as server:
        settings: Any = {
            "model": "openai/example",
            "api_base": f"{server.uvicorn.url}/v1",
            "api_key": server.keys["user"],
            "messages": [{"role": "user", "content": "hi"}],
        }
        whole = await litellm.acompletion(**settings)
        assert whole.choices[0].message.content == "desk: hi"
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await litellm.acompletion(**settings, stream=True)
        ]
        assert "".join(pieces) == "desk: hi"


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_an_agent_with_tools_has_a_swarm_as_its_model(tool_format: ToolFormat) -> None:
    async with HTTPServer(build_swarm({"supervisor": desk})) as inner:
        function = LiteLLMSupervisorFunction(
            name="supervisor",
            comm_targets=[],
            llm="openai/example",
            system="You help.",
            tool_format=tool_format,
            print_llm_streams=False,
            api_base=f"{inner.uvicorn.url}/v1",
            api_key=inner.keys["user"],
        )
        agent = AgentCore(function, enable_entrypoint=True, can_complete_tasks=True, tool_format=tool_format)
        async with HTTPServer(build_swarm({"supervisor": agent})) as outer:
            tool: Any = {
                "type": "function",
                "name": "look_up",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            }
            asked = (
                await outer.client.post("/v1/responses", json={"input": "Weather?", "tools": [tool]})
            ).json()
            [waiting] = asked["output"]
            assert (waiting["name"], waiting["arguments"]) == ("look_up", '{"city": "Tokyo"}')
            output = {"type": "function_call_output", "call_id": waiting["call_id"], "output": "sunny"}
            told = (
                await outer.client.post("/v1/responses", json={"input": [output], "tools": [tool]})
            ).json()
            assert told["output"][0]["content"][0]["text"] == "desk: sunny"
        assert (
            len((await inner.client.get("/tasks")).json()) == 1
        )  # one task of the inner swarm for both calls
