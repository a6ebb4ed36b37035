"""The `Prefer` header."""

import asyncio

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer

from mail.http.preferences import Preference, read_preference


@pytest.mark.parametrize(
    ("headers", "preference"),
    [
        ([], Preference()),
        ([""], Preference()),
        (["respond-async"], Preference(0.0, "respond-async")),
        (["Respond-Async; foo=bar"], Preference(0.0, "respond-async")),
        (["wait=10"], Preference(10.0, "wait=10")),
        (['wait = "10"'], Preference(10.0, "wait=10")),
        (["respond-async, wait=10"], Preference(10.0, "respond-async, wait=10")),
        (["wait=10", "respond-async"], Preference(10.0, "respond-async, wait=10")),
        (["wait=0"], Preference(0.0, "wait=0")),
        (["wait=1, wait=2"], Preference(1.0, "wait=1")),
        (["wait=soon, return=minimal"], Preference()),
        (["wait=-1"], Preference()),
        (["wait=" + "9" * 400], Preference()),
    ],
)
def test_reading(headers: list[str], preference: Preference) -> None:
    assert read_preference(headers) == preference


async def test_respond_async() -> None:
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate)) as server:
        for prefer in ("respond-async", "wait=0", "respond-async, wait=0"):
            task_id = f"a task/{prefer}"
            response = await server.post(task_id=task_id, headers={"Prefer": prefer})
            assert response.status_code == 202
            assert response.headers["preference-applied"] == prefer
            body = response.json()
            assert body["task_id"] == task_id
            assert body["links"]["task"] == response.headers["location"]
            record = (await server.client.get(response.headers["location"])).json()
            assert (record["task_id"], record["is_running"]) == (task_id, True)
        gate.set()
        async with server.frames("GET", body["links"]["stream"]) as frames:
            assert [frame.data async for frame in frames][-1]["response"] == "at last"


async def test_an_answer_in_time_is_200(server: HTTPServer) -> None:
    response = await server.post(headers={"Prefer": "wait=10"})
    assert response.status_code == 200
    assert response.json()["response"] == "you said: hello"


async def test_a_stream_is_a_stream_whatever_is_preferred(server: HTTPServer) -> None:
    response = await server.post(stream=True, headers={"Prefer": "respond-async"})
    assert response.status_code == 200
    assert response.text.count("event: task_complete\r\n") == 1


async def test_links_behind_a_prefix(server: HTTPServer) -> None:
    server.app.root_path = "/stage"
    response = await server.post(task_id="t", headers={"Prefer": "respond-async"})
    assert response.headers["location"] == "/stage/task?task_id=t"
