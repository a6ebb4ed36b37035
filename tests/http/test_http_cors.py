"""Web pages of other origins: what they may send and read, at `mail server` and at both front doors on AWS."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp
from support.processes.http_server import HTTPServer

from mail.config import load_config
from mail.http.cors import MAX_AGE, PROTOCOL_HEADERS, methods, request_headers, response_headers
from mail.local_aws.deployment import _read_cors, read_template
from mail.local_aws.http_api import with_cors
from mail.local_aws.stack import Cors
from mail.server.app import create_app
from mail.testing.agents import build_swarm, complete

ORIGIN = "http://localhost:3000"
TAKEN = {
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "last-event-id",
    "prefer",
    "traceparent",
    "x-mail-authorization",
    *PROTOCOL_HEADERS,
}
EXPOSED = {
    "etag",
    "link",
    "location",
    "preference-applied",
    "retry-after",
    "www-authenticate",
    "x-last-event-id",
    "x-next-cursor",
    "x-searched",
    "x-task-id",
    "x-warnings",
}
DOORS = ["mail server", "HTTP API", "StreamFunctionUrl", "ProtocolsFunctionUrl"]


def of_template(door: str) -> Cors:
    """The CORS settings of a front door in template.yaml, for one origin."""
    resources = read_template(Path(__file__).parents[2] / "template.yaml")["Resources"]
    given: dict[str, Any] = (
        resources["HttpApi"]["Properties"]["CorsConfiguration"]
        if door == "HTTP API"
        else resources[door]["Properties"]["Cors"]
    )
    assert given["AllowOrigins"] == {"Ref": "CorsOrigins"}
    return _read_cors({**given, "AllowOrigins": [ORIGIN]})


def served(server: HTTPServer, door: str) -> ASGIApp:
    return server.app if door == "mail server" else with_cors(server.app, of_template(door))


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[tuple[httpx2.AsyncClient, HTTPServer]]:
    origins = (ORIGIN,) if request.param == "mail server" else ()
    async with HTTPServer(
        build_swarm({"supervisor": lambda _: [complete("42")]}), cors_origins=origins
    ) as server:
        transport = httpx2.ASGITransport(served(server, request.param), raise_app_exceptions=False)
        headers = {"Origin": ORIGIN, **server.headers("user")}
        async with httpx2.AsyncClient(transport=transport, base_url="http://mail", headers=headers) as client:
            yield client, server


def listed(response: httpx2.Response, name: str) -> set[str]:
    return {each.strip().lower() for each in response.headers.get(name, "").split(",")}


async def test_the_lists_are_those_of_the_document(server: HTTPServer) -> None:
    document = server.app.openapi()
    assert set(request_headers(document)) == TAKEN
    assert set(response_headers(document)) == EXPOSED
    for name in DOORS[1:]:
        cors = of_template(name)
        assert (sorted(cors.headers), sorted(cors.exposed)) == (
            request_headers(document),
            response_headers(document),
        )
        assert (sorted(cors.methods), cors.max_age) == (methods(document), MAX_AGE)


async def test_a_page_may_send_every_header(door: Any) -> None:
    client, _ = door
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ",".join(sorted(TAKEN)),
    }
    response = await client.options("/message", headers=asked)
    assert response.status_code == 200, response.text
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert listed(response, "access-control-allow-headers") >= TAKEN
    assert listed(response, "access-control-allow-methods") == {"get", "post", "delete"}


async def test_a_page_may_read_every_header(door: Any) -> None:
    client, _ = door
    warned = await client.post("/message", json={"body": "hello", "task_id": "t-1", "bodi": "?"})
    assert warned.status_code == 200
    sent = {"Idempotency-Key": "k-1", "Prefer": "respond-async"}
    accepted = await client.post("/message", json={"body": "hello"}, headers=sent)
    assert accepted.status_code == 202
    answers = {
        "message": accepted,
        "warned": warned,
        "task": await client.get("/task", params={"task_id": "t-1", "limit": 1}),
        "search": await client.get("/tasks", params={"q": "hello", "fields": "summary"}),
        "no key": await client.get("/tasks", headers={"Authorization": ""}),
    }
    returned = {name for response in answers.values() for name in map(str.lower, response.headers)}
    assert returned >= EXPOSED - {"retry-after"}
    for name, response in answers.items():
        assert listed(response, "access-control-expose-headers") == EXPOSED, name
        assert response.headers["access-control-allow-origin"] == ORIGIN, name


async def test_a_failure_can_be_read(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = door

    async def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(server.rig.runtime.store, "load", fail)
    response = await client.get("/task", params={"task_id": "t"})
    assert (response.status_code, response.json()) == (500, {"detail": "internal error"})
    assert response.headers["access-control-allow-origin"] == ORIGIN


async def test_a_page_of_another_origin(door: Any) -> None:
    client, _ = door
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    response = await client.options("/message", headers=asked)
    assert response.status_code == 400
    assert "access-control-allow-origin" not in response.headers


def test_by_default_there_is_none_and_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config().server.cors_origins == []
    (tmp_path / "mail.toml").write_text(f'[server]\ncors_origins = ["{ORIGIN}"]\n', encoding="utf-8")
    assert create_app(load_config().server).cors_origins == [ORIGIN]  # type: ignore[attr-defined]


async def test_without_the_setting_a_page_may_not_call(server: HTTPServer) -> None:
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    response = await server.client.options("/message", headers=asked)
    assert response.status_code == 405
    assert "access-control-allow-origin" not in response.headers
