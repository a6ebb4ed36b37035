"""`GET /tasks` and `GET /task`."""

import asyncio
import json
import re
from datetime import datetime

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer

from mail.testing.agents import build_swarm, call

DOCUMENTED = {
    "task_id",
    "task_owner",
    "task_contributors",
    "start_time",
    "events",
    "is_running",
    "task_message_queue",
    "remote_swarms",
    "completed",
    "title",
}


async def test_record(server: HTTPServer) -> None:
    await server.ask(body="hi there", task_id="t")
    record = await server.task("t")
    assert record.keys() >= DOCUMENTED
    assert record["task_id"] == "t"
    assert record["task_owner"] == "user:ann@example"
    assert record["task_contributors"] == ["user:ann@example"]
    assert datetime.fromisoformat(record["start_time"]).tzinfo is not None
    assert (record["is_running"], record["completed"], record["status"]) == (False, True, "completed")
    assert record["title"] == "hi there"
    assert (record["remote_swarms"], record["task_message_queue"]) == ([], [])
    assert [event["event"] for event in record["events"]][-1] == "task_complete"
    assert json.loads(record["events"][-1]["data"])["response"] == "you said: hi there"
    assert record["events"][0].keys() == {"event", "id", "data", "retry", "comment"}


async def test_mail_that_waits() -> None:
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate)) as server:
        await server.post(body="one", task_id="t", headers={"Prefer": "respond-async"})
        await server.post(body="two", task_id="t", headers={"Prefer": "respond-async"})
        record = await server.task("t")
        assert (record["is_running"], record["completed"]) == (True, False)
        first, second = record["task_message_queue"]
        assert first.keys() == {"mailbox", "priority", "seq", "message"}
        assert (first["mailbox"], first["priority"], first["seq"]) == ("supervisor", 2, 1)
        assert second["message"]["message"]["body"] == "two"
        assert (await server.client.get("/status")).json()["user_task_running"] is True
        gate.set()


async def test_named_in_the_body_or_the_query(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    get = server.client.request
    for request in (
        {"json": {"task_id": "t"}},
        {"params": {"task_id": "t"}},
        {"json": {"task_id": "t"}, "params": {"task_id": "t"}},
        {"json": {}, "params": {"task_id": "t"}},
        {"json": {"task_id": None, "other": 1}, "params": {"task_id": "t"}},
    ):
        response = await get("GET", "/task", **request)
        assert response.json()["task_id"] == "t"
    contradiction = await get("GET", "/task", json={"task_id": "t"}, params={"task_id": "u"})
    assert contradiction.status_code == 400
    assert (await get("GET", "/task")).status_code == 400
    assert (await get("GET", "/task", json={"task_id": 1})).status_code == 400
    assert (await get("GET", "/task", json={"task_id": "none"})).status_code == 404


async def test_all_tasks_newest_first(server: HTTPServer) -> None:
    for task_id in ("a", "b", "c"):
        await server.ask(task_id=task_id)
    tasks = (await server.client.get("/tasks")).json()
    assert list(tasks) == ["c", "b", "a"]
    assert tasks["b"] == await server.task("b")


async def test_pages(server: HTTPServer) -> None:
    names = [f"t{n}" for n in range(7)]
    for task_id in names:
        await server.ask(task_id=task_id)
    url, pages = "/tasks?limit=3", []
    while url:
        response = await server.client.get(url)
        pages.append(list(response.json()))
        link = response.headers.get("link", "")
        assert bool(link) == ("x-next-cursor" in response.headers)
        url = re.fullmatch(r'<(.*)>; rel="next"', link)[1] if link else ""
    assert pages == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]


async def test_pages_of_one_status(server: HTTPServer) -> None:
    for n in range(3):
        await server.ask(task_id=f"t{n}")
    first = await server.client.get("/tasks?limit=2&status=completed")
    assert list(first.json()) == ["t2", "t1"]
    assert "status=completed" in first.headers["link"]
    cursor = first.headers["x-next-cursor"]
    rest = await server.client.get("/tasks", params={"cursor": cursor, "status": "completed"})
    assert list(rest.json()) == ["t0"]
    assert (await server.client.get("/tasks?status=running")).json() == {}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=" + "9" * 400,
        "status=lost",
        "cursor=x",
        "cursor=-1",
        "cursor=",
    ],
)
async def test_wrong_queries(server: HTTPServer, query: str) -> None:
    response = await server.client.get(f"/tasks?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json()["detail"]


async def test_admins_list_the_tasks_of_others_without_what_is_in_them(server: HTTPServer) -> None:
    await server.ask(body="a secret", task_id="t")
    admin = server.headers("admin")
    await server.post(body="mine", task_id="t", headers=admin)

    async def listed(query: str) -> dict[str, dict[str, object]]:
        answer = await server.client.get(f"/tasks?fields=summary&{query}", headers=admin)
        tasks: dict[str, dict[str, object]] = answer.json()
        return {key: task["task_owner"] for key, task in tasks.items()}  # type: ignore[misc]

    assert await listed("") == {"t": "admin:root@example"}
    assert await listed("caller=user:ann") == {"t": "user:ann@example"}
    assert await listed("all=true") == {
        "admin:root@example#t": "admin:root@example",
        "user:ann@example#t": "user:ann@example",
    }
    assert await listed("all=true&status=running") == {}
    assert (await server.client.get("/tasks?caller=user:ann")).json().keys() == {"t"}, "one's own, in full"


@pytest.mark.parametrize("query", ["all=true", "caller=user:ann", "all=true&caller=user:ann&fields=summary"])
async def test_other_callers_tasks_are_never_shown_in_full(server: HTTPServer, query: str) -> None:
    answer = await server.client.get(f"/tasks?{query}", headers=server.headers("admin"))
    assert answer.status_code in (400, 403)


async def test_pages_of_all_tasks_follow_each_other(server: HTTPServer) -> None:
    for number in range(3):
        await server.ask(task_id=f"t{number}")
    path, found = "/tasks?all=true&fields=summary&limit=2", set()
    while path:
        answer = await server.client.get(path, headers=server.headers("admin"))
        found |= answer.json().keys()
        path = answer.links.get("next", {}).get("url", "")
    assert found == {f"user:ann@example#t{number}" for number in range(3)}


async def test_arguments_of_waiting_calls_are_not_shown_to_admins() -> None:
    swarm = build_swarm(
        {"supervisor": lambda _: [call("ask_human", question="s3cret")]},
        breakpoint_tools=frozenset({"ask_human"}),
        actions={"ask_human": _ask_human},
    )
    async with HTTPServer(swarm) as server:
        await server.ask(task_id="t")
        mine = (await server.client.get("/tasks?fields=summary")).text
        others = await server.client.get("/tasks?all=true&fields=summary", headers=server.headers("admin"))
    assert "s3cret" in mine
    assert "s3cret" not in others.text
    assert others.json()["user:ann@example#t"]["status"] == "paused"


async def _ask_human(**_arguments: object) -> str:
    raise NotImplementedError
