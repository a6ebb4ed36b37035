"""Streams of the client against a real server, also where the connection is cut."""

import asyncio
import json
import random
from pathlib import Path

import pytest
from client_stage import CONFIG, CutProxy, Recorder, answered, client_of
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from support.faults.gates import waiting_swarm
from support.plugins.tiers import sized
from support.processes.http_server import HTTPServer, eventually
from support.processes.timelines import ONE_AGENT

from mail.client import BadAnswer, ConnectionLost, EventStream, MAILClient, NotJSON, ServerUnreachable
from mail.core.task.swarm import SwarmCore
from mail.http.account import Account
from mail.testing.agents import build_swarm, complete, request, respond, wait

FRAME = "id: {id}\r\nevent: {event}\r\ndata: {{}}\r\n\r\n"


def two_agents() -> SwarmCore:
    def supervise(view):
        if view.mail.sender == "worker":
            return [complete(view.mail.body)]
        return [request("worker"), wait()]

    return build_swarm({"supervisor": supervise, "worker": lambda view: [respond("supervisor", "ready")]})


async def kinds(stream: EventStream) -> list[str | None]:
    return [event.event async for event in stream if event.event != "ping"]


async def ids(stream: EventStream) -> list[str | None]:
    return [event.id async for event in stream if event.event != "ping"]


def frames(*events: tuple[int, str]) -> Response:
    """A stream of events that ends after them."""
    text = "".join(FRAME.format(id=number, event=event) for number, event in events)
    return StreamingResponse(iter([text]), media_type="text/event-stream")


# ---------------------------------------------------------------------------------------- a good connection


async def test_a_stream(server: HTTPServer) -> None:
    async with client_of(server) as client:
        stream = await client.post_message_stream("hi", "supervisor", task_id="a task/é")
        events = [event async for event in stream]
        assert stream.task_id == "a task/é"
        assert stream.last_event_id == "5"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert all(isinstance(event, ServerSentEvent) for event in events)
    assert [event.event for event in events] == ONE_AGENT
    assert [event.id for event in events] == ["1", "2", "3", "4", "5"]
    assert json.loads(events[-1].data)["response"] == "you said: hi"


async def test_items_come_with_events_and_count_as_none(server: HTTPServer) -> None:
    async with client_of(server) as client:
        stream = await client.post_message_stream("hi", "supervisor", task_id="t", items=True)
        sent = [event async for event in stream if event.event == "item"]
        watched = await client.watch_task("t", items=True)
        again = [event async for event in watched if event.event == "item"]
    assert json.loads(sent[0].data)["kind"] == "message"
    assert [event.data for event in again] == [event.data for event in sent]
    assert (stream.last_event_id, watched.last_event_id) == ("5", "5")


async def test_going_on_with_a_task(server: HTTPServer) -> None:
    async with client_of(server) as client:
        await client.post_message("one", task_id="t")
        stream = await client.post_message_stream("two", task_id="t", resume_from="user_response")
        assert await ids(stream) == ["6", "7", "8", "9", "10"]


async def test_watching(server: HTTPServer) -> None:
    async with client_of(server) as client:
        await client.post_message("one", task_id="t")
        await client.post_message("two", task_id="t")
        assert await kinds(await client.watch_task("t")) == ONE_AGENT * 2
        assert await ids(await client.watch_task("t", after=8)) == ["9", "10"]
        assert await ids(await client.watch_task("t", after="10")) == []
        with pytest.raises(BadAnswer, match="no task 'u'") as refused:
            await client.watch_task("u")
    assert refused.value.status == 404


async def test_closing_closes_the_connection_and_cancels_nothing() -> None:
    gate = asyncio.Event()
    async with (
        HTTPServer(waiting_swarm(gate)) as server,
        CutProxy(server.port) as proxy,
        client_of(server, url=proxy.url) as client,
    ):
        async with await client.post_message_stream("hi", task_id="t") as stream:
            await anext(stream)
            assert proxy.open == 1
        await eventually(lambda: proxy.open == 0)
        assert [event async for event in stream] == []
        unread = await client.post_message_stream("hi", task_id="u")
        await unread.aclose()
        await eventually(lambda: proxy.open == 0)
        gate.set()
        for task_id in "tu":
            assert await kinds(await client.watch_task(task_id)) == ONE_AGENT


async def test_giving_up_waiting_for_an_event_loses_none() -> None:
    gate = asyncio.Event()
    async with HTTPServer(waiting_swarm(gate)) as server, client_of(server) as client:
        stream = await client.post_message_stream("hi")
        assert (await anext(stream)).event == "new_message"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.05)
        gate.set()
        assert await kinds(stream) == ONE_AGENT[1:]


@pytest.mark.soak
async def test_many_streams_at_once() -> None:
    """More than clients of HTTP open connections by default, on a server without a limit."""
    gate = asyncio.Event()
    account = Account(streams=0)
    async with HTTPServer(waiting_swarm(gate), account=account) as server, client_of(server) as client:
        streams = [await client.post_message_stream("hi") for _ in range(120)]
        gate.set()
        assert await asyncio.gather(*map(kinds, streams)) == [ONE_AGENT] * 120


# ------------------------------------------------------------------------------------ connections that break


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("seed", range(sized(fast=8, full=12, soak=30)))
async def test_cuts_at_random_places(seed: int) -> None:
    chance = random.Random(seed)
    cuts = [chance.choice([0, chance.randrange(400), chance.randrange(4000)]) for _ in range(8)]
    async with HTTPServer(two_agents()) as server, CutProxy(server.port, cuts, seed=seed) as proxy:
        async with client_of(server, url=proxy.url) as client:
            seen = await ids(await client.post_message_stream("hi"))
        assert proxy.connections > 1
        [task] = (await server.client.get("/tasks")).json().values()
    assert seen == [event["id"] for event in task["events"]]


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("cut", [0, 60, 500, 1000, 1500, 3000])
async def test_an_answer_whose_connection_breaks_is_followed(cut: int) -> None:
    async with (
        HTTPServer(two_agents()) as server,
        CutProxy(server.port, [cut, cut]) as proxy,
        client_of(server, url=proxy.url) as client,
    ):
        answer = await client.post_message("hi", show_events=True)
        assert answer["response"] == "ready"
        [task] = (await client.get_tasks()).values()
    assert [event["id"] for event in answer["events"]] == [event["id"] for event in task["events"]]


@pytest.mark.usefixtures("no_delays")
async def test_what_may_have_been_sent_is_not_sent_again() -> None:
    recorder = Recorder(lambda _: JSONResponse({"detail": "no such task"}, status_code=404))
    async with (
        recorder.serve() as url,
        CutProxy(int(url.rpartition(":")[2]), [0]) as proxy,
        MAILClient(proxy.url, config=CONFIG) as client,
    ):
        with pytest.raises(ConnectionLost, match="'t'"):
            await client.post_message_stream("hi", task_id="t")
    methods = [request.method for request in recorder.requests]
    assert methods.count("POST") <= 1, "it may have arrived before the connection was cut"
    assert methods.count("GET") == 9


@pytest.mark.usefixtures("no_delays")
async def test_a_message_that_never_arrived() -> None:
    def refuse(request: Request) -> Response:
        return JSONResponse({"detail": "no such task"}, status_code=404)

    recorder = Recorder(refuse)
    async with (
        recorder.serve() as url,
        CutProxy(int(url.rpartition(":")[2]), [0, 0]) as proxy,
        MAILClient(proxy.url, config=CONFIG) as client,
    ):
        with pytest.raises(ConnectionLost, match="404 no such task"):
            await client.post_message_stream("hi")
    assert recorder.last[:2] == ("GET", f"/task/stream?task_id={recorder.bodies[0]['task_id']}")


@pytest.mark.usefixtures("no_delays")
async def test_attempts_are_bounded_and_counted_anew_after_an_event() -> None:
    """Each connection brings one event, then eight bring none: that is endured; nine in a row are not."""
    connections = 0

    def answer(request: Request) -> Response:
        nonlocal connections
        connections += 1
        last = int(request.headers.get("last-event-id", "0"))
        return frames((last + 1, "tool_call")) if last < 3 and connections % 9 == 1 else frames()

    async with Recorder(answer).serve() as url, MAILClient(url, config=CONFIG) as client:
        stream = await client.watch_task("t")
        for number in ("1", "2", "3"):
            assert (await anext(stream)).id == number
        with pytest.raises(ConnectionLost, match="the server closed it"):
            await anext(stream)
        assert connections == 19 + 9
        with pytest.raises(ConnectionLost):
            await anext(stream)
        assert connections == 28 + 9


@pytest.mark.usefixtures("no_delays")
async def test_events_that_come_again_are_dropped() -> None:
    answers = [
        frames((1, "new_message"), (2, "tool_call")),
        frames((1, "new_message"), (2, "tool_call"), (10, "task_complete")),
    ]
    async with answered(*answers) as (client, recorder):
        assert await ids(await client.post_message_stream("hi")) == ["1", "2", "10"]
    assert recorder.requests[1].headers["last-event-id"] == "2"


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_refusals_that_pass_are_waited_out(status: int) -> None:
    answers = [
        frames((1, "new_message")),
        JSONResponse({"detail": "later"}, status_code=status),
        Response("<html>", status_code=status, media_type="text/html"),
        frames((2, "task_error")),
    ]
    async with answered(*answers) as (client, _):
        assert await ids(await client.post_message_stream("hi")) == ["1", "2"]


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("status", [401, 404])
async def test_refusals_that_do_not_pass_are_raised(status: int) -> None:
    answers = [frames((1, "new_message")), JSONResponse({"detail": "no"}, status_code=status)]
    async with answered(*answers) as (client, _):
        stream = await client.post_message_stream("hi")
        assert (await anext(stream)).id == "1"
        with pytest.raises(BadAnswer) as refused:
            await anext(stream)
    assert refused.value.status == status


@pytest.mark.usefixtures("no_delays")
async def test_a_server_without_ids_streams_but_cannot_be_resumed() -> None:
    def answer(_request: Request) -> Response:
        return StreamingResponse(
            iter(["event: new_message\ndata: {}\n\n", "event: ping\ndata: {}\n\n"]),
            media_type="text/event-stream",
        )

    recorder = Recorder(answer)
    async with recorder.serve() as url, MAILClient(url, config=CONFIG) as client:
        stream = await client.post_message_stream("hi")
        assert [(await anext(stream)).event for _ in range(2)] == ["new_message", "ping"]
        with pytest.raises(ConnectionLost, match="at an unknown position"):
            await anext(stream)
    assert len(recorder.requests) == 1


@pytest.mark.parametrize("task_id", [None, "t"])
async def test_a_server_without_ids_has_said_all_with_its_answer(task_id: str | None) -> None:
    text = "event: new_message\ndata: {}\n\nevent: task_complete\ndata: {}\n\n"
    async with answered(StreamingResponse(iter([text]), media_type="text/event-stream")) as (
        client,
        recorder,
    ):
        stream = await client.post_message_stream("hi", task_id=task_id)
        assert await kinds(stream) == ["new_message", "task_complete"]
    assert len(recorder.requests) == 1


@pytest.mark.usefixtures("no_delays")
async def test_a_stream_of_a_known_task_that_breaks_before_its_first_event() -> None:
    """Only where the server has said where the answer begins can it be found again."""
    nothing = frames()
    nothing.headers["x-last-event-id"] = "41"
    answers = [nothing, frames((42, "task_complete")), Response(status_code=204), frames()]
    async with answered(*answers) as (client, recorder):
        assert await ids(await client.post_message_stream("hi", task_id="t")) == ["42"]
        assert recorder.requests[1].headers["last-event-id"] == "41"
        stream = await client.post_message_stream("hi", task_id="t")
        with pytest.raises(ConnectionLost, match="unknown position"):
            await anext(stream)


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("refusal", [404, 500])
async def test_an_answer_is_not_followed_by_errors(refusal: int) -> None:
    """Whether there is more is asked once; a server that can't tell has said the last word."""
    answers = [frames((1, "task_complete")), JSONResponse({"detail": "no"}, status_code=refusal)]
    async with answered(*answers) as (client, recorder):
        assert await ids(await client.watch_task("t")) == ["1"]
    assert len(recorder.requests) == 2


async def test_a_new_task_has_one_answer() -> None:
    async with answered(frames((1, "task_error"))) as (client, recorder):
        assert await ids(await client.post_message_stream("hi")) == ["1"]
    assert len(recorder.requests) == 1, "nobody is asked whether there is more"


async def test_an_answer_to_somebody_else_is_not_the_end() -> None:
    """A server may end a stream (here, by its time limit) after an answer to an earlier message."""
    answers = [
        frames((3, "task_complete")),
        frames((4, "new_message")),
        frames((5, "task_complete")),
        Response(status_code=204),
    ]
    async with answered(*answers) as (client, _):
        assert await ids(await client.post_message_stream("hi", task_id="t")) == ["3", "4", "5"]


@pytest.mark.usefixtures("no_delays")
async def test_silence_counts_as_a_broken_connection() -> None:
    gate = asyncio.Event()

    class Impatient(MAILClient):
        silence_seconds = 0.2

    async with (
        HTTPServer(waiting_swarm(gate)) as server,
        CutProxy(server.port) as proxy,
        Impatient(proxy.url, api_key=server.keys["user"], config=CONFIG) as client,
    ):
        stream = await client.post_message_stream("hi")
        assert (await anext(stream)).event == "new_message"
        rest = asyncio.create_task(kinds(stream))
        await eventually(lambda: proxy.connections > 1)
        gate.set()
        assert await rest == ONE_AGENT[1:]


async def test_a_server_that_restarts(tmp_path: Path) -> None:
    gate = asyncio.Event()
    swarm, database = waiting_swarm(gate), tmp_path / "mail.db"
    async with CutProxy(0) as proxy:
        async with HTTPServer(swarm, path=database) as server:
            proxy.port = server.port
            client = client_of(server, url=proxy.url)
            stream = await client.post_message_stream("hi")
            assert (await anext(stream)).event == "new_message"
            rest = asyncio.create_task(kinds(stream))
        gate.set()
        async with client, HTTPServer(swarm, path=database) as server:
            proxy.port = server.port
            assert await rest == ONE_AGENT[1:]


# ------------------------------------------------------------------------------------- answers that are none


@pytest.mark.parametrize("answer", [JSONResponse({"response": "hi"}), JSONResponse([], status_code=202)])
async def test_json_in_place_of_a_stream(answer: Response) -> None:
    async with answered(answer) as (client, _):
        with pytest.raises(BadAnswer, match="not a stream of events"):
            await client.post_message_stream("hi")


async def test_a_page_in_place_of_a_stream() -> None:
    page = Response("<p>hello", media_type="text/html")
    async with answered(page) as (client, _):
        with pytest.raises(NotJSON, match="text/html"):
            await client.post_message_stream("hi")


async def test_no_server() -> None:
    async with MAILClient("http://127.0.0.1:1", config=CONFIG) as client:
        with pytest.raises(ServerUnreachable):
            await client.post_message_stream("hi")


async def test_a_stream_that_can_be_resumed_ends_early_and_the_client_resumes_it() -> None:
    gate = asyncio.Event()
    async with HTTPServer(waiting_swarm(gate), stream_seconds=0.3) as server:
        posted = asyncio.create_task(server.stream(task_id="t"))

        async def has_begun() -> bool:
            answer = await server.client.get("/task", params={"task_id": "t"})
            return answer.status_code == 200

        await eventually(has_begun)
        async with server.frames("GET", "/task/stream?task_id=t") as frames:
            assert [frame.event async for frame in frames] == ["new_message"]
        assert not posted.done(), "a client that posts a message may not be able to resume"
        async with client_of(server) as client, await client.watch_task("t") as watched:
            asyncio.get_running_loop().call_later(1.0, gate.set)
            seen = await ids(watched)
        assert seen == [str(n + 1) for n in range(len(seen))]
        assert [frame.id for frame in await posted] == seen
