"""The client's methods for dead letters."""

import logging
from collections.abc import AsyncIterator

import pytest
from client_stage import Recorder, client_of
from starlette.responses import JSONResponse
from support.processes.http_server import HTTPServer

from mail.client import BadAnswer, MAILClient
from mail.testing.agents import Call, View, build_swarm, complete


class Supervisor:
    """Fails until it is repaired."""

    is_broken = True

    def __call__(self, view: View) -> list[Call]:
        if self.is_broken:
            raise RuntimeError("no model")
        return [complete("done")]


@pytest.fixture
def supervisor(caplog: pytest.LogCaptureFixture) -> Supervisor:
    caplog.set_level(logging.CRITICAL, logger="mail")
    return Supervisor()


@pytest.fixture
async def server(supervisor: Supervisor) -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": supervisor})) as server:
        yield server


async def test_they_are_read_page_by_page(server: HTTPServer) -> None:
    async with client_of(server) as client:
        for number in range(3):
            await client.post_message("hi", task_id=f"t{number}")
        assert [letter["task_id"] for letter in await client.get_dead_letters()] == ["t2", "t1", "t0"]
        assert [letter["task_id"] for letter in await client.get_dead_letters(limit=2)] == ["t2", "t1"]
        assert [letter["task_id"] for letter in await client.get_dead_letters(task_id="t1")] == ["t1"]
        with pytest.raises(BadAnswer) as refused:
            await client.get_dead_letters(caller="user:bob@example")
    assert refused.value.status == 403


async def test_one_is_redriven_and_the_rest_discarded(server: HTTPServer, supervisor: Supervisor) -> None:
    async with client_of(server) as client:
        for number in range(2):
            await client.post_message("hi", task_id=f"t{number}")
        supervisor.is_broken = False
        (letter,) = await client.get_dead_letters(task_id="t0")
        answer = await client.redrive_dead_letters("t0", letter["seq"])
        assert [each["seq"] for each in answer["redriven"]] == [letter["seq"]]
        assert answer["failed"] == []
        answer = await client.discard_dead_letters(all=True)
        assert [each["task_id"] for each in answer["discarded"]] == ["t1"]
        assert await client.get_dead_letters() == []
        with pytest.raises(BadAnswer) as gone:
            await client.redrive_dead_letters("t0", letter["seq"])
    assert gone.value.status == 404


async def test_all_are_asked_for_until_there_are_no_more() -> None:
    """A server that does only some at a time says where to go on."""
    parts = [
        {"redriven": [{"seq": 1}], "failed": [], "next_cursor": "c"},
        {"redriven": [{"seq": 2}], "failed": [{"reason": "no"}], "next_cursor": None},
    ]
    recorder = Recorder(lambda _request: JSONResponse(parts[len(recorder.requests) - 1]))
    async with recorder.serve() as url, MAILClient(url, api_key="k") as client:
        answer = await client.redrive_dead_letters(all=True, caller="user:ann@example")
    assert answer == {"redriven": [{"seq": 1}, {"seq": 2}], "failed": [{"reason": "no"}]}
    asked = {"caller": "user:ann@example", "all": True}
    assert recorder.bodies == [asked, {**asked, "cursor": "c"}]


async def test_pages_of_a_list() -> None:
    parts = [{"dead_letters": [{"seq": n}], "next_cursor": c} for n, c in ((1, "c"), (2, "d"), (3, None))]
    recorder = Recorder(lambda _request: JSONResponse(parts[len(recorder.requests) - 1]))
    async with recorder.serve() as url, MAILClient(url, api_key="k") as client:
        assert [each["seq"] for each in await client.get_dead_letters()] == [1, 2, 3]
    assert [request.url.query for request in recorder.requests] == ["", "cursor=c", "cursor=d"]
