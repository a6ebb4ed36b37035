"""`GET /swarm`: who is in the swarm."""

from dataclasses import replace
from typing import Any

from support.processes.http_server import HTTPServer
from support.processes.projects import entry, supervisor

from mail.client import MAILClient
from mail.core.task.swarm import ActionCore, ProvidedTools
from mail.http.routes.swarm import SwarmAgents
from mail.swarms_json.build import build_swarm as swarm_of
from mail.swarms_json.specs import SwarmSpec
from mail.testing.agents import build_swarm, complete, turns


async def test_the_swarm_as_its_callers_see_it() -> None:
    agents = {"supervisor": turns([complete("hi")]), "worker": turns([])}
    async with HTTPServer(build_swarm(agents, breakpoint_tools=frozenset({"ask"}))) as server:
        answer = (await server.client.get("/swarm")).json()
        SwarmAgents.model_validate(answer)
        swarm = server.rig.runtime.swarm
        assert (answer["name"], answer["entrypoint"]) == (swarm.name, "supervisor")
        assert [agent["name"] for agent in answer["agents"]] == ["supervisor", "worker"]
        for agent in answer["agents"]:
            core = swarm.agents[agent["name"]]
            assert agent == {
                "name": agent["name"],
                "description": "",
                "comm_targets": list(core.comm_targets),
                "actions": list(core.actions),
                "mcp_tools": [],
                "enable_entrypoint": core.enable_entrypoint,
                "enable_interswarm": core.enable_interswarm,
                "can_complete_tasks": core.can_complete_tasks,
                "copies": 0,
                "model": None,
                "mcp_servers": [],
                "exclude_tools": [],
            }


class Tickets:
    """The tools of an MCP server, which was listed before."""

    async def tools(self) -> ProvidedTools:
        return self.known()

    def known(self) -> ProvidedTools:
        return ProvidedTools({"close_ticket": ActionCore("close_ticket", never)})

    async def aclose(self) -> None:
        pass


async def never(_arguments: dict[str, Any]) -> str:
    raise NotImplementedError


async def test_the_tools_of_mcp_servers() -> None:
    swarm = build_swarm({"supervisor": turns([complete("hi")])})
    agent = replace(swarm.agents["supervisor"], tool_source=Tickets())
    async with HTTPServer(replace(swarm, agents={"supervisor": agent})) as server:
        (described,) = (await server.client.get("/swarm")).json()["agents"]
    assert described["mcp_tools"] == ["close_ticket"]


SWARM = entry(
    "shop",
    supervisor(
        "clerk",
        "mail.factories:LiteLLMSupervisorFunction",
        description="sells umbrellas",
        agent_params={
            "llm": "openai/gpt-5-mini",
            "system": "Sell umbrellas. The till is at https://till:1234@shop.example.",
        },
        actions=["refund"],
        exclude_tools=["help"],
        mcp={
            "stock": {"url": "https://stock.example/mcp", "headers": {"Authorization": "Bearer hush"}},
            "idle": {"url": "https://idle.example/mcp", "disabled": True},
        },
    ),
    actions=[
        {
            "name": "refund",
            "description": "Pay a customer back",
            "parameters": {"type": "object", "properties": {}},
            "function": "python::mail.examples.weather_dummy.actions:get_weather_forecast",
            "needs_approval": True,
        }
    ],
)


async def test_models_and_tools_without_prompts_and_secrets() -> None:
    async with HTTPServer(swarm_of(SwarmSpec.model_validate(SWARM))) as server:
        response = await server.client.get("/swarm")
        refused = await server.client.get("/swarm?prompts=true")
        async with MAILClient(server.uvicorn.url, server.keys["admin"]) as admin:
            shown = await admin.get_swarm(prompts=True)
    (agent,), (action,) = response.json()["agents"], response.json()["actions"]
    assert (agent["model"], agent["mcp_servers"], agent["exclude_tools"]) == (
        "openai/gpt-5-mini",
        ["stock"],
        ["help"],
    )
    assert agent["description"] == "sells umbrellas"
    assert (action["description"], action["needs_approval"]) == ("Pay a customer back", True)
    assert not [secret for secret in ("hush", "Sell umbrellas", "stock.example") if secret in response.text]
    assert refused.status_code == 403
    assert shown["agents"][0]["system_prompt"].startswith("Sell umbrellas.")
    assert "1234" not in str(shown)
