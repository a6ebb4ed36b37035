"""`GET /swarm`: who is in the swarm."""

import pytest
from support.http_server import HTTPServer

from mail.http.routes.swarm import SwarmAgents
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
                "comm_targets": list(core.comm_targets),
                "actions": list(core.actions),
                "enable_entrypoint": core.enable_entrypoint,
                "enable_interswarm": core.enable_interswarm,
                "can_complete_tasks": core.can_complete_tasks,
            }


@pytest.mark.parametrize(("role", "status"), [("user", 200), ("admin", 200), ("agent", 403), (None, 401)])
async def test_who_may_ask(role: str | None, status: int) -> None:
    async with HTTPServer(build_swarm({"supervisor": turns([complete("hi")])})) as server:
        headers = server.headers(role) if role else {"Authorization": ""}
        assert (await server.client.get("/swarm", headers=headers)).status_code == status
