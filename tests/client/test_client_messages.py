"""Messages and tasks through the client, against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from client_stage import CONFIG, CutProxy, Recorder, answered, client_of
from starlette.responses import JSONResponse
from support.processes.http_server import HTTPServer

from mail.client import BadAnswer, ConnectionLost, MAILClient, QuestionOpen, RequestTimedOut
from mail.client.operations import Request
from mail.config import ClientConfig
from mail.core.protocol.message import MAILMessage
from mail.core.task.swarm import SwarmCore
from mail.testing.agents import build_swarm, call, complete

IMPATIENT = 3.05
"""Seconds that a server has left for a request, all but a twentieth of one kept for its answer."""


def slow_swarm(seconds: float = 0.2) -> SwarmCore:
    async def supervise(view):
        await asyncio.sleep(seconds)
        return [complete(f"you said: {view.mail.body}")]

    return build_swarm({"supervisor": supervise})


def asking_swarm() -> SwarmCore:
    def supervise(view):
        if view.results:
            return [complete(" | ".join(view.results))]
        return [call("ask_user", n=n) for n in range(2)]

    return build_swarm({"supervisor": supervise}, breakpoint_tools=frozenset({"ask_user"}))


# ------------------------------------------------------------------------------ where the server doesn't wait


@pytest.mark.parametrize("show_events", [False, True])
async def test_202_is_followed_to_the_same_answer(show_events: bool) -> None:
    async with (
        HTTPServer(slow_swarm(), time_left=lambda _: IMPATIENT) as impatient,
        HTTPServer(slow_swarm()) as patient,
    ):
        answers = []
        for server in (impatient, patient):
            async with client_of(server) as client:
                await client.post_message("one", task_id="t")
                answers.append(await client.post_message("two", task_id="t", show_events=show_events))
        assert (await impatient.post()).status_code == 202, "it does not wait"
    followed, waited = (_less_what_differs(answer) for answer in answers)
    assert followed == waited
    assert followed["response"] == "you said: two"
    assert len(followed["events"] or []) == (5 if show_events else 0)


@pytest.mark.parametrize("settings", [{}, {"time_left": lambda _: IMPATIENT}], ids=["at once", "after a 202"])
async def test_the_output_of_an_answer_that_fits_a_schema(settings: dict[str, Any]) -> None:
    async with (
        HTTPServer(slow_swarm(), **settings) as server,
        client_of(server) as client,
    ):
        answer = await client.post_message("hi", output_schema={"type": "string"})
    assert (answer["response"], answer["output"]) == ('"you said: hi"', "you said: hi")


@pytest.mark.soak(on="two")
@pytest.mark.parametrize("body", ["two", "fail"])
async def test_202_for_a_message_to_other_swarms_is_followed_too(body: str) -> None:
    """Agents of the server's own swarm may be the targets as well."""

    async def supervise(view):
        await asyncio.sleep(0.2)
        if view.mail.body == "fail":
            raise RuntimeError("no")
        return [complete(f"you said: {view.mail.body}")]

    swarm = build_swarm({"supervisor": supervise})
    answers = []
    async with HTTPServer(swarm, time_left=lambda _: IMPATIENT) as impatient, HTTPServer(swarm) as patient:
        for server in (impatient, patient):
            async with client_of(server) as client:
                answers.append(await client.send_interswarm_message(body, ["supervisor"], task_id="t"))
        accepted = {"body": body, "targets": ["supervisor"]}
        assert (await impatient.client.post("/interswarm/message", json=accepted)).status_code == 202
    for answer in answers:
        assert MAILMessage.model_validate(answer["response"]).msg_type == "broadcast_complete"
        for each in (answer["response"], answer["response"]["message"]):
            for name in ("id", "timestamp", "broadcast_id"):
                each.pop(name, None)
    followed, waited = (_less_what_differs(answer) for answer in answers)
    assert followed == waited
    subject = followed["response"]["message"]["subject"]
    assert subject == ("::task_error::" if body == "fail" else "::task_complete::")


async def test_a_stream_in_place_of_an_answer_from_other_swarms() -> None:
    async with HTTPServer(slow_swarm()) as server, client_of(server) as client:
        answer = await client.send_interswarm_message("hi", ["supervisor"], stream=True)
    assert answer["response"]["message"]["body"] == "you said: hi"
    assert answer["events"][-1]["data"]["response"] == "you said: hi"


def _less_what_differs(answer: dict) -> dict:
    """The answer without times and random ids."""
    for event in answer["events"] or ():
        event["data"].pop("timestamp")
        event["data"]["description"] = event["data"].get("description", "").partition("\n")[0]
        event["data"].get("extra_data", {}).pop("message_id", None)  # of a dead letter
        message = event["data"].get("extra_data", {}).get("full_message", {})
        for each in (message, message.get("message", {})):
            for name in ("id", "timestamp", "request_id", "broadcast_id"):
                each.pop(name, None)
    return answer


async def test_a_message_to_a_busy_task_is_answered_by_its_own_answer() -> None:
    async with HTTPServer(slow_swarm(), time_left=lambda _: IMPATIENT) as server, client_of(server) as client:
        first = asyncio.create_task(client.post_message("one", task_id="t"))
        await asyncio.sleep(0.1)
        second = await client.post_message("two", task_id="t")
        assert second["response"] == "you said: two"
        await first


@asynccontextmanager
async def two_doors() -> AsyncIterator[MAILClient]:
    """A server that never waits, and whose streams are on another one."""
    async with HTTPServer(slow_swarm()) as inner, CutProxy(inner.port, [600]) as streaming:
        stream = f"{streaming.url}/task/stream?task_id=t"
        answer = {"task_id": "t", "links": {"task": "/task?task_id=t", "stream": stream}}
        await inner.post(task_id="t", body="hi", headers={"Prefer": "respond-async"})
        async with (
            Recorder(lambda _: JSONResponse(answer, status_code=202)).serve() as url,
            MAILClient(url, api_key=inner.keys["user"], config=CONFIG) as client,
        ):
            yield client


async def test_202_that_names_a_stream_elsewhere() -> None:
    async with two_doors() as client:
        assert (await client.post_message("hi"))["response"] == "you said: hi"


async def test_the_key_is_not_sent_over_less_than_was_asked_for() -> None:
    """A stream at `http` that a server at `https` names is refused. The answer is read as if it had come by TLS."""
    async with two_doors() as client:
        accepted = await client._send(Request("POST", "/message", body={"body": "hi"}))
        accepted.request.url = accepted.request.url.copy_with(scheme="https")
        with pytest.raises(BadAnswer, match="unencrypted"):
            client._stream_of(accepted, accepted.json(), is_new=True)


async def test_a_task_that_stopped_without_an_answer() -> None:
    answers = [
        JSONResponse({"task_id": "t", "links": {"stream": "/task/stream"}}, status_code=202),
        JSONResponse(None, status_code=204),
    ]
    async with answered(*answers) as (client, _):
        with pytest.raises(ConnectionLost, match="stopped without an answer"):
            await client.post_message("hi")


# ------------------------------------------------------------------------- where the connection breaks meanwhile


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("before", [0, 1], ids=["a new task", "a known task"])
@pytest.mark.parametrize("method", ["post_message", "post_message_stream", "send_interswarm_message"])
async def test_a_message_that_has_arrived_is_found_in_the_task_it_names(method: str, before: int) -> None:
    """The answer is lost after its first byte."""
    async with HTTPServer(slow_swarm(0.05)) as server:
        for _ in range(before):
            await server.post(task_id="t", body="hi there")
        async with CutProxy(server.port, [1]) as proxy, client_of(server, url=proxy.url) as client:
            if method == "post_message":
                answer = await client.post_message("hi", task_id="t", show_events=True)
                text, ids = answer["response"], [event["id"] for event in answer["events"]]
            elif method == "send_interswarm_message":
                answer = await client.send_interswarm_message("hi", ["supervisor"], task_id="t")
                text, ids = answer["response"]["message"]["body"], [event["id"] for event in answer["events"]]
            else:
                events = [event async for event in await client.post_message_stream("hi", task_id="t")]
                text, ids = json.loads(events[-1].data)["response"], [event.id for event in events]
        assert len((await server.task("t"))["events"]) == 5 * (before + 1), "it was not sent twice"
    assert text == "you said: hi"
    assert ids == [str(5 * before + n) for n in range(1, 6)]


@pytest.mark.usefixtures("no_delays")
async def test_results_of_a_breakpoint_that_have_arrived_are_found() -> None:
    async with HTTPServer(asking_swarm()) as server:
        waiting = json.loads((await server.ask(task_id="t"))["response"])
        results = json.dumps([{"call_id": each["id"], "content": "yes"} for each in waiting])
        async with CutProxy(server.port, [1]) as proxy, client_of(server, url=proxy.url) as client:
            answer = await client.post_message(
                "", task_id="t", resume_from="breakpoint_tool_call", breakpoint_tool_call_result=results
            )
    assert "yes" in answer["response"]


async def test_a_server_that_dies_with_the_request_and_restarts(tmp_path: Path) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def supervise(view):
        begun.set()
        await gate.wait()
        return [complete(f"you said: {view.mail.body}")]

    swarm, database = build_swarm({"supervisor": supervise}), tmp_path / "mail.db"
    async with CutProxy(0) as proxy:
        async with HTTPServer(swarm, path=database) as server:
            proxy.port = server.port
            client = client_of(server, url=proxy.url)
            asked = asyncio.create_task(client.post_message("hi", task_id="t"))
            await begun.wait()
            proxy.cut()
        gate.set()
        async with client, HTTPServer(swarm, path=database) as server:
            proxy.port = server.port
            assert (await asked)["response"] == "you said: hi"


@pytest.mark.usefixtures("no_delays")
@pytest.mark.parametrize("events", ["other words", "older", "none"])
async def test_a_message_that_is_not_in_the_task_is_not_taken_for_one_that_is(events: str) -> None:
    """Somebody has written other words, or the same ones a year ago; or the task does not exist."""
    message = {"sender": {"address_type": "user", "address": "ann"}, "body": "hi"}
    time = datetime.now(UTC)
    if events == "other words":
        message["body"] = "hi!"
    else:
        time -= timedelta(days=365)
    data = {"timestamp": time.isoformat(), "extra_data": {"full_message": {"message": message}}}
    record = {"events": [{"event": "new_message", "id": "1", "data": json.dumps(data)}]}

    def answer(_request):
        if events == "none":
            return JSONResponse({"detail": "you have no task 't'"}, status_code=404)
        return JSONResponse(record)

    recorder = Recorder(answer)
    async with (
        recorder.serve() as url,
        CutProxy(int(url.rpartition(":")[2]), [0]) as proxy,
        MAILClient(proxy.url, config=CONFIG) as client,
    ):
        with pytest.raises(ConnectionLost, match=r"(?s)task 't'.*get_task.*mail task watch"):
            await client.post_message("hi", task_id="t")
    assert [request.method for request in recorder.requests].count("POST") <= 1, "it is not sent again"


async def test_a_wait_that_is_over_names_the_task() -> None:
    async with HTTPServer(slow_swarm(5)) as server:
        config = ClientConfig(timeout=0.2, verbose=False)
        async with MAILClient(server.uvicorn.url, server.keys["user"], config=config) as client:
            with pytest.raises(RequestTimedOut, match=r"no answer in 0\.2 s; .*watch_task\('t'\)"):
                await client.post_message("hi", task_id="t")


async def test_the_longest_wait_where_the_server_does_not_wait() -> None:
    async with HTTPServer(slow_swarm(5), time_left=lambda _: IMPATIENT) as server:
        config = ClientConfig(timeout=0.3, verbose=False)
        async with MAILClient(server.uvicorn.url, server.keys["user"], config=config) as client:
            with pytest.raises(TimeoutError) as late:
                await client.post_message("hi")
    assert isinstance(late.value, RequestTimedOut)


# ------------------------------------------------------------------------------------------- the other methods


async def test_all_pages_of_tasks_are_read(server: HTTPServer) -> None:
    """The client asks for whole pages, of which there would have to be thousands of tasks: so the pages are made
    smaller.
    """

    class SmallPages(MAILClient):
        async def _send(self, request, *, stream=False):
            small = replace(request, query={**request.query, "limit": "2"})
            return await super()._send(small, stream=stream)

    async with client_of(server) as client:
        for n in range(5):
            await client.post_message("hi", task_id=str(n))
    async with SmallPages(server.uvicorn.url, server.keys["user"], config=CONFIG) as client:
        assert list(await client.get_tasks(status="completed")) == ["4", "3", "2", "1", "0"]
        assert list(await client.get_tasks(limit=3)) == ["4", "3", "2"]


async def test_a_message_under_a_key_is_sent_again_when_the_connection_breaks(server: HTTPServer) -> None:
    class Breaks(MAILClient):
        broken = 0

        async def _send(self, request, *, stream=False):
            response = await super()._send(request, stream=stream)
            if request.method == "POST" and self.broken < 2:
                self.broken += 1
                raise ConnectionLost("the answer is lost")
            return response

    async with Breaks(server.uvicorn.url, server.keys["user"], config=CONFIG) as client:
        answer = await client.post_message("hi", idempotency_key="k")
        assert client.broken == 2
        assert answer == await client.post_message("hi", idempotency_key="k")
        assert len(await client.get_tasks()) == 1
        with pytest.raises(BadAnswer) as refused:
            await client.post_message("other", idempotency_key="k")
        client.broken = 0
        [task_id] = await client.get_tasks()
        fork = await client.fork_task(task_id, idempotency_key="f")
        assert client.broken == 2
        assert (await client.get_tasks()).keys() == {task_id, fork["task_id"]}
    assert refused.value.status == 422


# ------------------------------------------------------------------------------- as with clients of MAIL 1.3.6


async def test_the_text_may_be_called_body_and_the_subject_may_come_second(server: HTTPServer) -> None:
    async with client_of(server) as client:
        assert (await client.post_message(body="hi", subject="Hello"))["response"] == "you said: hi"
        for subject, given in (("Hello", "Hello"), ("New Message", "supervisor"), ("New Message", None)):
            answer = await client.post_message("hi", given, True)
            sent = answer["events"][0]["data"]["extra_data"]["full_message"]["message"]
            assert (sent["subject"], sent["recipient"]["address"]) == (subject, "supervisor")
        events = [event async for event in await client.post_message_stream("hi", "Hello")]
        assert json.loads(events[0].data)["extra_data"]["full_message"]["message"]["subject"] == "Hello"
        with pytest.raises(BadAnswer, match="not 'Hello'"):
            await client.post_message("hi", entrypoint="Hello")


async def test_a_message_that_would_drop_a_question() -> None:
    async with HTTPServer(asking_swarm()) as server, client_of(server) as client:
        paused = await client.post_message("one", task_id="t")
        with pytest.raises(QuestionOpen) as refused:
            await client.post_message("two", task_id="t")
        calls = [{**call, "agent": "supervisor"} for call in refused.value.pending_tool_calls]
        assert calls == paused["pending_tool_calls"]
        with pytest.raises(QuestionOpen):
            await client.post_message_stream("two", task_id="t")
        dropped = await client.post_message("two", task_id="t", drop_question=True)
        assert dropped["status"] == "completed"
