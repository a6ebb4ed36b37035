"""What the client sends, and what it makes of answers: against a server that records requests and gives scripted
answers.
"""

import asyncio
import gzip
import json
import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import aiohttp
import httpx
import httpx2
import pytest
from client_stage import CONFIG, RESPONSE, CutProxy, Recorder, answered
from openai.types.responses import Response as OpenAIResponse
from starlette.responses import JSONResponse, RedirectResponse, Response
from support.processes.http_server import HTTPServer

from mail.client import (
    BadAnswer,
    ConnectionLost,
    InvalidConnection,
    InvalidRequest,
    MAILClient,
    MAILClientError,
    NotJSON,
    RequestTimedOut,
    ServerUnreachable,
    TooManyRequests,
)
from mail.client.connection import read_server
from mail.config import ClientConfig
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.errors import MAILError
from mail.testing.agents import build_swarm, complete

REQUEST = {
    "task_id": "7c2f3d52-6a0f-4a3b-9f0e-5d1c7b8a9e10",
    "request_id": "0c7e2a44-1d2b-4c3d-8e4f-5a6b7c8d9e0f",
    "sender": {"address_type": "agent", "address": "supervisor@a"},
    "recipient": {"address_type": "agent", "address": "supervisor@b"},
    "subject": "Hello",
    "body": "please",
}
WRAPPED = {
    "message_id": "5b1f7a1e-2c3d-4e5f-8a9b-0c1d2e3f4a5b",
    "source_swarm": "a",
    "target_swarm": "b",
    "timestamp": "2026-01-01T00:00:00+00:00",
    "task_owner": "user:ann@a",
    "task_contributors": ["user:ann@a"],
    "msg_type": "request",
    "payload": REQUEST,
    "auth_token": "secret",
    "metadata": {"n": 1},
}


async def sent(method: str, *args: Any, **kwargs: Any) -> tuple[str, str, Any]:
    """What a call of one of the client's methods sends."""
    recorder = Recorder()
    async with recorder.serve() as url, MAILClient(url, api_key="key", config=CONFIG) as client:
        assert await getattr(client, method)(*args, **kwargs) == {"status": "ok"}
    assert recorder.requests[-1].headers["authorization"] == "Bearer key"
    assert recorder.requests[-1].headers.get("content-type") in (None, "application/json")
    return recorder.last


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("ping", "/"),
        ("get_status", "/status"),
        ("get_whoami", "/whoami"),
        ("get_live", "/live"),
        ("get_health", "/health"),
        ("get_tasks", "/tasks"),
        ("get_threads", "/threads"),
        ("get_swarm", "/swarm"),
        ("get_swarms", "/swarms"),
        ("dump_swarm", "/swarms/dump"),
    ],
)
async def test_gets(method: str, path: str) -> None:
    assert await sent(method) == ("GET", path, None)


@pytest.mark.parametrize(
    ("method", "arguments", "options", "request_"),
    [
        ("get_task", ["t"], {"at": 1}, ("GET", "/task?task_id=t&at=1", {"task_id": "t"})),
        (
            "fork_task",
            ["t", 1],
            {"run": True},
            ("POST", "/task/fork", {"task_id": "t", "at": 1, "run": True}),
        ),
        (
            "cancel_task",
            ["t", "no need"],
            {},
            ("POST", "/task/cancel", {"task_id": "t", "reason": "no need"}),
        ),
        ("update_health", ["fine"], {}, ("POST", "/health", {"status": "fine"})),
        ("load_swarm_from_json", ["{}"], {}, ("POST", "/swarms/load", {"json": "{}"})),
    ],
)
async def test_what_is_sent(method: str, arguments: Any, options: Any, request_: Any) -> None:
    assert await sent(method, *arguments, **options) == request_


async def test_a_wait_and_a_generation_are_headers() -> None:
    async with answered() as (client, recorder):
        await client.cancel_task("t", wait=1)
        assert recorder.requests[-1].headers["prefer"] == "wait=1"
        await client.fork_task("t", idempotency_key="k")
        assert recorder.requests[-1].headers["idempotency-key"] == "k"


async def test_what_threads_are_asked_for() -> None:
    choice = {"task_id": "t", "bead": "a b", "pending": True, "overdue": False, "ack_within": 0.5, "limit": 3}
    method, path, body = await sent("get_threads", cursor="c", **choice)
    assert (method, body) == ("GET", None)
    url, _, query = path.partition("?")
    assert url == "/threads"
    assert sorted(query.split("&")) == [
        "ack_within=0.5", "bead=a+b", "cursor=c", "limit=3", "pending=true", "task_id=t",
    ]  # fmt: skip


async def test_a_thread_may_have_any_id() -> None:
    _, path, _ = await sent("get_thread", "feat/login?", task_id="t")
    assert path == "/threads/feat/login%3F?task_id=t"


async def test_get_task_names_the_task_twice() -> None:
    assert await sent("get_task", "a b&c") == ("GET", "/task?task_id=a+b%26c", {"task_id": "a b&c"})


async def test_messages() -> None:
    *_, body = await sent("post_message", "hi")
    assert len(body.pop("task_id")) == 36
    assert body == {"body": "hi", "msg_type": "request", "show_events": False}
    *_, body = await sent(
        "post_message",
        "hi",
        entrypoint="desk",
        show_events=True,
        subject="S",
        msg_type="interrupt",
        task_id="t",
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result="[]",
        timeout=3,
        max_steps=2,
    )
    assert body == {
        "body": "hi",
        "entrypoint": "desk",
        "show_events": True,
        "subject": "S",
        "msg_type": "interrupt",
        "task_id": "t",
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": "[]", "timeout": 3, "max_steps": 2},
    }
    *_, body = await sent("post_message", "hi", resume_from="user_response")
    assert "task_id" not in body


async def test_swarms() -> None:
    assert await sent("register_swarm", "b", "http://b") == (
        "POST",
        "/swarms",
        {"name": "b", "base_url": "http://b"},
    )
    everything = {
        "name": "b",
        "base_url": "http://b",
        "auth_token": "${B}",
        "metadata": {"n": 1},
        "volatile": False,
    }
    assert await sent("register_swarm", *everything.values()) == ("POST", "/swarms", everything)


@pytest.mark.parametrize("shape", [dict, MAILInterswarmMessage.model_validate], ids=["dict", "model"])
async def test_mail_between_swarms(shape: Any) -> None:
    for method, path in (
        ("post_interswarm_message", "/interswarm/forward"),
        ("post_interswarm_response", "/interswarm/back"),
    ):
        verb, at, body = await sent(method, shape(WRAPPED))
        assert (verb, at) == ("POST", path)
        MAILInterswarmMessage.model_validate(body["message"])
        assert body["message"].keys() == WRAPPED.keys()
        assert _given(body["message"]) == WRAPPED


def _given(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the empty `routing_info` that a model writes."""
    payload = {name: value for name, value in message["payload"].items() if value != {}}
    return {**message, "payload": payload}


async def test_all_ten_fields_of_mail_between_swarms_are_sent() -> None:
    bare = {name: value for name, value in WRAPPED.items() if name not in ("auth_token", "metadata")}
    for message in (bare, MAILInterswarmMessage.model_validate(bare)):
        *_, body = await sent("post_interswarm_message", message)
        assert (body["message"]["auth_token"], body["message"]["metadata"]) == ("", {})
    assert "metadata" not in bare, "what the caller gave is untouched"


async def test_messages_to_other_swarms() -> None:
    verb, at, body = await sent("send_interswarm_message", "hi", ["desk@b"])
    assert (verb, at) == ("POST", "/interswarm/message")
    assert UUID(body.pop("task_id")), "a new task is named here"
    assert body == {"user_token": "key", "body": "hi", "targets": ["desk@b"]}
    options = {
        "subject": "S",
        "msg_type": "broadcast",
        "task_id": "t",
        "routing_info": {"n": 1},
        "stream": True,
        "ignore_stream_pings": False,
    }
    *_, body = await sent("send_interswarm_message", "hi", ("x@b", "y@c"), "token", **options)
    assert body == {"user_token": "token", "body": "hi", "targets": ["x@b", "y@c"], **options}


async def test_messages_to_other_swarms_that_count_once_or_only_if() -> None:
    async with answered() as (client, recorder):
        await client.send_interswarm_message("hi", ["desk@b"], idempotency_key="k")
        assert recorder.requests[-1].headers["idempotency-key"] == "k"
        assert "if-match" not in recorder.requests[-1].headers
        assert "task_id" not in recorder.bodies[-1], "the server names it: the same each time"
        await client.send_interswarm_message("hi", ["desk@b"], task_id="t", generation=2)
        assert recorder.requests[-1].headers["if-match"] == '"2"'
        assert "idempotency-key" not in recorder.requests[-1].headers


# --------------------------------------------------------------------------------------- OpenAI's Responses


async def ask_for_response(told: Any = RESPONSE, **options: Any) -> tuple[Any, Any]:
    async with answered(JSONResponse(told)) as (client, recorder):
        answer = await client.debug_post_responses([{"role": "user", "content": "hi"}], [], **options)
    assert recorder.last[:2] == ("POST", "/responses")
    return answer, recorder.bodies[-1]


async def test_responses_with_openai() -> None:
    answer, body = await ask_for_response()
    assert body == {"input": [{"role": "user", "content": "hi"}], "tools": []}
    assert isinstance(answer, OpenAIResponse)
    assert answer.output_text == "hello"


async def test_responses_of_mail_1_3_6() -> None:
    """Its servers answer with JSON text that holds the response."""
    answer, _ = await ask_for_response(json.dumps(RESPONSE))
    assert isinstance(answer, OpenAIResponse)
    assert answer.output_text == "hello"


async def test_responses_without_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai.types.responses", None)
    answer, _ = await ask_for_response()
    assert isinstance(answer, SimpleNamespace)
    assert answer.output[0].content[0].text == "hello"


async def test_options_of_responses() -> None:
    options = {
        "instructions": "Be brief.",
        "previous_response_id": "resp_0",
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
    }
    _, body = await ask_for_response(**options, metadata={"n": 1})
    assert body["kwargs"] == {"metadata": {"n": 1}}
    assert {name: body[name] for name in options} == options


async def test_a_stream_of_a_response_is_refused_before_anything_is_sent() -> None:
    async with answered() as (client, recorder):
        with pytest.raises(InvalidRequest, match="openai package"):
            await client.debug_post_responses("hi", [], stream=True)
    assert recorder.requests == []


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("post_message", {"message": "\ud800"}),
        ("post_message", {"message": "hi", "max_steps": object()}),
        ("post_message_stream", {"message": "\ud800"}),
        ("watch_task", {"task_id": "\ud800"}),
        ("get_task", {"task_id": "\ud800"}),
        ("post_interswarm_message", {"message": {"payload": object()}}),
    ],
)
async def test_what_no_request_can_hold(method: str, arguments: dict[str, Any]) -> None:
    async with answered() as (client, recorder):
        with pytest.raises(InvalidRequest) as refused:
            await getattr(client, method)(**arguments)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value.__cause__, ValueError)
    assert recorder.requests == []


async def failure(answer: Response) -> MAILClientError:
    async with answered(answer) as (client, _):
        with pytest.raises(MAILClientError) as failed:
            await client.get_status()
    assert isinstance(failed.value, RuntimeError)
    assert isinstance(failed.value, MAILError)
    return failed.value


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (JSONResponse({"detail": "say who"}, status_code=401), "say who"),
        (JSONResponse({"detail": [{"loc": ["body"]}]}, status_code=422), '[{"loc":["body"]}]'),
        (JSONResponse({"message": "Service Unavailable"}, status_code=503), "Service Unavailable"),
        (JSONResponse(["odd"], status_code=500), '["odd"]'),
        (
            Response('{"detail": "x"}', status_code=400, media_type="application/problem+json; charset=x"),
            "x",
        ),
    ],
)
async def test_refusals(answer: Response, detail: str) -> None:
    error = await failure(answer)
    assert type(error) is BadAnswer
    assert (error.status, error.detail) == (answer.status_code, detail)
    assert str(error) == f"GET /status: {answer.status_code} {detail}"


@pytest.mark.parametrize("status", [200, 502])
async def test_what_is_no_json(status: int) -> None:
    error = await failure(Response("<p>hello", status_code=status, media_type="text/html"))
    assert isinstance(error, NotJSON)
    assert isinstance(error, ValueError)
    assert (error.status, error.content_type) == (status, "text/html; charset=utf-8")
    assert error.body == "<p>hello"
    assert "text/html" in str(error)
    assert "<p>hello" in str(error)


async def test_json_in_name_only() -> None:
    error = await failure(Response("x" * 1000, media_type="application/json"))
    assert isinstance(error, NotJSON)
    assert (len(error.body), len(str(error)) < 600) == (1000, True)
    assert isinstance(error.__cause__, ValueError)


async def test_an_empty_answer() -> None:
    assert isinstance(await failure(Response(status_code=204)), NotJSON)


async def test_redirects_are_told_and_not_followed() -> None:
    """To follow one would turn a POST into a GET, or send the key to somebody else."""
    error = await failure(RedirectResponse("https://example.com/status", status_code=308))
    assert isinstance(error, BadAnswer)
    assert "https://example.com/status" in error.detail


SESSIONS = {
    "own": lambda: None,
    "httpx2": httpx2.AsyncClient,
    "httpx": httpx.AsyncClient,
    "aiohttp": aiohttp.ClientSession,
}
LIBRARIES = {"own": httpx2, "httpx2": httpx2, "httpx": httpx, "aiohttp": httpx2}


async def close(session: Any) -> None:
    if session is not None:
        await (session.close() if isinstance(session, aiohttp.ClientSession) else session.aclose())


@pytest.mark.parametrize("kind", SESSIONS)
async def test_errors_of_transport(kind: str, server: HTTPServer) -> None:
    session = SESSIONS[kind]()
    client = MAILClient("http://127.0.0.1:1", session=session, config=CONFIG)
    with pytest.raises(RuntimeError) as refused:
        await client.ping()
    assert isinstance(refused.value, ServerUnreachable)
    expected = aiohttp.ClientConnectorError if kind == "aiohttp" else LIBRARIES[kind].ConnectError
    assert isinstance(refused.value.__cause__, expected)
    async with CutProxy(server.port, [20] * 3) as proxy:  # aiohttp asks again by itself
        client = MAILClient(proxy.url, session=session, config=CONFIG)
        with pytest.raises(ConnectionLost) as lost:
            await client.ping()
        expected = aiohttp.ClientError if kind == "aiohttp" else LIBRARIES[kind].TransportError
        assert isinstance(lost.value.__cause__, expected)
        await client.aclose()
    await close(session)


# ----------------------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("kind", SESSIONS)
async def test_a_given_session_is_used_and_not_closed(kind: str, server: HTTPServer) -> None:
    session = SESSIONS[kind]()
    async with MAILClient(server.uvicorn.url, server.keys["user"], session, CONFIG) as client:
        assert (await client.post_message("é", task_id="t"))["response"] == "you said: é"
        events = [event async for event in await client.post_message_stream("hi", task_id="t")]
        assert [event.id for event in events] == ["6", "7", "8", "9", "10"]
        assert (await client.get_task("t"))["completed"] is True
    assert kind == "own" or not (session.closed if kind == "aiohttp" else session.is_closed)
    assert (await client.ping())["name"] == "mail", "after aclose() it opens new connections"
    await client.aclose()
    await close(session)


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("seed", range(5))
async def test_cuts_under_aiohttp(seed: int, server: HTTPServer) -> None:
    cuts = [(seed * 397 + n * 811) % 2500 for n in range(4)]
    async with (
        CutProxy(server.port, cuts, seed=seed) as proxy,
        aiohttp.ClientSession() as session,
        MAILClient(proxy.url, server.keys["user"], session, CONFIG) as client,
    ):
        events = [event async for event in await client.post_message_stream("hi")]
    assert [event.id for event in events] == ["1", "2", "3", "4", "5"]


async def test_headers_of_sessions() -> None:
    recorder = Recorder()
    async with recorder.serve() as url, aiohttp.ClientSession(headers={"User-Agent": "mine"}) as session:
        await MAILClient(url, session=session, config=CONFIG).ping()
    for library in (httpx2, httpx):
        async with recorder.serve() as url, library.AsyncClient(headers={"User-Agent": "mine"}) as client:
            await MAILClient(url, session=client, config=CONFIG).ping()
    assert [request.headers["user-agent"] for request in recorder.requests] == ["mine"] * 3


async def test_compressed_answers_under_aiohttp() -> None:
    body = gzip.compress(b'{"status": "packed"}')
    answer = Response(body, media_type="application/json", headers={"Content-Encoding": "gzip"})
    async with Recorder(lambda _: answer).serve() as url, aiohttp.ClientSession() as session:
        assert await MAILClient(url, session=session, config=CONFIG).ping() == {"status": "packed"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: httpx2.AsyncClient(timeout=0.1),
        lambda: httpx.AsyncClient(timeout=0.1),
        lambda: aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.1)),
    ],
    ids=["httpx2", "httpx", "aiohttp"],
)
async def test_time_limits_of_a_session_hold(make: Any) -> None:
    session = make()
    async with HTTPServer(_slow(5)) as server:
        client = MAILClient(server.uvicorn.url, server.keys["user"], session, CONFIG)
        with pytest.raises(RequestTimedOut):
            await client.post_message("hi")
    await close(session)


@pytest.mark.parametrize("kind", SESSIONS)
async def test_the_default_limits_of_a_session_do_not(kind: str) -> None:
    """5 seconds of httpx2 and httpx, and 5 minutes of aiohttp are less than agents take; the configuration decides."""
    session = SESSIONS[kind]()
    async with HTTPServer(_slow(5)) as server:
        config = ClientConfig(timeout=0.2, verbose=False)
        client = MAILClient(server.uvicorn.url, server.keys["user"], session, config)
        with pytest.raises(RequestTimedOut):
            await client.post_message("hi")
        _, read, *_ = client._timeout(client._session(), is_stream=True)
        assert read == MAILClient.silence_seconds
        await client.aclose()
    await close(session)


def _slow(seconds: float) -> Any:
    async def supervise(_view):
        await asyncio.sleep(seconds)
        return [complete("late")]

    return build_swarm({"supervisor": supervise})


def test_other_sessions_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"AsyncClient of httpx2 or httpx, or an aiohttp\.ClientSession, not object"
    ):
        MAILClient("http://localhost:8000", session=object(), config=CONFIG)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- URLs, keys, headers


@pytest.mark.parametrize(
    ("text", "url", "token"),
    [
        ("http://localhost:8000", "http://localhost:8000", None),
        ("http://localhost:8000/", "http://localhost:8000", None),
        ("https://example.com/prod/", "https://example.com/prod", None),
        ("http://[::1]:8000", "http://[::1]:8000", None),
        ("swarm://connect?server=example.com", "https://example.com", None),
        ("swarm://connect?server=example.com&token=se%2Bcret", "https://example.com", "se+cret"),
        ("swarm://invite?server=example.com%3A8443&token=a", "https://example.com:8443", "a"),
    ],
)
def test_urls(text: str, url: str, token: str | None) -> None:
    assert read_server(text) == (url, token)
    client = MAILClient(text, config=CONFIG)
    assert (client.base_url, client.api_key) == (url, token)
    assert MAILClient(text, "other", config=CONFIG).api_key == "other"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "localhost:8000",
        "ftp://example.com",
        "http://",
        "http://[::1",
        "http://host:99999",
        "http://host/?key=secret",
        "http://host/#secret",
        "swarm://connect",
        "swarm://other?server=example.com",
        "swarm://connect?server=a&server=b",
        "swarm://connect?server=a&token=secret&token=other",
        "swarm://connect?server=user@example.com&token=secret",
        "swarm://connect?server=example.com/path",
    ],
)
def test_what_is_no_url_of_a_server(text: str) -> None:
    with pytest.raises(InvalidConnection) as refused:
        MAILClient(text, config=CONFIG)
    assert isinstance(refused.value, ValueError)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["secret\n", "sec ret", "sécret"])
async def test_what_is_no_key(key: str) -> None:
    async with MAILClient("http://127.0.0.1:1", key, config=CONFIG) as client:
        with pytest.raises(InvalidConnection) as refused:
            await client.ping()
    assert "cret" not in str(refused.value)


async def test_no_key_no_header() -> None:
    recorder = Recorder()
    async with recorder.serve() as url:
        for key in (None, ""):
            async with MAILClient(url, key, config=CONFIG) as client:
                await client.ping()
    assert all("authorization" not in request.headers for request in recorder.requests)


async def test_headers_of_ones_own() -> None:
    class Traced(MAILClient):
        def _build_headers(self) -> dict[str, str]:
            return {**super()._build_headers(), "X-Trace": "42"}

    recorder = Recorder()
    async with recorder.serve() as url, Traced(url, "key", config=CONFIG) as client:
        await client.ping()
        with pytest.raises(BadAnswer):
            await client.post_message_stream("hi")
    for request in recorder.requests:
        assert (request.headers["x-trace"], request.headers["authorization"]) == ("42", "Bearer key")


# -------------------------------------------------------------------------------- configuration, log, imports


def test_the_configuration_is_that_of_mail_toml(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[client]\ntimeout = 7.5\nverbose = true\n")
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(file))
    client = MAILClient("http://localhost:8000")
    assert client.config == ClientConfig(timeout=7.5, verbose=True)


@pytest.mark.parametrize("verbose", [False, True])
async def test_the_log(verbose: bool, caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig(timeout=20.0, verbose=verbose)
    async with Recorder().serve() as url, MAILClient(url, "secret", config=config) as client:
        with caplog.at_level(logging.DEBUG, "mail.client"):
            await client.get_task("t")
    [record] = [each for each in caplog.records if each.name == "mail.client"]
    assert record.levelno == (logging.INFO if verbose else logging.DEBUG)
    assert record.getMessage().startswith("GET /task: 200 in ")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("heavy", ["aiohttp", "fastapi", "openai", "sse_starlette", "starlette", "uvicorn"])
def test_the_import_is_light(heavy: str) -> None:
    assert heavy not in _loaded()


_modules: set[str] = set()


def _loaded() -> set[str]:
    if not _modules:
        code = "import sys, mail.client; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        _modules.update(done.stdout.split())
    return _modules


class TestTooManyRequests:
    """429 has changed nothing on the server, so the request can be sent again."""

    @staticmethod
    def busy(times: int, retry_after: str | None) -> Recorder:
        recorder = Recorder()

        def answer(_request: Any) -> Response:
            if len(recorder.requests) > times:
                return JSONResponse({"response": "hello", "events": None})
            headers = {} if retry_after is None else {"Retry-After": retry_after}
            return JSONResponse({"detail": "not so fast"}, status_code=429, headers=headers)

        recorder.answer = answer
        return recorder

    @pytest.mark.parametrize("retry_after", ["0", None])
    async def test_it_asks_again(self, retry_after: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mail.client.connection.RETRY_SECONDS", (0.0, 0.0, 0.0))
        recorder = self.busy(3, retry_after)
        async with recorder.serve() as url, MAILClient(url, config=CONFIG) as client:
            assert (await client.post_message("hi"))["response"] == "hello"
        assert len(recorder.requests) == 4
        assert recorder.bodies[0] == recorder.bodies[-1]

    async def test_it_gives_up_in_the_end(self) -> None:
        recorder = self.busy(99, "0")
        async with recorder.serve() as url, MAILClient(url, config=CONFIG) as client:
            with pytest.raises(TooManyRequests, match=r"429 not so fast \(retry after 0 s\)") as refusal:
                await client.post_message("hi")
        assert (refusal.value.status, refusal.value.retry_after) == (429, 0.0)
        assert len(recorder.requests) == 4

    async def test_it_does_not_wait_for_long(self) -> None:
        recorder = self.busy(99, "3600")
        async with recorder.serve() as url, MAILClient(url, config=CONFIG) as client:
            with pytest.raises(TooManyRequests) as refusal:
                await client.post_message_stream("hi")
        assert refusal.value.retry_after == 3600
        assert len(recorder.requests) == 1

    async def test_no_longer_than_its_time(self) -> None:
        recorder = self.busy(99, "20")
        config = ClientConfig(timeout=0.2, verbose=False)
        async with recorder.serve() as url, MAILClient(url, config=config) as client:
            with pytest.raises(RequestTimedOut):
                await client.post_message("hi")
