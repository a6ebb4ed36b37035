"""What a request costs the server's process, in counts, which are the same on a loaded machine."""

import asyncio

import httpx2
import pytest
from starlette.requests import Request

from mail.bootstrap import local
from mail.config import ServerConfig
from mail.http.openapi import DocumentedRoute
from mail.http.routes import load_routers
from mail.server.app import build_app
from mail.testing.agents import build_swarm


async def test_requests_are_answered_while_routes_are_loaded() -> None:
    app = build_app(
        local(
            ServerConfig().with_overrides(database="none"),
            swarm=build_swarm({"supervisor": lambda _: []}),
            environ={},
        )
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://server") as client:
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
