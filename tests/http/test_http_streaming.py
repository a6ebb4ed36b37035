"""Streams: `POST /message` with `stream: true`, and `GET /task/stream`."""

import asyncio
import json

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer, eventually
from support.processes.timelines import ONE_AGENT

from mail.auth.keys import Caller
from mail.http.account import SMALL_BYTES
from mail.testing.agents import build_swarm, complete


async def test_order_with_one_agent(server: HTTPServer) -> None:
    frames = await server.stream(task_id="t", body="hi")
    assert [frame.event for frame in frames] == ONE_AGENT
    assert [frame.id for frame in frames] == ["1", "2", "3", "4", "5"]
    assert frames[-1].data.keys() == {"timestamp", "task_id", "response"}
    assert frames[-1].data["response"] == "you said: hi"
    assert all(frame.data["task_id"] == "t" for frame in frames)


async def test_headers_and_bytes(server: HTTPServer) -> None:
    response = await server.post(stream=True, task_id="t")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-task-id"] == "t"
    first, *_ = response.text.split("\r\n\r\n")
    number, event, data = first.split("\r\n")
    assert number == "id: 1"
    assert event == "event: new_message"
    assert json.loads(data.removeprefix("data: "))["task_id"] == "t"
    assert response.text.endswith("\r\n\r\n")


async def test_a_stream_of_a_resumed_task_begins_where_it_was_resumed(server: HTTPServer) -> None:
    await server.stream(task_id="t")
    frames = await server.stream(task_id="t", resume_from="user_response")
    assert [frame.id for frame in frames] == ["6", "7", "8", "9", "10"]
    assert [frame.event for frame in frames] == ONE_AGENT


async def test_pings_in_silence_and_a_break_at_once() -> None:
    gate = asyncio.Event()
    async with HTTPServer(waiting_swarm(gate), heartbeat=0.05) as server:
        body = {"body": "hi", "stream": True, "task_id": "t"}
        async with server.frames("POST", "/message", json=body) as frames:
            assert (await anext(frames)).event == "new_message"
            for _ in range(3):
                ping = await anext(frames)
                assert (ping.event, ping.id) == ("ping", None)
                assert ping.data.keys() == {"timestamp", "task_id"}
            gate.set()
            rest = [frame.event async for frame in frames if frame.event != "ping"]
    assert rest == ONE_AGENT[1:]


async def test_pings_while_an_event_waits_for_room() -> None:
    """Other callers hold all memory that pieces of answers may take; a client sees that the stream is alive."""
    async with HTTPServer(
        build_swarm({"supervisor": lambda _: [complete("done")]}), heartbeat=0.05
    ) as server:
        await server.ask(body="x" * 2 * SMALL_BYTES, task_id="t")
        account, eve = server.service.account, Caller("user", "eve")
        account.count(eve, account.memory, 1, 0)
        async with server.frames("GET", "/task/stream", params={"task_id": "t", "after": 0}) as frames:
            assert [(await anext(frames)).event for _ in range(3)] == ["ping"] * 3
            account.count(eve, -account.memory, -1, 0)
            assert [frame.event async for frame in frames if frame.event != "ping"] == ONE_AGENT


async def test_bad_requests_for_streams_are_answered_as_json(server: HTTPServer) -> None:
    response = await server.post(stream=True, entrypoint="nobody")
    assert response.status_code == 400
    assert response.json().keys() == {"detail"}


async def test_a_client_that_goes_away_cancels_nothing() -> None:
    gate = asyncio.Event()
    async with HTTPServer(waiting_swarm(gate)) as server:

        async def is_there() -> bool:
            return (await server.client.get("/task", params={"task_id": "u"})).status_code == 200

        body = {"body": "hi", "stream": True, "task_id": "t"}
        async with server.frames("POST", "/message", json=body) as frames:
            await anext(frames)
        waiting = asyncio.create_task(server.post(body="hi", task_id="u"))
        await eventually(is_there)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        for task_id in "tu":
            answer = [frame async for frame in _watch(server, task_id)]
            assert [frame.event for frame in answer] == ONE_AGENT


# ------------------------------------------------------------------------------------------- /task/stream


async def _watch(server: HTTPServer, task_id: str, after: int | None = None):
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    url = "/task/stream"
    async with server.frames("GET", url, params={"task_id": task_id}, headers=headers) as frames:
        async for frame in frames:
            yield frame


async def test_watching_a_task_that_has_stopped(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    await server.ask(task_id="t")
    frames = [frame async for frame in _watch(server, "t")]
    assert [frame.event for frame in frames] == ONE_AGENT * 2
    assert [frame.id for frame in frames] == [str(n + 1) for n in range(10)]


@pytest.mark.parametrize("seen", range(5))
async def test_reconnecting_gives_every_event_once(server: HTTPServer, seen: int) -> None:
    await server.ask(task_id="t")
    frames = [frame async for frame in _watch(server, "t", after=seen)]
    assert [frame.id for frame in frames] == [str(n) for n in range(seen + 1, 6)]
    query = {"task_id": "t", "last_event_id": seen}
    async with server.frames("GET", "/task/stream", params=query) as again:
        assert [frame.id async for frame in again] == [frame.id for frame in frames]


async def test_the_header_wins_over_the_query(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    query = {"task_id": "t", "last_event_id": 1}
    async with server.frames("GET", "/task/stream", params=query, headers={"Last-Event-ID": "3"}) as frames:
        assert [frame.id async for frame in frames] == ["4", "5"]


async def test_nothing_more_to_come_is_204(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    response = await server.client.get("/task/stream?task_id=t", headers={"Last-Event-ID": "5"})
    assert (response.status_code, response.content) == (204, b"")


async def test_joining_a_running_task() -> None:
    gate = asyncio.Event()
    async with HTTPServer(waiting_swarm(gate), heartbeat=0.05) as server:
        await server.post(task_id="t", headers={"Prefer": "respond-async"})
        seen = []
        async for frame in _watch(server, "t", after=1):
            seen.append(frame.event)
            gate.set()
        assert seen[0] == "ping", "a stream whose start was seen waits, also when it is at the end"
        assert [event for event in seen if event != "ping"] == ONE_AGENT[1:]


@pytest.mark.parametrize("last", ["6", "-1", "x", "1.5", str(2**63), "9" * 400])
async def test_a_last_event_that_is_none(server: HTTPServer, last: str) -> None:
    await server.ask(task_id="t")
    by_header = await server.client.get("/task/stream?task_id=t", headers={"Last-Event-ID": last})
    by_query = await server.client.get("/task/stream", params={"task_id": "t", "last_event_id": last})
    assert (by_header.status_code, by_query.status_code) == (400, 400)


async def test_watching_an_unknown_task(server: HTTPServer) -> None:
    assert (await server.client.get("/task/stream?task_id=none")).status_code == 404
    assert (await server.client.get("/task/stream")).status_code == 400


# ------------------------------------------------------------------------------------------------ shutdown


async def has_task(server: HTTPServer, task_id: str) -> bool:
    return task_id in (await server.client.get("/tasks")).json()


async def test_shutdown_ends_streams_cleanly_and_waits_with_202() -> None:
    async with HTTPServer(waiting_swarm(asyncio.Event())) as server:
        body = {"body": "hi", "stream": True, "task_id": "t"}
        waiting = asyncio.create_task(server.post(task_id="u"))
        async with server.frames("POST", "/message", json=body) as frames:
            await anext(frames)
            await eventually(lambda: has_task(server, "u"))
            stopping = asyncio.create_task(server.uvicorn.stop())
            assert [frame async for frame in frames] == [], "no broken chunk, nothing more"
        answer = await waiting
        assert answer.status_code == 202
        assert answer.json()["task_id"] == "u"
        async with asyncio.timeout(60):
            await stopping
