"""Live events: what agents do while they do it, for those who ask for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.processes.http_server import Frame, HTTPServer

from mail.core.task.activity import model_call
from mail.core.task.swarm import SwarmCore
from mail.core.task.usage import Usage
from mail.testing.agents import build_agent, build_swarm, call, complete

LIVE = {"body": "hi", "stream": True, "live": True, "task_id": "t"}


class Stage:
    """A swarm whose model and action wait until the test lets them go on."""

    def __init__(self) -> None:
        self.model, self.action = asyncio.Event(), asyncio.Event()
        self.turns = 0
        self.wanted = list[bool]()

    def swarm(self) -> SwarmCore:
        async def supervise(view):
            with model_call("house/model") as reply:
                self.wanted.append(reply.wants_deltas)
                reply.retry("HTTP 500", 2.5)
                reply.delta("text", "Let me ")
                reply.delta("text", "look.")
                await self.model.wait()
                reply.report(Usage(calls=1, input_tokens=20, output_tokens=4))
            return [complete("done")] if view.mail.sender_type == "system" else [call("web_search", q="x")]

        async def web_search(_args):
            await self.action.wait()
            return "found"

        agent = build_agent(supervise, supervises=True, actions=["web_search"])
        return build_swarm({"supervisor": agent}, actions={"web_search": web_search})


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def server(stage: Stage) -> AsyncIterator[HTTPServer]:
    async with HTTPServer(stage.swarm()) as server:
        yield server
        stage.model.set()
        stage.action.set()


async def until(frames: AsyncIterator[Frame], event: str) -> Frame:
    async for frame in frames:
        if frame.event == event:
            return frame
    raise AssertionError(f"there was no {event}")


async def test_an_action_is_seen_to_begin_and_to_end(stage: Stage, server: HTTPServer) -> None:
    async with server.frames("POST", "/message", json=LIVE) as frames:
        turn = await until(frames, "turn_started")
        assert turn.id is None
        assert turn.data["extra_data"] == {"agent": "supervisor"}
        begun = await until(frames, "model_call_started")
        assert begun.data["extra_data"] == {"agent": "supervisor", "model": "house/model", "call": 1}
        retry = (await until(frames, "model_call_retried")).data["extra_data"]
        assert (retry["attempt"], retry["reason"], retry["retry_in"]) == (2, "HTTP 500", 2.5)
        stage.model.set()
        ended = (await until(frames, "model_call_ended")).data["extra_data"]
        assert ended["usage"]["output_tokens"] == 4
        action = await until(frames, "action_started")  # it waits, so the turn has no commit
        assert action.data["extra_data"]["tool_name"] == "web_search"
        stage.action.set()
        rest = {frame.event: frame.data async for frame in _first_of_each(frames)}
    took = rest["action_ended"]["extra_data"]
    assert took["tool_call_id"] == action.data["extra_data"]["tool_call_id"]
    assert rest["turn_ended"]["extra_data"]["outcome"] == "committed"
    timing = rest["tool_call"]["extra_data"]["timing"]
    assert timing.keys() == {"began", "seconds", "model_calls"}
    (call,) = timing["model_calls"]
    assert 0.0 <= call.pop("after") <= timing["seconds"]
    assert call == {"model": "house/model", "seconds": ended["seconds"], "attempts": 2}
    assert timing["seconds"] >= ended["seconds"]
    assert rest["action_call"]["extra_data"]["after"] >= ended["seconds"]
    assert rest["action_complete"]["extra_data"] == {"agent": "supervisor", "seconds": took["seconds"]}
    assert rest["task_complete"]["response"] == "done"


async def _first_of_each(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    seen: set[str] = set()
    async for frame in frames:
        if frame.event not in seen:
            seen.add(frame.event)
            yield frame


async def test_a_reconnected_stream_has_every_stored_event_once(stage: Stage, server: HTTPServer) -> None:
    stage.model.set()
    ids: list[str] = []
    seen: set[str] = set()
    async with server.frames("POST", "/message", json=LIVE) as frames:
        async for frame in frames:
            ids += [frame.id] if frame.id else []
            seen.add(frame.event)
            if ids and "action_started" in seen:
                break
    stage.action.set()
    query, headers = {"task_id": "t", "live": "true"}, {"Last-Event-ID": ids[-1]}
    async with server.frames("GET", "/task/stream", params=query, headers=headers) as frames:
        ids += [frame.id async for frame in frames if frame.id]
    record = await server.task("t")
    assert ids == [event["id"] for event in record["events"]]
    assert not any(event["event"] == "action_started" for event in record["events"])


async def test_deltas_come_on_request_only(stage: Stage, server: HTTPServer) -> None:
    stage.model.set()
    stage.action.set()
    async with server.frames("POST", "/message", json=LIVE) as frames:
        assert not [frame async for frame in frames if frame.event == "text_delta"]
    async with server.frames("POST", "/message", json=LIVE | {"task_id": "u", "deltas": True}) as frames:
        deltas = [frame.data["extra_data"]["delta"] async for frame in frames if frame.event == "text_delta"]
    assert "".join(deltas[:2]) == "Let me look."


@pytest.mark.parametrize("asked", [{"deltas": True}, {"live": True}, {}])
async def test_who_is_about_to_open_a_stream_gets_the_first_call_in_pieces(
    stage: Stage, server: HTTPServer, asked: dict[str, bool]
) -> None:
    stage.action.set()
    stage.model.set()
    await server.post(task_id="t", headers={"Prefer": "respond-async"}, **asked)
    async with server.frames("GET", "/task/stream", params={"task_id": "t"}) as frames:
        await until(frames, "task_complete")
    assert stage.wanted[0] is ("deltas" in asked)


async def test_without_live_a_stream_is_as_it_was(stage: Stage, server: HTTPServer) -> None:
    stage.model.set()
    stage.action.set()
    frames = await server.stream(task_id="t")
    assert all(frame.id for frame in frames)


async def test_a_cancelled_turn_is_seen_to_end(stage: Stage, server: HTTPServer) -> None:
    async with server.frames("POST", "/message", json=LIVE) as frames:
        await until(frames, "model_call_started")
        await server.client.post("/task/cancel", json={"task_id": "t"})
        assert (await until(frames, "model_call_ended")).data["extra_data"]["error"] == "CancelledError"


async def test_the_task_says_who_works_and_on_what(stage: Stage, server: HTTPServer) -> None:
    async with server.frames("POST", "/message", json=LIVE) as frames:
        turn = await until(frames, "turn_started")
        stage.model.set()
        action = await until(frames, "action_started")
        (working,) = (await server.task("t"))["working"]
        assert working == {
            "agent": "supervisor",
            "since": turn.data["timestamp"],
            "on": [
                {"kind": "action", "name": "web_search", "since": action.data["timestamp"], "until": None}
            ],
        }
        status = (await server.client.get("/status")).json()
        assert status["tasks"] == [
            {"task_id": "t", "working": [working], "queued": {"supervisor": 1}, "waiting_for": []}
        ]
        stage.action.set()
        await until(frames, "task_complete")
    assert (await server.task("t"))["working"] == []
    assert (await server.client.get("/status")).json()["tasks"] == []
