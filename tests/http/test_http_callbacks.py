"""`POST /callbacks/{token}`: the token of a call finishes it, once, without an API key."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from support.processes.http_server import Frame, HTTPServer, eventually

from mail.core.task.callbacks import LATER, Later, digest_of
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey
from mail.core.turns.context import CallbackAddress, current_context
from mail.errors import RateLimited
from mail.http.rates import RateLimiter
from mail.testing.agents import build_swarm, call, complete

NO_KEY = {"Authorization": ""}


class Studio:
    """An action that keeps the callbacks of its calls."""

    def __init__(self) -> None:
        self.callbacks: list[CallbackAddress] = []

    async def __call__(self, _arguments: dict[str, Any]) -> str | Later:
        self.callbacks.append(current_context().callback)
        return LATER


@pytest.fixture
def studio() -> Studio:
    return Studio()


@pytest.fixture
async def server(studio: Studio) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm(
        {
            "chief": lambda view: (
                [call("render")] if view.mail.sender_type == "user" else [complete(view.mail.body)]
            )
        },
        actions={"render": ActionCore("render", studio, finish_within=3600.0, heartbeat=600.0)},
    )
    async with HTTPServer(swarm) as server:
        server.rig.runtime.base_url = server.uvicorn.url
        yield server


async def begin(server: HTTPServer) -> asyncio.Task[Any]:
    """Ask for a film, and wait until the task sleeps."""
    asked = asyncio.create_task(server.post(body="a film", task_id="t"))

    async def is_asleep() -> bool:
        task = await server.rig.store.load(TaskKey("user:ann@example", "t"))
        return task is not None and task.is_asleep

    await eventually(is_asleep)
    return asked


async def send(server: HTTPServer, url: str, **body: Any) -> httpx2.Response:
    return await server.client.post(url, json=body, headers=NO_KEY)


async def test_a_result_is_the_answer_of_the_caller_who_waits(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    (callback,) = studio.callbacks
    assert callback.url == f"{server.uvicorn.url}/callbacks/{callback.token}"
    alive = await send(server, callback.url, progress="half of it")
    assert (alive.status_code, alive.json()["status"]) == (200, "waiting")
    assert alive.json()["due"]
    (call_of_chief,) = (await server.task("t"))["calls"]
    assert call_of_chief == {
        "id": digest_of(callback.token),
        "agent": "chief",
        "name": "render",
        "call_id": call_of_chief["call_id"],
        "since": call_of_chief["since"],
        "heard": call_of_chief["heard"],
        "progress": "half of it",
        "due": alive.json()["due"],
    }
    assert call_of_chief["since"] <= call_of_chief["heard"] < call_of_chief["due"]
    done = await send(server, callback.url, result={"frames": 24})
    assert (done.status_code, done.json()) == (200, {"status": "finished", "due": None})
    assert (await asked).json()["response"] == 'render: {"frames":24}'
    assert "calls" not in await server.task("t")
    again = await send(server, callback.url, result={"frames": 24})
    assert again.json() == done.json()
    for other in ({"result": "another"}, {"error": "no"}, {"heartbeat": True}):
        refused = await send(server, callback.url, **other)
        assert (refused.status_code, "already" in refused.json()["detail"]) == (409, True)


async def test_a_failure_is_read_as_an_error(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    assert (await send(server, studio.callbacks[0].url, error="no light")).json()["status"] == "failed"
    assert (await asked).json()["response"] == "render: ERROR: no light"


async def test_a_request_must_say_one_thing(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    url = studio.callbacks[0].url
    for wrong in ({}, {"result": 1, "error": "x"}, {"result": 1, "heartbeat": True}, {"heartbeat": False}):
        assert (await send(server, url, **wrong)).status_code == 400
    for wrong in ({"error": ""}, {"progress": "x" * 1001}):
        assert (await send(server, url, **wrong)).status_code == 400
    assert (await server.client.post(url, content=b"{", headers=NO_KEY)).status_code == 400
    assert (await send(server, url, result=None)).json()["status"] == "finished"
    assert (await asked).json()["response"] == "render: null"


async def test_strangers_learn_nothing(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    token = studio.callbacks[0].token
    place = token.partition(".")[0]
    answers = [
        await send(server, f"/callbacks/{each}", result=1) for each in (f"{place}.x", "x.y", "x", f"{token}0")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1
    asked.cancel()


async def test_strangers_are_limited_by_their_address(studio: Studio) -> None:
    rates = RateLimiter(1, 2)
    async with HTTPServer(build_swarm({"chief": lambda _: [complete()]}), rates=rates) as server:
        statuses = [(await send(server, f"/callbacks/{n}.x", result=1)).status_code for n in range(4)]
    assert statuses[0] == 404
    assert statuses[-1] == RateLimited.http_status


async def test_a_report_is_a_live_event(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    (callback,) = studio.callbacks
    query = {"task_id": "t", "live": "true"}
    async with server.frames("GET", "/task/stream", params=query) as frames:
        async for frame in frames:
            if frame.event == "action_progress":
                break
        assert (frame.id, frame.data["extra_data"]["progress"]) == (None, "")
        await send(server, callback.url, progress="half of it")
        live = [frame async for frame in upto_a_report(frames)][-1]
        (shown,) = (await server.task("t"))["calls"]
        assert live.data["extra_data"] == shown
        assert live.data["description"] == "agent chief waits for render: half of it"
        await send(server, callback.url, result="a film")
        assert "action_complete" in [frame.event async for frame in frames]
    await asked


async def upto_a_report(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    async for frame in frames:
        yield frame
        if frame.event == "action_progress":
            return


async def test_a_person_cancels_a_call(server: HTTPServer, studio: Studio) -> None:
    asked = await begin(server)
    (callback,) = studio.callbacks
    path = f"/task/calls/{digest_of(callback.token)}?task_id=t"
    for others in (f"{path}2", "/task/calls/x?task_id=t"):
        assert (await server.client.delete(others)).status_code == 404
    done = await server.client.delete(path)
    assert (done.status_code, done.json()["status"], done.json()["task_status"]) == (
        200,
        "cancelled",
        "running",
    )
    assert (await asked).json()["response"] == "render: ERROR: ann has cancelled it"
    late = await send(server, callback.url, result="a film")
    assert (late.status_code, "no longer waits for render" in late.json()["detail"]) == (409, True)
    again = await server.client.delete(path)
    assert (again.status_code, "no call" in again.json()["detail"]) == (404, True)
