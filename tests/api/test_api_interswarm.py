"""Swarms of the Python API that write to others."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.processes.http_server import HTTPServer, eventually
from support.services.messages import wrapped
from support.services.peer_server import PeerServer
from support.services.templates import agent, template

from mail import MAILMessage, MAILSwarm
from mail.core.protocol.address import create_agent_address
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import compose_message
from mail.errors import BadRequest, ConfigurationError, MAILError
from mail.net import SwarmRegistry
from mail.testing.agents import build_swarm, complete, request, turns, wait

HOME = "http://127.0.0.1:8000"


@pytest.fixture
async def beta() -> AsyncIterator[PeerServer]:
    async with PeerServer("beta") as peer:
        yield peer


def asking(**fields: Any) -> MAILSwarm:
    """A swarm whose boss asks `sage@beta`, and answers with what it hears."""
    boss = agent(
        "boss",
        turns([request("sage@beta", "why?"), wait()], [complete("heard")]),
        supervises=True,
        targets=["sage@beta"],
        enable_interswarm=True,
    )
    return template(boss, enable_interswarm=True, description="d", keywords=["k"], public=True).instantiate(
        {}, **fields
    )


def answer(request: dict[str, Any]) -> MAILMessage:
    """What `sage@beta` answers to a request that went over the wire."""
    payload = request["message"]["payload"]
    return compose_message(
        "response",
        task_id=payload["task_id"],
        sender=create_agent_address("sage@beta"),
        recipients=[create_agent_address("boss")],
        subject="Re",
        body="because",
        clock=SYSTEM_CLOCK,
        request_id=payload["request_id"],
    )


async def test_an_agent_asks_another_swarm(beta: PeerServer) -> None:
    swarm = asking(base_url=HOME)
    registry = swarm.swarm_registry
    assert registry is not None
    await registry.register_swarm("beta", beta.url, "t0ken")
    await swarm.start_interswarm()
    assert swarm.is_interswarm_running()
    message = swarm.build_message("s", "ask", ["boss"], task_id="t")
    await swarm.submit_message_nowait(message)

    async def was_asked() -> bool:
        await swarm._runtime.start()
        return "/interswarm/forward" in beta.paths()

    def kinds() -> list[str]:
        return [str(event.event) for event in swarm._runtime.get_events_by_task_id("t")]

    await eventually(was_asked)
    (asked,) = (each for each in beta.requests if each.path == "/interswarm/forward")
    assert asked.json["message"]["payload"]["body"] == "why?"
    assert asked.json["message"]["task_owner"] == "user:default@team"
    await eventually(lambda: "interswarm_message_sent" in kinds())
    await swarm.handle_interswarm_response(answer(asked.json))

    await eventually(lambda: "/interswarm/back" in beta.paths())
    assert kinds()[-1] == "task_complete"
    assert [kind for kind in kinds() if kind.startswith("interswarm")] == [
        "interswarm_message_sent",
        "interswarm_message_received",
        "interswarm_message_sent",
    ]
    (told,) = (each for each in beta.requests if each.path == "/interswarm/back")
    assert told.json["message"]["payload"]["subject"] == "::task_complete::"
    await swarm.shutdown()
    assert not swarm.is_interswarm_running()


async def test_without_a_connection_mail_comes_back(beta: PeerServer) -> None:
    swarm = asking()
    response, events = await swarm.post_message_and_run("ask", show_events=True)
    assert response.message.body == "heard"
    assert "interswarm_message_error" in [each.event for each in events]
    await swarm.shutdown()


async def test_a_message_that_belongs_to_no_task(beta: PeerServer) -> None:
    swarm = asking(base_url=HOME)
    message = swarm.build_message("s", "hello", ["sage@beta"])
    with pytest.raises(MAILError, match="start_interswarm"):
        await swarm.route_interswarm_message(message)
    assert swarm.swarm_registry is not None
    await swarm.swarm_registry.register_swarm("beta", beta.url, "t0ken")
    await swarm.start_interswarm()
    sent = await swarm.route_interswarm_message(message)
    assert sent.message.body == "hello"
    *_, posted = (each for each in beta.requests if each.method == "POST")  # health checks are GETs
    assert posted.json["message"]["task_owner"] == "user:default@team"
    local = swarm.build_message("s", "hello", ["boss"], task_id="here")
    assert await swarm.route_interswarm_message(local) == local.model_copy(
        update={"message": local.message.model_copy(update={"recipient_swarm": "team"})}
    )
    assert swarm._runtime.get_events_by_task_id("here")
    await swarm.stop_interswarm()
    assert not swarm.is_interswarm_running()
    await swarm.shutdown()


async def test_the_registry_of_a_template(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    swarm = asking(base_url="https://team.example/", registry_file=str(file))
    registry = swarm.swarm_registry
    assert registry is not None
    assert (registry.local_swarm_name, registry.local_base_url) == ("team", "https://team.example")
    assert (registry.local_swarm_description, registry.local_swarm_keywords) == ("d", ["k"])
    assert registry.local_swarm_public
    assert not registry.http.allow_private
    await registry.register_swarm("beta", "https://beta.invalid")
    assert list(json.loads(file.read_text())["endpoints"]) == ["beta"]
    await registry.stop()
    await swarm.shutdown()


async def test_a_registry_of_ones_own_or_none() -> None:
    boss = agent("boss", turns([complete("x")]), supervises=True).instantiate({})
    parts: dict[str, Any] = {"name": "team", "version": "1", "agents": [boss], "actions": []}
    registry = SwarmRegistry("team", HOME)
    swarm = MAILSwarm(**parts, entrypoint="boss", swarm_registry=registry, enable_interswarm=True)
    assert swarm.swarm_registry is registry
    await swarm.shutdown()
    swarm = MAILSwarm(**parts, entrypoint="boss", enable_interswarm=True)
    assert swarm.swarm_registry is None
    await swarm.start_interswarm()
    assert swarm.swarm_registry is not None
    await swarm.shutdown()
    swarm = MAILSwarm(**parts, entrypoint="boss")
    with pytest.raises(ConfigurationError, match="set enable_interswarm"):
        await swarm.start_interswarm()
    await swarm.stop_interswarm()
    await swarm.shutdown()


async def test_what_a_stranger_sends_is_a_message_like_others() -> None:
    swarm = asking()
    message = swarm.build_message("s", "b", ["bos"], "agent", sender="x@far", task_id="t")
    with pytest.raises(BadRequest, match="'bos' is not an agent"):
        await swarm.handle_interswarm_response(message)
    await swarm.shutdown()


async def test_a_person_writes_to_an_agent_of_another_swarm() -> None:
    """With the person's key there, to a server of ours."""
    swarm = asking(base_url=HOME)
    registry = swarm.swarm_registry
    assert registry is not None
    sage = build_swarm({"sage": lambda view: [complete(f"{view.mail.sender}: because")]})
    async with HTTPServer(sage) as server:
        await registry.register_swarm(sage.name, server.uvicorn.url)
        message = wrapped(auth_token=server.keys["user"]).model_dump(mode="json")
        message["target_swarm"] = sage.name
        message["payload"]["recipient"]["address"] = f"sage@{sage.name}"
        with pytest.raises(MAILError, match="start_interswarm"):
            await swarm.post_interswarm_user_message(message)
        await swarm.start_interswarm()
        answer = await swarm.post_interswarm_user_message(message)
    assert (answer.message.subject, answer.message.body) == ("::task_complete::", "ann: because")
    await swarm.shutdown()
