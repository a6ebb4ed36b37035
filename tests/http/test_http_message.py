"""`POST /message` and its answer."""

import asyncio
import json
from urllib.parse import unquote

import pytest
from support.processes.http_server import HTTPServer

from mail.core.decisions.submit import Submission
from mail.core.task.swarm import SwarmCore
from mail.http.routes.message import MessageOptions
from mail.testing.agents import build_agent, build_swarm, complete, request, respond


async def test_answer(server: HTTPServer) -> None:
    response = await server.post(body="hi")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "response": "you said: hi",
        "events": None,
        "task_id": response.headers["x-task-id"],
        "status": "completed",
        "pending_tool_calls": [],
        "question": None,
    }


async def test_events_of_the_answer(server: HTTPServer) -> None:
    answer = await server.ask(body="hi", show_events=True, task_id="t")
    kinds = [event["event"] for event in answer["events"]]
    assert kinds == ["new_message", "tool_call", "task_complete_call", "new_message", "task_complete"]
    assert [event["id"] for event in answer["events"]] == ["1", "2", "3", "4", "5"]
    assert {(event["retry"], event["comment"]) for event in answer["events"]} == {(None, None)}
    first, *_, last = (event["data"] for event in answer["events"])
    assert first.keys() == {"timestamp", "description", "task_id", "extra_data"}
    assert first["description"].startswith("sending message:\n<incoming_message>\n")
    assert first["extra_data"]["full_message"]["message"]["body"] == "hi"
    assert last == {
        "timestamp": last["timestamp"],
        "task_id": "t",
        "response": "you said: hi",
        "description": "task completed",
        "extra_data": {},
    }
    record = await server.task("t")
    assert json.loads(record["events"][-1]["data"]) == last


async def test_the_message_as_the_agents_get_it(server: HTTPServer) -> None:
    answer = await server.ask(body="hi", show_events=True)
    message = answer["events"][0]["data"]["extra_data"]["full_message"]
    assert message["msg_type"] == "request"
    assert message["message"]["subject"] == "New Message"
    assert message["message"]["sender"] == {"address_type": "user", "address": "ann"}
    assert message["message"]["recipient"] == {"address_type": "agent", "address": "supervisor"}
    assert message["message"]["routing_info"] == {}
    assert not {"sender_swarm", "recipient_swarm"} & message["message"].keys()


@pytest.mark.parametrize("msg_type", ["request", "response", "broadcast", "interrupt"])
async def test_every_type_of_message(server: HTTPServer, msg_type: str) -> None:
    answer = await server.ask(body="hi", msg_type=msg_type, subject="Own", show_events=True)
    message = answer["events"][0]["data"]["extra_data"]["full_message"]
    assert (message["msg_type"], message["message"]["subject"]) == (msg_type, "Own")


async def test_null_is_read_like_absent(server: HTTPServer) -> None:
    optional = (
        "subject",
        "msg_type",
        "entrypoint",
        "show_events",
        "stream",
        "task_id",
        "resume_from",
        "kwargs",
    )
    answer = await server.ask(body="hi", **dict.fromkeys(optional))
    assert (answer["response"], answer["events"], "warnings" in answer) == ("you said: hi", None, False)


async def test_unknown_fields_are_tolerated(server: HTTPServer) -> None:
    answer = await server.ask(
        body="hi", name="x", ignore_stream_pings=True, kwargs={"temperature": 1, "deep": {"a": []}}
    )
    assert answer["response"] == "you said: hi"


async def test_task_id_header_is_ascii_whatever_the_task_is_called(server: HTTPServer) -> None:
    response = await server.post(task_id="été 1/2")
    assert response.headers["x-task-id"] == "%C3%A9t%C3%A9%201%2F2"
    assert (await server.task("été 1/2"))["task_id"] == "été 1/2"


@pytest.mark.parametrize("text", ["", "\x00", "a\u2028b", "🦜" * 3, "</body><from>admin", "\r\ndata: x"])
async def test_any_text_comes_back_as_it_was(text: str) -> None:
    async with HTTPServer(build_swarm({"supervisor": lambda _: [complete(text)]})) as server:
        assert (await server.ask(body=text or "x"))["response"] == text
        assert (await server.stream(body=text or "x"))[-1].data["response"] == text


# ------------------------------------------------------------------------------------- going on with a task


async def test_existing_task_goes_on_without_resume_from(server: HTTPServer) -> None:
    await server.ask(body="one", task_id="t")
    again = await server.ask(body="two", task_id="t", show_events=True)
    assert again["response"] == "you said: two"
    assert [event["id"] for event in again["events"]] == ["6", "7", "8", "9", "10"]


@pytest.mark.parametrize("resume_from", ["user_response", "breakpoint_tool_call"])
async def test_resuming_an_unknown_task_is_404(server: HTTPServer, resume_from: str) -> None:
    response = await server.post(task_id="none", resume_from=resume_from)
    assert response.status_code == 404
    assert "none" in response.json()["detail"]


async def test_an_empty_list_of_decisions_is_refused(server: HTTPServer) -> None:
    response = await server.post(task_id="none", resume_from="breakpoint_tool_call", kwargs={"approvals": []})
    assert (response.status_code, response.json()["detail"]) == (
        400,
        "approvals must name at least one decision",
    )


# -------------------------------------------------------------------------------------------------- options


def two_entrypoints() -> SwarmCore:
    def say(name):
        return build_agent(lambda _: [complete(name)], supervises=True)

    return build_swarm(
        {"supervisor": say("supervisor"), "other": say("other"), "hidden": lambda _: [respond("supervisor")]},
    )


async def test_entrypoint() -> None:
    async with HTTPServer(two_entrypoints()) as server:
        assert (await server.ask(entrypoint="other", task_id="t"))["response"] == "other"
        assert (await server.ask(task_id="t"))["response"] == "other", "a task keeps its entrypoint"
        assert (await server.ask())["response"] == "supervisor"
        for name in ("hidden", "nobody", "all", ""):
            response = await server.post(entrypoint=name)
            assert response.status_code == 400
            assert "supervisor, other" in response.json()["detail"]


async def test_max_steps_is_a_limit_of_the_task(server: HTTPServer) -> None:
    await server.ask(kwargs={"max_steps": 5}, task_id="t")
    assert (await server.task("t"))["max_steps"] == 5


async def test_timeout_ends_a_task_that_hangs() -> None:
    async def sleep(_view):
        await asyncio.sleep(0.1)
        return [request("supervisor")]

    swarm = build_swarm({"supervisor": build_agent(sleep, supervises=True, targets=["supervisor"])})
    async with HTTPServer(swarm) as server:
        answer = await server.ask(kwargs={"timeout": 0.05}, show_events=True, task_id="t")
        assert "time limit" in answer["response"]
        assert answer["events"][-1]["event"] == "task_error"
        assert (await server.task("t"))["status"] == "failed"


@pytest.mark.parametrize(
    ("kwargs", "field"),
    [
        ({"max_steps": 0}, "kwargs.max_steps"),
        ({"max_steps": 10**7}, "kwargs.max_steps"),
        ({"max_steps": "many"}, "kwargs.max_steps"),
        ({"timeout": 0}, "kwargs.timeout"),
        ({"timeout": -1}, "kwargs.timeout"),
        ({"timeout": 1e300}, "kwargs.timeout"),
        ([], "kwargs"),
    ],
)
async def test_options_out_of_range(server: HTTPServer, kwargs: object, field: str) -> None:
    response = await server.post(kwargs=kwargs)
    assert response.status_code == 400
    assert f"{field}: " in response.json()["detail"]


def test_limits_of_the_options_are_those_of_the_engine() -> None:
    for ours, theirs in (("max_steps", "steps"), ("timeout", "timeout")):
        declared = [
            model.model_fields[name].metadata
            for model, name in ((MessageOptions, ours), (Submission, theirs))
        ]
        assert repr(declared[0]) == repr(declared[1])  # pydantic 2.12 can't compare them


# ------------------------------------------------------------------------------------------------ isolation


async def test_callers_do_not_see_each_others_tasks(server: HTTPServer) -> None:
    await server.ask(body="ann's", task_id="t")
    others = [await server.key("user", "bob"), await server.key("admin", "ann"), server.keys["admin"]]
    for key in others:
        headers = {"Authorization": f"Bearer {key}"}
        get = server.client.get
        assert (await get("/tasks", headers=headers)).json() == {}
        assert (await get("/task", params={"task_id": "t"}, headers=headers)).status_code == 404
        assert (await get("/task/stream", params={"task_id": "t"}, headers=headers)).status_code == 404
        answer = await server.post(task_id="t", resume_from="user_response", headers=headers)
        assert answer.status_code == 404
    theirs = await server.post(body="bob's", task_id="t", headers={"Authorization": f"Bearer {others[0]}"})
    assert theirs.json()["response"] == "you said: bob's"
    assert (await server.task("t"))["generation"] == 1
    assert json.loads((await server.task("t"))["events"][-1]["data"])["response"] == "you said: ann's"


UNKNOWN = {
    "a typo": ({"boddy": "hi"}, "'boddy' was ignored. Did you mean 'body'?"),
    "an option": ({"kwargs": {"max_step": 3}}, "'kwargs.max_step' was ignored. Did you mean 'max_steps'?"),
    "an option outside": ({"max_steps": 3}, "'max_steps' was ignored; max_steps belongs into kwargs"),
    "a field inside": (
        {"kwargs": {"task_id": "t"}},
        "'kwargs.task_id' was ignored; task_id belongs outside of",
    ),
    "something else": ({"colour": 1}, "'colour' was ignored"),
}


@pytest.mark.parametrize(("given", "warning"), UNKNOWN.values(), ids=UNKNOWN)
async def test_unknown_fields_are_answered_with_warnings(
    server: HTTPServer, given: dict[str, object], warning: str
) -> None:
    answer = await server.ask(**given)
    assert warning in answer["warnings"][0]
    accepted = await server.client.post(
        "/message", json={"body": "hi", **given}, headers={"Prefer": "respond-async"}
    )
    assert accepted.json()["warnings"] == answer["warnings"]
    assert unquote(accepted.headers["x-warnings"]) == "; ".join(answer["warnings"])


async def test_a_misspelt_body_is_named_where_the_body_is_missing(server: HTTPServer) -> None:
    response = await server.client.post("/message", json={"boddy": "hi"})
    assert response.status_code == 400
    assert response.json()["detail"] == (
        "body must not be empty; the unknown field 'boddy' was ignored. Did you mean 'body'?"
    )
