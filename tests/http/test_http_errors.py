"""Every refusal: its status, its `detail`, and that it leaves nothing behind."""

import asyncio
import json
import logging

import pytest
from support.processes.http_server import HTTPServer, eventually

from mail.errors import LeaseLost, StoreUnavailable
from mail.testing.agents import build_swarm, complete

EVERY_ROUTE = [
    ("GET", "/"),
    ("GET", "/health"),
    ("POST", "/health"),
    ("GET", "/whoami"),
    ("GET", "/status"),
    ("POST", "/message"),
    ("GET", "/tasks"),
    ("GET", "/task"),
    ("GET", "/task/stream"),
]
JSON = {"Content-Type": "application/json"}


async def refused(
    server: HTTPServer, body: bytes, status: int = 400, headers: dict[str, str] | None = None
) -> str:
    """The detail of the refusal of `POST /message` with this body; nothing may change."""
    before = server.rig.database.connection.total_changes
    response = await server.client.post("/message", content=body, headers={**JSON, **(headers or {})})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"detail"}
    assert server.rig.database.connection.total_changes == before
    detail: str = response.json()["detail"]
    return detail


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"null",
        b"[]",
        b'"text"',
        b'{"body": "\xff"}',
        b'{"body": "\xed\xa0\x80"}',
        b'{"body": "\\ud800"}',
        b'{"body": "\\ud800 and more"}',
        b'{"body": "\\udc00"}',
        b'{"body": "x", "\\ud800": 1}',
        b'{"body": "x", "kwargs": {"breakpoint_tool_call_result": {"content": "\\udfff"}}}',
        b'{"body": "x", "kwargs": {"anything": NaN}}',
        b'{"body": "x", "kwargs": {"anything": -Infinity}}',
        b'{"body": "x", "kwargs": {"timeout": 1e999}}',
        b'{"body": "x", "kwargs": {"max_steps": ' + b"9" * 5000 + b"}}",
        b'{"body": "x", "kwargs": {"a": ' + b"[" * 100_000,
        b'{"body": "x", "kwargs": {"a": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}}",
        '{"body": "x"}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b'{"body": "\x00"}',
    ],
    ids=range(22),
)
async def test_bodies_that_are_no_json_object_in_utf_8(server: HTTPServer, body: bytes) -> None:
    assert "body" in await refused(server, body)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"body": ""}, "body"),
        ({"body": None}, "body"),
        ({}, "body"),
        ({"body": 1}, "body"),
        ({"body": ["x"]}, "body"),
        ({"body": "x", "subject": {}}, "subject"),
        ({"body": "x", "msg_type": "broadcast_complete"}, "msg_type"),
        ({"body": "x", "msg_type": "letter"}, "msg_type"),
        ({"body": "x", "entrypoint": "\x00"}, "entrypoint"),
        ({"body": "x", "entrypoint": 1}, "entrypoint"),
        ({"body": "x", "show_events": "perhaps"}, "show_events"),
        ({"body": "x", "stream": []}, "stream"),
        ({"body": "x", "task_id": ""}, "task_id"),
        ({"body": "x", "task_id": "a\nb"}, "task_id"),
        ({"body": "x", "task_id": "a#b"}, "task_id"),
        ({"body": "x", "task_id": "x" * 257}, "task_id"),
        ({"body": "x", "task_id": 7}, "task_id"),
        ({"body": "x", "resume_from": "start"}, "resume_from"),
        ({"body": "x", "resume_from": "user_response"}, "say which task to resume"),
        ({"body": "x", "kwargs": "no"}, "kwargs"),
        ({"body": "x", "kwargs": {"budget": {"token": 5}}}, "kwargs.budget.token"),
    ],
)
async def test_fields_that_are_wrong_are_named(server: HTTPServer, fields: object, named: str) -> None:
    assert named in await refused(server, json.dumps(fields).encode())


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-8",
        "Application/JSON",
        "",
        "application/x-www-form-urlencoded",  # what `curl -d` says when nobody tells it better
        "text/plain",
        "nonsense",
    ],
)
async def test_bodies_that_are_json_whatever_they_are_called(server: HTTPServer, content_type: str) -> None:
    response = await server.client.post(
        "/message", content=b'{"body": "x"}', headers={"Content-Type": content_type}
    )
    assert response.status_code == 200


# ------------------------------------------------------------------------------------------------------ 413


async def test_a_body_as_large_as_it_may_be(server: HTTPServer) -> None:
    limit = server.service.max_body_bytes
    frame = len(json.dumps({"body": ""}))
    body = json.dumps({"body": "x" * (limit - frame)}).encode()
    assert len(body) == limit == 4 * 1024 * 1024
    response = await server.client.post("/message", content=body, headers=JSON)
    assert response.status_code == 200
    assert "4194304" in await refused(server, body + b" ", 413)


async def test_a_body_of_unknown_length(server: HTTPServer) -> None:
    sent = 0

    async def endless():
        nonlocal sent
        for _ in range(1000):
            sent += 65536
            yield b" " * 65536

    before = server.rig.database.connection.total_changes
    response = await server.client.post("/message", content=endless(), headers=JSON)
    assert response.status_code == 413
    assert server.rig.database.connection.total_changes == before


async def test_a_length_that_is_told_is_refused_before_the_body_is_sent(server: HTTPServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    key = server.keys["user"]
    writer.write(
        f"POST /message HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10**12}\r\n\r\n".encode()
    )
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_nobody_without_a_key_can_make_the_server_read_a_body(server: HTTPServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
    assert b" 401 " in await reader.readline()
    writer.close()


async def test_a_body_that_ends_early_is_no_error_of_the_server(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    key = server.keys["user"]
    writer.write(
        f"POST /message HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 99\r\n\r\n{{".encode()
    )
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await server.ask()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("target", "status", "base_url"),
    [
        ("http://mail.example:81/swarms?x=1", 200, "http://mail.example:81"),
        ("HTTP://mail.example/swarms", 200, "http://mail.example"),
        ("http://mail.example", 200, ""),
        ("http://mail.example/no%2Fwhere", 404, ""),
        ("ftp://mail.example/swarms", 404, ""),
        ("http://[/swarms", 404, ""),
        ("*", 404, ""),
    ],
)
async def test_requests_in_absolute_form(target: str, status: int, base_url: str) -> None:
    swarm = build_swarm({"supervisor": lambda _: [complete()]}, public=True)
    async with HTTPServer(swarm) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    if base_url:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["swarms"][0]["base_url"] == base_url


# ------------------------------------------------------------------------------------------------- 404, 405


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/swarmed",
        "/interswarm/sideways",
        "/responses",
        "/message/",
        "/tasks/1",
        "/docs",
        "//",
        "/%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_routes(server: HTTPServer, method: str, path: str) -> None:
    response = await server.client.request(method, f"http://127.0.0.1:{server.port}{path}")
    assert response.status_code == 404
    assert "GET /openapi.json" in response.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [(m, p) for m in ("PUT", "DELETE", "PATCH") for _, p in EVERY_ROUTE if (m, p) != ("DELETE", "/task")],
)
async def test_wrong_methods(server: HTTPServer, method: str, path: str) -> None:
    response = await server.client.request(method, path)
    assert response.status_code == 405
    assert method in response.json()["detail"]
    assert response.headers["allow"]


# ------------------------------------------------------------------------------------------------- 500, 503


async def test_whatever_is_unexpected_is_told_to_the_log_only(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def explode(*_args, **_kwargs):
        raise RuntimeError("secret of the house")

    monkeypatch.setattr(type(server.rig.store), "list_tasks", explode)
    response = await server.client.get("/tasks")
    assert (response.status_code, response.json()) == (500, {"detail": "internal error"})
    await eventually(lambda: "secret of the house" in caplog.text)  # by uvicorn, once the response is out


async def test_errors_of_ours_that_are_nobodys_business(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose(*_args, **_kwargs):
        raise LeaseLost("secret of the house")

    monkeypatch.setattr(type(server.rig.store), "list_tasks", lose)
    response = await server.client.get("/tasks")
    assert (response.status_code, response.json()) == (500, {"detail": "internal error"})
    assert "secret of the house" in caplog.text


async def test_a_store_that_can_not_write(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_args, **_kwargs):
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(type(server.rig.store), "commit", refuse)
    response = await server.post()
    assert (response.status_code, response.json()) == (503, {"detail": "the disk is full"})


@pytest.mark.parametrize("live", ["false", "true"])
async def test_a_stream_ends_quietly_when_the_store_is_lost(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, live: str
) -> None:
    """Its client resumes it."""

    async def lose(*_args, **_kwargs):
        raise StoreUnavailable("the store can't be reached")

    async def ended() -> bool:
        async with server.frames("GET", "/task/stream", params={"task_id": "t", "live": live}) as frames:
            assert [frame async for frame in frames] == []
        return "a stream has ended" in caplog.text

    await server.ask(task_id="t")
    monkeypatch.setattr(type(server.rig.store), "read_events", lose)
    await eventually(ended)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
