"""`/dead-letters`: what could not be processed is listed, redriven and discarded, each for whom it concerns."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.testing.agents import Call, View, build_swarm, complete


class Supervisor:
    """Fails until it is repaired."""

    is_broken = True

    def __call__(self, view: View) -> Sequence[Call]:
        if self.is_broken:
            raise RuntimeError("no model")
        return [complete(f"heard: {view.mail.body}")]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mail")


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


@pytest.fixture
async def server(supervisor: Supervisor) -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": supervisor})) as server:
        yield server


async def fail(server: HTTPServer, task_id: str, role: str = "user") -> None:
    """Let a message of a task become a dead letter."""
    answer = await server.post(body=f"hello {task_id}", task_id=task_id, headers=server.headers(role))
    assert answer.status_code == 200


async def listed(server: HTTPServer, role: str = "user", **query: Any) -> dict[str, Any]:
    body: dict[str, Any] = await server.get("/dead-letters", role, **query)
    return body


async def post(server: HTTPServer, verb: str, role: str = "user", **body: Any) -> httpx2.Response:
    return await server.client.post(f"/dead-letters/{verb}", json=body, headers=server.headers(role))


async def test_a_line_says_what_it_was_and_why(server: HTTPServer) -> None:
    await fail(server, "t")
    page = await listed(server)
    (line,) = page["dead_letters"]
    task = await server.task("t")
    (event,) = [event for event in task["events"] if event["event"] == "dead_letter"]
    assert page["next_cursor"] is None
    assert line.pop("timestamp")
    (need,) = (await server.get("/approvals", "user"))["tasks"]
    assert (need["need"], need["reason"]) == ("dead_letters", line["reason"])
    assert "RuntimeError" in line.pop("reason")
    assert line == {
        "caller": task["task_owner"],
        "task_id": "t",
        "seq": int(event["id"]),
        "mailbox": "supervisor",
        "sender": line["sender"],
        "subject": "New Message",
        "msg_type": "request",
        "attempts": 1,
        "message_seq": 1,
        "task_status": "failed",
    }


async def test_one_is_redriven_and_gone_from_the_list(server: HTTPServer, supervisor: Supervisor) -> None:
    await fail(server, "t")
    (line,) = (await listed(server))["dead_letters"]
    supervisor.is_broken = False
    answer = await post(server, "redrive", task_id="t", seq=line["seq"])
    assert answer.status_code == 200, answer.text
    (redriven,) = answer.json()["redriven"]
    assert answer.json()["failed"] == []
    assert redriven["waits"] is False
    assert redriven["message_seq"] > line["seq"]
    assert (await listed(server))["dead_letters"] == []
    await server.until(lambda task: task["status"] == "completed")
    threads = await server.client.get("/threads/t", headers=server.headers("user"))
    bodies = [entry["message"]["body"] for entry in threads.json()["conversation"]]
    assert bodies.count("hello t") == 1
    again = await post(server, "redrive", task_id="t", seq=line["seq"])
    assert again.status_code == 404
    assert "may have been redriven or discarded" in again.json()["detail"]
    assert (await post(server, "redrive", task_id="t")).json()["redriven"] == []


async def test_one_is_discarded_and_nothing_happens(server: HTTPServer) -> None:
    await fail(server, "t")
    (line,) = (await listed(server))["dead_letters"]
    answer = await post(server, "discard", task_id="t", seq=line["seq"])
    assert answer.json()["discarded"] == [{"caller": line["caller"], "task_id": "t", "seq": line["seq"]}]
    assert (await listed(server))["dead_letters"] == []
    assert (await server.task("t"))["status"] == "failed"
    assert (await post(server, "discard", task_id="t", seq=line["seq"])).status_code == 404


async def test_users_see_their_own_and_admins_everybodys(server: HTTPServer) -> None:
    await fail(server, "hers")
    await fail(server, "admins", "admin")
    (line,) = (await listed(server))["dead_letters"]
    assert line["task_id"] == "hers"
    everybodys = (await listed(server, "admin"))["dead_letters"]
    assert [each["task_id"] for each in everybodys] == ["admins", "hers"]
    of_user = (await listed(server, "admin", caller=line["caller"]))["dead_letters"]
    assert of_user == [line]
    one = (await listed(server, "admin", caller=line["caller"], task_id="hers"))["dead_letters"]
    assert one == [line]
    assert (await listed(server, caller=line["caller"]))["dead_letters"] == [line]


async def test_nobody_reaches_into_the_tasks_of_others(server: HTTPServer) -> None:
    await fail(server, "admins", "admin")
    (line,) = (await listed(server, "admin"))["dead_letters"]
    answers = [
        await server.client.get(
            "/dead-letters", params={"caller": line["caller"]}, headers=server.headers("user")
        ),
        await post(server, "redrive", caller=line["caller"], task_id="admins"),
        await post(server, "discard", caller=line["caller"], all=True),
    ]
    assert [answer.status_code for answer in answers] == [403] * 3
    assert (await post(server, "redrive", task_id="admins")).status_code == 404
    assert (await post(server, "discard", all=True)).json()["discarded"] == []
    assert len((await listed(server, "admin"))["dead_letters"]) == 1


async def test_an_admin_redrives_everything(server: HTTPServer, supervisor: Supervisor) -> None:
    for task_id in ("a", "b", "c"):
        await fail(server, task_id)
    await fail(server, "d", "admin")
    supervisor.is_broken = False
    answer = (await post(server, "redrive", "admin", all=True)).json()
    assert sorted(each["task_id"] for each in answer["redriven"]) == ["a", "b", "c", "d"]
    assert (answer["failed"], answer["next_cursor"]) == ([], None)
    assert (await listed(server, "admin"))["dead_letters"] == []


async def test_pages(server: HTTPServer) -> None:
    for task_id in ("a", "b", "c"):
        await fail(server, task_id)
    first = await listed(server, limit=2)
    assert [each["task_id"] for each in first["dead_letters"]] == ["c", "b"]
    answer = await server.client.get("/dead-letters", params={"limit": 2}, headers=server.headers("user"))
    assert answer.headers["x-next-cursor"] == first["next_cursor"]
    assert "/dead-letters?limit=2&cursor=" in answer.headers["link"]
    rest = await listed(server, limit=2, cursor=first["next_cursor"])
    assert [each["task_id"] for each in rest["dead_letters"]] == ["a"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"seq": 3},
        {"all": True, "task_id": "t"},
        {"all": True, "seq": 3},
        {"task_id": "t", "seq": 0},
        {"all": 7},
    ],
)
@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_what_does_not_say_which(server: HTTPServer, verb: str, body: dict[str, Any]) -> None:
    assert (await post(server, verb, **body)).status_code == 400


async def test_what_is_not_there(server: HTTPServer) -> None:
    for verb in ("redrive", "discard"):
        assert (await post(server, verb, task_id="nothing")).status_code == 404
    answer = await server.client.get(
        "/dead-letters", params={"task_id": "nothing"}, headers=server.headers("user")
    )
    assert answer.status_code == 404
    answer = await server.client.get(
        "/dead-letters", params={"cursor": "nonsense"}, headers=server.headers("user")
    )
    assert answer.status_code == 400
    answer = await server.client.get(
        "/dead-letters", params={"caller": "nonsense"}, headers=server.headers("admin")
    )
    assert answer.status_code == 400
