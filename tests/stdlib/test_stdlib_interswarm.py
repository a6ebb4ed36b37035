"""The actions of mail.stdlib.interswarm, asked of MAIL's own server, and of others."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.processes.http_server import HTTPServer, QuickUvicorn

from mail.errors import ToolCallFault
from mail.stdlib.interswarm import actions
from mail.stdlib.interswarm.actions import get_swarm_health, get_swarm_registry, list_known_swarms, ping_swarm
from mail.testing.agents import build_swarm, complete, turns
from mail.utils.outcomes import ActionFailed

EVERY = pytest.mark.parametrize(
    "action", [ping_swarm, get_swarm_health, list_known_swarms], ids=lambda each: each.name
)


@pytest.fixture
async def server(private_allowed: None) -> AsyncIterator[HTTPServer]:
    """MAIL's own."""
    swarm = build_swarm(
        {"boss": turns([complete("hi")])}, description="It greets.", keywords=("greeting",), public=True
    )
    async with HTTPServer(swarm) as server:
        yield server


@pytest.fixture
async def other(private_allowed: None) -> AsyncIterator[Any]:
    """A server that says at every path what a test has put there."""
    says: dict[str, tuple[int, Any]] = {}

    async def answer(request: Request) -> Response:
        status, body = says.get(request.url.path, (404, {"detail": "Not Found"}))
        return Response(body if isinstance(body, str) else json.dumps(body), status)

    async with QuickUvicorn(Starlette(routes=[Route("/{path:path}", answer)])) as running:
        yield running.url, says


async def test_ping(server: HTTPServer, run: Any) -> None:
    pinged = await run(ping_swarm, base_url=f"{server.uvicorn.url}/")
    assert pinged.pop("latency") < 20
    assert pinged.pop("uptime") >= 0
    assert pinged == {
        "base_url": server.uvicorn.url,
        "name": "mail",
        "status": "running",
        "protocol_version": "1.3",
        "swarm": {
            "name": "example",
            "version": "1.0.0",
            "description": "It greets.",
            "entrypoint": "boss",
            "keywords": ["greeting"],
            "public": True,
        },
    }


async def test_health(server: HTTPServer, run: Any) -> None:
    health = await run(get_swarm_health, base_url=server.uvicorn.url)
    assert health.pop("timestamp")
    assert health == {"base_url": server.uvicorn.url, "swarm_name": "example", "status": "healthy"}


async def test_known_swarms(other: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url, says = other
    swarm = {
        "swarm_name": "weather",
        "base_url": "https://weather.test",
        "version": "1.0.0",
        "last_seen": "2026-01-01T00:00:00+00:00",
        "is_active": True,
        "latency": 0.25,
        "swarm_description": "d" * 3000,
        "keywords": ["weather"],
        "metadata": {"anything": "goes"},
    }
    says["/swarms"] = (
        200,
        {"swarms": [swarm, {"swarm_name": "b", "base_url": "http://b.test", "version": None}]},
    )
    known = await run(list_known_swarms, base_url=url)
    told = known["swarms"][0]
    assert told.pop("swarm_description").endswith("… (1000 more characters)")
    assert told == {
        key: value for key, value in swarm.items() if key not in ("metadata", "swarm_description")
    }
    assert known["swarms"][1] == {"swarm_name": "b", "base_url": "http://b.test"}
    assert "left_out" not in known
    assert await run(get_swarm_registry, url=url) == await run(list_known_swarms, base_url=url)
    monkeypatch.setattr(actions, "MAX_SWARMS", 1)
    known = await run(list_known_swarms, base_url=url)
    assert (len(known["swarms"]), known["left_out"]) == (1, 1)


@EVERY
@pytest.mark.parametrize(
    "body", ["", "hello", "[]", "null", "{}", '{"name": "other"}', '{"swarms": {}}', '{"status": 7}']
)
async def test_what_is_no_mail_server(other: Any, told: Any, action: Any, body: str) -> None:
    url, says = other
    says |= dict.fromkeys(("/", "/health", "/swarms"), (200, body))
    assert "not the response of a MAIL server" in await told(ActionFailed, action, base_url=url)


@EVERY
async def test_an_error(other: Any, told: Any, action: Any) -> None:
    assert "answered 404 to GET /" in await told(ActionFailed, action, base_url=f"{other[0]}/nowhere")


@EVERY
async def test_private_addresses(told: Any, action: Any) -> None:
    assert "not a public address" in await told(ActionFailed, action, base_url="http://127.0.0.1:8000")


@EVERY
async def test_no_url(told: Any, action: Any) -> None:
    assert "can't be sent" in await told(ToolCallFault, action, base_url="swarm.example.com")
