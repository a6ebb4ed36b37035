"""`POST /task/cancel`: in two phases, and what becomes of the turns that run."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer, eventually

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, turns, wait


class Gate:
    """An action that waits until it is let through, however often it is called."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, _arguments: dict[str, Any]) -> str:
        self.calls += 1
        self.begun.set()
        await self.open.wait()
        return "through"


@pytest.fixture
def gate() -> Gate:
    return Gate()


def at_the_gate(view: View) -> Sequence[Call]:
    if view.mail.subject in ("::action_complete::", "::action_error::"):
        return [complete(f"after the gate: {view.mail.body}")]
    return [call("wait_at_gate")]


@pytest.fixture
async def server(gate: Gate) -> AsyncIterator[HTTPServer]:
    swarm: SwarmCore = build_swarm({"supervisor": at_the_gate}, actions={"wait_at_gate": gate})
    async with HTTPServer(swarm) as server:
        yield server


async def cancel(server: HTTPServer, task_id: str, role: str = "user", **fields: object) -> httpx2.Response:
    headers = server.headers(role)
    return await server.client.post("/task/cancel", json={"task_id": task_id, **fields}, headers=headers)


async def begin(server: HTTPServer, task_id: str = "t") -> None:
    answer = await server.post(body="go", task_id=task_id, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202


async def test_a_running_task_is_cancelled_and_its_turn_discarded(server: HTTPServer, gate: Gate) -> None:
    await begin(server)
    await gate.begun.wait()
    answer = await cancel(server, "t", reason="not needed")
    assert answer.status_code == 200
    body = answer.json()
    assert body == {
        "task_id": "t", "status": "cancelled", "requested": body["requested"], "by": "user:ann@example",
        "reason": "not needed", "stopped": True, "running_agents": [], "waiting_swarms": [],
    }  # fmt: skip
    record = await server.task("t")
    assert (record["status"], record["is_running"], record["completed"]) == ("cancelled", False, True)
    assert record["cancellation"]["reason"] == "not needed"
    kinds = [event["event"] for event in record["events"]]
    assert kinds == ["new_message", "task_cancelled", "task_error", "turn_discarded"]
    assert [mail["mailbox"] for mail in record["task_message_queue"]] == ["supervisor"]
    assert gate.calls == 1


async def test_whoever_waits_is_told(server: HTTPServer, gate: Gate) -> None:
    waiting = asyncio.create_task(server.ask(body="go", task_id="t"))
    frames = asyncio.create_task(server.stream(body="more", task_id="t2"))
    await gate.begun.wait()
    await eventually(lambda: gate.calls == 2)
    for task_id in ("t", "t2"):
        await cancel(server, task_id, reason="enough")
    assert (await waiting)["response"] == "The task was cancelled by ann: enough"
    last = (await frames)[-1]
    assert (last.event, last.data["response"]) == ("task_error", "The task was cancelled by ann: enough")


async def test_it_can_be_resumed_and_no_action_is_repeated(server: HTTPServer, gate: Gate) -> None:
    await begin(server)
    await gate.begun.wait()
    await cancel(server, "t")
    gate.open.set()
    answer = await server.ask(body="go on", task_id="t")
    assert answer["response"].startswith("after the gate: ")
    record = await server.task("t")
    assert (record["status"], record["generation"]) == ("completed", 3)  # what had waited was answered before
    assert record["task_message_queue"] == []
    assert record["cancellation"]["by"] == "user:ann@example"


async def test_cancelling_twice_is_cancelling_once(server: HTTPServer, gate: Gate) -> None:
    await begin(server)
    await gate.begun.wait()
    first, second = await cancel(server, "t", reason="a"), await cancel(server, "t", reason="b")
    assert second.status_code == 200
    assert second.json() == first.json()


@pytest.mark.parametrize(
    ("task_id", "role", "status", "detail"),
    [
        ("none", "user", 404, "there is no task 'none'"),
        ("done", "user", 400, "task 'done' is completed; there is nothing to cancel"),
        ("done", "admin", 404, "there is no task 'done'"),
        ("", "user", 400, ""),
    ],
)
async def test_what_cannot_be_cancelled(task_id: str, role: str, status: int, detail: str) -> None:
    async with HTTPServer(build_swarm({"supervisor": turns([complete()])})) as server:
        await server.ask(task_id="done")
        answer = await cancel(server, task_id, role)
        assert answer.status_code == status
        assert detail in answer.json()["detail"]


async def test_an_agent_that_does_not_end_is_told_of(server: HTTPServer, gate: Gate) -> None:
    """A turn that another process runs can't be interrupted from here: its lease shows that it runs."""
    await begin(server)
    await gate.begun.wait()
    server.rig.runtime.turns._running.clear()
    headers = server.headers("user") | {"Prefer": "wait=0"}
    answer = await server.client.post("/task/cancel", json={"task_id": "t"}, headers=headers)
    assert answer.status_code == 202
    assert (answer.json()["stopped"], answer.json()["running_agents"]) == (False, ["supervisor"])
    gate.open.set()
    again = await cancel(server, "t")
    assert (again.status_code, again.json()["stopped"]) == (200, True)
    record = await server.task("t")
    assert [event["event"] for event in record["events"]][-1] == "turn_discarded"


async def test_people_who_wrote_meanwhile_are_answered_by_the_cancellation(
    server: HTTPServer, gate: Gate
) -> None:
    await begin(server)
    await gate.begun.wait()
    more = asyncio.create_task(server.ask(body="and this", task_id="t"))
    await server.until(lambda task: len(task["task_message_queue"]) == 2)
    await cancel(server, "t")
    assert (await more)["response"] == "The task was cancelled by ann."
    assert (await server.task("t"))["status"] == "cancelled"


async def test_other_agents_of_the_task_begin_no_turn(gate: Gate) -> None:
    seen: list[str] = []

    def worker(view: View) -> Sequence[Call]:
        seen.append(view.mail.body)
        return [respond("supervisor")]

    swarm = build_swarm(
        {
            "supervisor": turns([request("worker"), call("wait_at_gate")], [wait()], [complete()]),
            "worker": worker,
        },
        actions={"wait_at_gate": gate},
    )
    async with HTTPServer(swarm) as server:
        await begin(server)
        await gate.begun.wait()
        await cancel(server, "t")
        gate.open.set()
        await asyncio.sleep(0.05)
        assert seen == []
