"""Messages with `not_before`, and the timers of a task: `GET /task` lists them, `DELETE /task/timers/{id}` cancels."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.task import TaskKey
from mail.testing.agents import build_swarm, call, complete
from mail.testing.changes import NOW
from mail.testing.clock import FakeClock

HOUR = 3_600.0
KEY = TaskKey("user:ann@example", "t")


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    swarm = build_swarm(
        {
            "chief": lambda view: (
                [call("remind_me", note="x" * 300, **{"in": "1h"})]
                if view.mail.body == "remind yourself"
                else [complete(view.mail.body)] * 2
            )
        }
    )
    async with HTTPServer(swarm, clock=FakeClock()) as server:
        yield server


async def task_of(server: HTTPServer) -> dict[str, Any]:
    answer = await server.client.get("/task", params={"task_id": "t"})
    return dict(answer.json())


@pytest.mark.parametrize("given", [NOW + HOUR, datetime.fromtimestamp(NOW + HOUR, UTC).isoformat()])
async def test_a_message_for_later_is_accepted_at_once_and_posted_in_time(
    server: HTTPServer, given: float | str
) -> None:
    answer = await server.client.post("/message", json={"body": "hello", "task_id": "t", "not_before": given})
    assert answer.status_code == 202
    assert answer.json()["task_id"] == "t"
    assert answer.headers["location"] == "/task?task_id=t"
    task = await task_of(server)
    (timer,) = task["timers"]
    assert (task["status"], task["title"], timer["kind"], timer["agent"]) == (
        "running",
        "hello",
        "message",
        None,
    )
    assert (timer["text"], timer["due"]) == ("hello", "2026-01-31T09:00:00+00:00")
    await server.rig.pass_time(HOUR)
    await server.rig.store.wait_for_response(KEY, 1, seconds=60)
    task = await task_of(server)
    assert task["status"] == "completed"
    assert "timers" not in task


async def test_a_time_that_has_passed_is_now(server: HTTPServer) -> None:
    answer = await server.client.post("/message", json={"body": "hello", "not_before": 5})
    assert (answer.status_code, answer.json()["response"]) == (200, "hello")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tomorrow", "not_before must be ISO 8601 with its zone"),
        ("2026-02-01T08:00:00", "not_before must be ISO 8601 with its zone"),
        (NOW + 367 * 24 * HOUR, "not_before may be 366 days ahead at most"),
    ],
)
async def test_a_time_that_is_none_is_refused(server: HTTPServer, given: float | str, problem: str) -> None:
    answer = await server.client.post("/message", json={"body": "hello", "not_before": given})
    assert answer.status_code == 400
    assert problem in answer.json()["detail"]
    assert (await server.client.get("/tasks")).json() == {}


async def test_the_same_key_is_the_same_message(server: HTTPServer) -> None:
    for _ in range(2):
        answer = await server.client.post(
            "/message",
            json={"body": "hello", "task_id": "t", "not_before": NOW + HOUR},
            headers={"Idempotency-Key": "once"},
        )
        assert answer.status_code == 202
    assert len((await task_of(server))["timers"]) == 1


async def test_timers_are_listed_and_cancelled(server: HTTPServer) -> None:
    await server.client.post(
        "/message", json={"body": "remind yourself", "task_id": "t"}, headers={"Prefer": "respond-async"}
    )
    await server.rig.workers.idle()
    await server.client.post("/message", json={"body": "later", "task_id": "t", "not_before": NOW + 2 * HOUR})
    reminder, message = (await task_of(server))["timers"]
    assert (reminder["kind"], reminder["agent"], reminder["text"]) == ("reminder", "chief", "x" * 199 + "…")
    path = f"/task/timers/{message['id']}"
    gone = await server.client.delete(path, params={"task_id": "t"})
    assert gone.json() == {
        "id": message["id"],
        "status": "cancelled",
        "task_id": "t",
        "task_status": "running",
    }
    again = await server.client.delete(path, params={"task_id": "t"})
    assert (again.status_code, again.json()["detail"][:29]) == (
        404,
        f"task 't' has no timer '{message['id']}'"[:29],
    )
    strange = await server.client.delete(path, params={"task_id": "t"}, headers=server.headers("admin"))
    assert strange.status_code == 404
    assert [timer["id"] for timer in (await task_of(server))["timers"]] == [reminder["id"]]
