"""The actions of mail.stdlib.http, asked of real servers on this machine's loopback."""

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from support.processes.http_server import QuickUvicorn

from mail import public_urls
from mail.core.turns.context import TURN, TurnContext
from mail.errors import ConfigurationError, ToolCallFault
from mail.stdlib import http as stdlib_http
from mail.stdlib.http.actions import MAX_BODY_BYTES, http_get, http_post, http_request
from mail.stdlib.web import MAX_REDIRECTS
from mail.utils.outcomes import ActionFailed

METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


async def echo(request: Request) -> Response:
    """What was asked, as JSON."""
    body = await request.body()
    asked = {
        "method": request.method,
        "query": request.url.query,
        "headers": dict(request.headers),
        "body": body.decode(),
    }
    return Response(json.dumps(asked), media_type="application/json", headers={"ETag": "e1", "X-Other": "x"})


async def to(request: Request) -> Response:
    return RedirectResponse(request.query_params["url"], int(request.query_params.get("status", 302)))


async def around(_request: Request) -> Response:
    return RedirectResponse("/around")


async def give(request: Request) -> Response:
    """A body of a kind, and of so many bytes."""
    size = int(request.query_params.get("size", 3))
    return Response(b"x" * size, headers={"Content-Type": request.query_params["type"]})


async def latin(_request: Request) -> Response:
    return Response("Grüße".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"})


async def codec(_request: Request) -> Response:
    return Response("é\udcff".encode("utf-8", "replace"), headers={"Content-Type": "text/plain; charset=hex"})


async def untyped(request: Request) -> Response:
    return Response(b"\0\1" if "binary" in request.query_params else b"plain")


async def euros(_request: Request) -> Response:
    return Response("€" * MAX_BODY_BYTES, media_type="text/plain")


async def packed(request: Request) -> Response:
    kind = request.query_params["encoding"]
    body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(kind, bytes)(b"a" * 50_000_000)
    return Response(body, headers={"Content-Encoding": kind, "Content-Type": "text/plain"})


async def broken(_request: Request) -> Response:
    return Response(b"no gzip", headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})


async def slow(_request: Request) -> Response:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b"."
            await asyncio.sleep(0.05)

    return StreamingResponse(trickle(), media_type="application/octet-stream")


async def teapot(_request: Request) -> Response:
    return Response("short and stout", 418, media_type="text/plain")


def app() -> Starlette:
    everything = (to, around, give, latin, codec, untyped, euros, packed, broken, slow, teapot)
    return Starlette(
        routes=[
            Route("/echo", echo, methods=METHODS),
            Route("/read_only", echo, methods=["GET"]),
            *(Route(f"/{each.__name__}", each, methods=METHODS) for each in everything),
        ]
    )


@pytest.fixture
async def web(private_allowed: None) -> AsyncIterator[str]:
    async with QuickUvicorn(app()) as server:
        yield server.url


async def test_get(web: str, run: Any) -> None:
    answer = await run(http_get, url=f"{web}/echo?a=1", params={"b": "x y", "n": 2}, headers={"X-Mine": "m"})
    assert answer["status"] == 200
    assert answer["url"] == f"{web}/echo?a=1&b=x%20y&n=2".replace("%20", "+")
    assert answer["headers"]["etag"] == "e1"
    assert "x-other" not in answer["headers"]
    asked = json.loads(answer["body"])
    assert asked["method"] == "GET"
    assert asked["query"] == "a=1&b=x+y&n=2"
    assert asked["headers"]["x-mine"] == "m"
    assert "idempotency-key" not in asked["headers"]


@pytest.mark.parametrize("method", METHODS)
async def test_an_action_for_every_method_and_one_for_any(
    web: str, run: Any, method: str, in_call: str
) -> None:
    """By the name of the method, imported from the package."""
    action = getattr(stdlib_http, f"http_{method.lower()}")
    with_body = {"json": {"a": 1}} if "json" in action.parameters["properties"] else {}
    is_read_only = method in ("GET", "HEAD", "OPTIONS")
    assert action.read_only == is_read_only
    assert (action.idempotent or action.read_only) == (method not in ("POST", "PATCH"))
    for called, fields in ((action, {}), (http_request, {"method": method})):
        answer = await run(called, url=f"{web}/echo", **fields, **with_body)
        assert answer["status"] == 200
        if method == "HEAD":
            assert answer["body"] == ""
            continue
        asked = json.loads(answer["body"])
        assert (asked["method"], asked["body"]) == (method, '{"a":1}' if with_body else "")
        assert asked["headers"].get("idempotency-key") == (None if is_read_only else in_call)


async def test_which_methods_are_allowed(web: str, run: Any) -> None:
    assert "GET" in (await run(stdlib_http.http_delete, url=f"{web}/read_only"))["headers"]["allow"]


async def test_post_json(web: str, run: Any) -> None:
    asked = json.loads((await run(http_post, url=f"{web}/echo", json={"a": ["ü"]}))["body"])
    assert json.loads(asked["body"]) == {"a": ["ü"]}
    assert asked["headers"]["content-type"] == "application/json"
    assert "idempotency-key" not in asked["headers"]  # outside of a tool call there is none


@pytest.mark.parametrize("body", [{"a": [1]}, [1]])
async def test_a_body_that_is_not_text_is_json(web: str, run: Any, body: Any) -> None:
    for action in (http_post, stdlib_http.http_put, stdlib_http.http_patch):
        asked = json.loads((await run(action, url=f"{web}/echo", body=body))["body"])
        assert json.loads(asked["body"]) == body
        assert asked["headers"]["content-type"] == "application/json"


async def test_post_text(web: str, run: Any, in_call: str) -> None:
    headers = {"Content-Type": "text/csv", "Idempotency-key": "mine"}
    asked = json.loads((await run(http_post, url=f"{web}/echo", body="a,ü", headers=headers))["body"])
    assert asked["body"] == "a,ü"
    assert asked["headers"]["content-type"] == "text/csv"
    assert asked["headers"]["idempotency-key"] == "mine"


async def test_an_error_status_is_an_answer(web: str, run: Any) -> None:
    answer = await run(http_get, url=f"{web}/teapot")
    assert (answer["status"], answer["body"]) == (418, "short and stout")


class TestBodies:
    async def test_cut_between_characters(self, web: str, run: Any) -> None:
        answer = await run(http_get, url=f"{web}/euros")
        assert answer["body"] == "€" * (MAX_BODY_BYTES // 3)
        assert "beginning" in answer["cut"]

    @pytest.mark.parametrize(("more", "is_cut"), [(0, False), (1, True)])
    async def test_the_limit(self, web: str, run: Any, more: int, is_cut: bool) -> None:
        answer = await run(
            http_get, url=f"{web}/give", params={"type": "text/plain", "size": MAX_BODY_BYTES + more}
        )
        assert len(answer["body"]) == MAX_BODY_BYTES
        assert ("cut" in answer) == is_cut

    @pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/zip"])
    async def test_no_text(self, web: str, run: Any, kind: str) -> None:
        answer = await run(http_get, url=f"{web}/give", params={"type": kind})
        assert answer["body"] is None
        assert answer["not_shown"] == f"3 bytes of {kind}, which is not text"

    @pytest.mark.parametrize(
        "kind", ["TEXT/html", "application/ld+json; x=y", "image/svg+xml", "application/json"]
    )
    async def test_text(self, web: str, run: Any, kind: str) -> None:
        assert (await run(http_get, url=f"{web}/give", params={"type": kind}))["body"] == "xxx"

    async def test_charsets(self, web: str, run: Any) -> None:
        assert (await run(http_get, url=f"{web}/latin"))["body"] == "Grüße"
        assert (await run(http_get, url=f"{web}/codec"))["body"] == "é?"

    async def test_without_a_type(self, web: str, run: Any) -> None:
        assert (await run(http_get, url=f"{web}/untyped"))["body"] == "plain"
        assert (await run(http_get, url=f"{web}/untyped?binary=1"))["body"] is None

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_compressed(self, web: str, run: Any, encoding: str) -> None:
        answer = await run(http_get, url=f"{web}/packed", params={"encoding": encoding})
        assert answer["body"] == "a" * MAX_BODY_BYTES
        assert "cut" in answer

    async def test_compressed_otherwise(self, web: str, run: Any) -> None:
        answer = await run(http_get, url=f"{web}/packed?encoding=br")
        assert answer["body"] is None

    async def test_badly_compressed(self, web: str, told: Any) -> None:
        assert "broken gzip body" in await told(ActionFailed, http_get, url=f"{web}/broken")


class TestRedirects:
    async def test_followed(self, web: str, run: Any) -> None:
        answer = await run(http_get, url=f"{web}/to?url=/echo", headers={"X-Key": "secret"})
        assert answer["url"] == f"{web}/echo"
        assert json.loads(answer["body"])["headers"]["x-key"] == "secret"

    async def test_the_body_goes_along(self, web: str, run: Any) -> None:
        asked = await run(http_post, url=f"{web}/to?status=307&url=/echo", json=[1])
        assert json.loads(asked["body"])["body"] == "[1]"
        got = await run(http_post, url=f"{web}/to?status=303&url=/echo", json=[1])
        assert json.loads(got["body"])["method"] == "GET"

    async def test_another_origin_gets_no_headers(self, web: str, run: Any, in_call: str) -> None:
        async with QuickUvicorn(app()) as other:
            answer = await run(
                http_post,
                url=f"{web}/to?status=308&url={other.url}/echo",
                headers={"X-Key": "secret", "Authorization": "Bearer s", "Content-Type": "text/csv"},
                body="a,b",
            )
        asked = json.loads(answer["body"])
        assert asked["body"] == "a,b"
        assert asked["headers"]["content-type"] == "text/csv"
        assert not {"x-key", "authorization", "idempotency-key"} & asked["headers"].keys()

    async def test_without_end(self, web: str, told: Any) -> None:
        assert f"{MAX_REDIRECTS} times" in await told(ActionFailed, http_get, url=f"{web}/around")

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://"])
    async def test_to_what_is_no_web_page(self, web: str, told: Any, url: str) -> None:
        assert "can't be called" in await told(ActionFailed, http_get, url=f"{web}/to?url={url}")


class TestPrivateAddresses:
    @pytest.mark.parametrize("host", ["localhost", "[::1]", "127.1", "2130706433", "0x7f000001", "10.1.2.3"])
    async def test_refused(self, told: Any, host: str) -> None:
        assert "not a public address" in await told(ActionFailed, http_get, url=f"http://{host}:1/")

    async def test_refused_though_there_is_a_server(self, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_STDLIB_HTTP_ALLOW_PRIVATE", "false")
        async with QuickUvicorn(app()) as server:
            assert "not a public address" in await told(
                ActionFailed, http_post, url=f"{server.url}/echo", json={}
            )

    async def test_a_setting_that_is_none(self, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_STDLIB_HTTP_ALLOW_PRIVATE", "perhaps")
        assert "true or false" in await told(ConfigurationError, http_get, url="http://127.0.0.1:1/")

    async def test_every_redirect_is_checked(
        self, run: Any, told: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """127.0.0.2 plays a public server; all its redirects pass the check, those to 127.0.0.1 fail it."""
        checked: list[str] = []

        def plays_public(address: str) -> bool:
            checked.append(address)
            return address == "127.0.0.2"

        monkeypatch.setattr(public_urls, "is_public", plays_public)
        async with AsyncExitStack() as stack:
            public = QuickUvicorn(app())
            public.config.host = "127.0.0.2"
            await stack.enter_async_context(public)
            private = await stack.enter_async_context(QuickUvicorn(app()))
            url = f"http://127.0.0.2:{public.port}"
            answer = await run(http_get, url=f"{url}/to?url=/echo")
            assert answer["url"] == f"{url}/echo"  # relative redirects keep the host's name
            assert json.loads(answer["body"])["headers"]["host"] == f"127.0.0.2:{public.port}"
            assert checked == ["127.0.0.2", "127.0.0.2"]
            refused = await told(ActionFailed, http_get, url=f"{url}/to?url={private.url}/echo")
            assert "127.0.0.1 is not a public address" in refused


class TestTime:
    async def test_the_given_time(self, web: str, told: Any) -> None:
        assert "within 0.2 seconds" in await told(ActionFailed, http_get, url=f"{web}/slow", timeout=0.2)

    async def test_no_longer_than_the_turn(self, web: str, told: Any) -> None:
        token = TURN.set(TurnContext(deadline=asyncio.get_running_loop().time() + 0.5))
        try:
            late = await told(ActionFailed, http_get, url=f"{web}/slow")
        finally:
            TURN.reset(token)
        (seconds,) = re.findall(r"did not answer within ([0-9.e-]+) seconds", late)
        assert float(seconds) < 0.5


class TestArguments:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "example.com",
            "file:///etc/passwd",
            "http://",
            "http:///a",
            "//example.com",
            "http://a:b/",
            "http://[::1",
        ],
    )
    async def test_no_url(self, told: Any, url: str) -> None:
        assert "can't be sent" in await told(ToolCallFault, http_get, url=url)

    @pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
    async def test_headers_that_are_not_the_agents(self, told: Any, name: str) -> None:
        assert name in await told(ToolCallFault, http_get, url="http://a.test/", headers={name: "1"})

    async def test_headers_that_are_none(self, web: str, told: Any) -> None:
        assert "can't be sent" in await told(ToolCallFault, http_get, url=web, headers={"X": "ü"})
        assert "can't be called" in await told(ActionFailed, http_get, url=web, headers={"X": "a\r\nY: b"})

    async def test_two_bodies(self, told: Any) -> None:
        assert "not both" in await told(ToolCallFault, http_post, url="http://a.test/", json={}, body="")

    async def test_text_that_has_no_bytes(self, told: Any) -> None:
        for body in ({"body": "\ud800"}, {"json": {"a": "\ud800"}}):
            assert "can't be sent" in await told(ToolCallFault, http_post, url="http://a.test/", **body)

    async def test_wrong_arguments(self, told: Any) -> None:
        assert (
            "expected"
            in (await told(ToolCallFault, http_request, method="BREW", url="http://a.test/")).lower()
        )

    def test_declared(self) -> None:
        declared = http_post.to_tool_dict("completions")["function"]["parameters"]
        assert declared["properties"].keys() == {"url", "headers", "params", "timeout", "json", "body"}
        assert all("description" in prop for prop in declared["properties"].values())


async def test_nobody_there(private_allowed: None, told: Any, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    assert "can't be called" in await told(ActionFailed, http_get, url=url)


def test_one_event_loop_after_another(private_allowed: None, run: Any) -> None:
    async def once() -> int:
        async with QuickUvicorn(app()) as server:
            return int((await run(http_get, url=f"{server.url}/echo"))["status"])

    assert [asyncio.run(once()) for _ in range(2)] == [200, 200]
