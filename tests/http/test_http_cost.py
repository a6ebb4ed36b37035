"""What a request costs the server's process, in counts, which are the same on a loaded machine."""

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.config import ServerConfig
from mail.http.openapi import DocumentedRoute
from mail.http.routes import load_routers
from mail.server.app import build_app
from mail.server.uvicorn import serving
from mail.testing.agents import build_swarm, complete

CALLS = 790
"""Calls of Python functions for a `POST /message` of one turn, uvicorn's and Starlette's included."""

REQUESTS = 20


async def test_a_message_of_one_turn(tmp_path: Path) -> None:
    config = ServerConfig().with_overrides(database=str(tmp_path / "mail.db"))
    system = local(config, swarm=build_swarm({"supervisor": lambda _: [complete("done")]}), environ={})
    token = await issue_token(system.documents, Caller("user", "ann"))
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "/asyncio/" not in frame.f_code.co_filename

    async with serving(system) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            await client.get("/nothing")  # loads the routes that are not loaded yet
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        content = json.dumps({"body": "hello"}).encode()
        head = (
            f"POST /message HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )

        async def ask() -> None:
            writer.write(head.encode() + content)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            rest = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in rest.splitlines() if line.startswith(b"content-length: "))
            await reader.readexactly(int(length.split()[1]))

        for _ in range(3):  # builds what is built once
            await ask()
        profiler = sys.getprofile()
        sys.setprofile(count)
        try:
            for _ in range(REQUESTS):
                await ask()
        finally:
            sys.setprofile(profiler)
        writer.close()
    assert calls / REQUESTS <= CALLS


async def test_requests_are_answered_while_routes_are_loaded() -> None:
    app = build_app(
        local(
            ServerConfig().with_overrides(database="none"),
            swarm=build_swarm({"supervisor": lambda _: []}),
            environ={},
        )
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        first = list(app.routes)
        assert (await client.get("/health")).status_code == 200
        assert app.routes == first
        loading = asyncio.create_task(app.load_routes_between_requests())
        await asyncio.sleep(0)
        assert (await client.get("/webhooks")).status_code == 401  # the last of them; an unknown path is 404
        await loading
        assert (await client.get("/unknown")).status_code == 404
    assert len(app.routes) == len(set(map(id, app.routes))) > len(first)


def test_routes_are_analysed_for_their_first_requests() -> None:
    routes = [
        route for router in load_routers() for route in router.routes if isinstance(route, DocumentedRoute)
    ]
    fresh = [DocumentedRoute("/", route.endpoint, methods=route.methods, name=route.name) for route in routes]
    assert fresh
    assert not any(hasattr(route, "dependant") for route in fresh)


async def test_an_endpoint_that_takes_the_request_is_called_directly_also_after_the_document() -> None:
    async def endpoint(request: Request) -> None:
        raise LookupError(request.method)

    route = DocumentedRoute("/", endpoint, methods={"GET"}, name=None)
    route.build_models()
    with pytest.raises(LookupError, match="GET"):
        await route.app({"type": "http", "method": "GET"}, None, None)  # type: ignore[arg-type]
