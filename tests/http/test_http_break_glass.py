"""Breaking the glass: an admin reads another caller's task, for a reason that its owner and the audit see."""

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.client import MAILClient
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import Kind
from mail.errors import StoreUnavailable
from mail.http.audit import SAME_SECONDS
from mail.testing.agents import View, build_swarm, call, complete, tool_results
from mail.testing.clock import FakeClock

WHY = "ticket 42: 「why」 did it loop?"


def work(view: View) -> list[Any]:
    asks = "ask" in view.mail.body and not tool_results(view.history)
    return [call("ask_person")] if asks else [complete("the key is in the cellar")]


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": work}, breakpoint_tools=frozenset({"ask_person"}))
    async with HTTPServer(swarm, clock=clock, break_glass=True) as server:
        yield server


async def read(server: HTTPServer, path: str = "/task", role: str = "admin", **query: Any) -> httpx2.Response:
    asked = {"task_id": "t", "caller": "user:ann", "reason": WHY} | query
    asked = {name: value for name, value in asked.items() if value is not None}
    return await server.client.get(path, params=asked, headers=server.headers(role))


async def openings(server: HTTPServer) -> list[dict[str, Any]]:
    events = (await server.task("t"))["events"]
    return [event for event in events if event["event"] == "task_opened"]


async def audited(server: HTTPServer) -> list[tuple[str, ...]]:
    page = await server.client.get("/audit", params={"act": "open task"}, headers=server.headers("admin"))
    entries: list[dict[str, str]] = page.json()["entries"]
    return [tuple(entry[name] for name in ("by", "on", "owner", "reason", "outcome")) for entry in entries]


async def test_an_admin_reads_a_task_and_its_owner_sees_who_and_why(server: HTTPServer) -> None:
    await server.ask(body="where is it?", task_id="t")
    before = await server.task("t")
    answer = await read(server)
    assert answer.status_code == 200, answer.text
    assert "the key is in the cellar" in answer.text
    (opened,) = await openings(server)
    extra = json.loads(opened["data"])["extra_data"]
    assert (extra["by"], extra["reason"]) == ("admin:root@example", WHY)
    after = await server.task("t")
    assert after["status"] == before["status"] == "completed"
    assert after["events"][:-1] == before["events"], "nothing else has changed"
    async with server.frames("GET", f"/task/stream?task_id=t&last_event_id={before['seq']}") as frames:
        assert [frame.event async for frame in frames] == ["task_opened"], (
            "and who watches the task sees it, too"
        )
    assert await audited(server) == [("admin:root@example", "t", "user:ann@example", WHY, "done")]


async def test_it_is_said_once_an_hour_for_each_reason(server: HTTPServer, clock: FakeClock) -> None:
    await server.ask(task_id="t")
    for path, more in (
        ("/task", {"fields": "summary"}),
        ("/task", {"items": "true"}),
        ("/task", {"at": "2"}),
        ("/task/turn", {"seq": "2"}),
        ("/task/stream", {}),
    ):
        answer = await read(server, path, **more)
        assert answer.status_code == 200, (path, answer.text)
    assert len(await openings(server)) == len(await audited(server)) == 1
    await read(server, reason="another one")
    assert len(await openings(server)) == len(await audited(server)) == 2
    clock.advance(SAME_SECONDS)
    await read(server)
    assert len(await openings(server)) == len(await audited(server)) == 3


async def test_a_task_that_waits_for_its_owner_still_does(server: HTTPServer) -> None:
    await server.ask(body="ask", task_id="t")
    assert (await read(server)).json()["status"] == "paused"
    record = await server.task("t")
    (pending,) = record["pending_tool_calls"]
    resumed = await server.ask(
        body="",
        task_id="t",
        resume_from="breakpoint_tool_call",
        kwargs={"breakpoint_tool_call_result": [{"call_id": pending["call_id"], "content": "yes"}]},
    )
    assert resumed["response"] == "the key is in the cellar"


async def test_pages_keep_the_owner_and_the_reason(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    async with MAILClient(server.uvicorn.url, api_key=server.keys["admin"]) as client:
        task = await client.get_task("t", items=True, caller="user:ann", reason=WHY)
        assert task["items"][-1]["kind"] == "opened"
        assert task["items"][-1]["reason"] == WHY
        turn = await client.get_turn("t", 2, caller="user:ann", reason=WHY)
        assert turn["agent"] == "supervisor"
    first = await read(server, limit="1")
    following = await server.client.get(
        first.headers["Link"].partition(">")[0][1:], headers=server.headers("admin")
    )
    assert following.status_code == 200, following.text


async def test_without_a_reason_or_the_right_nothing_is_read(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    for query in ({"reason": None}, {"reason": "  "}, {"reason": "x" * 201}):
        refused = await read(server, **query)
        assert refused.status_code == 400, query
    for path in ("/task", "/task/turn", "/task/stream"):
        refused = await read(server, path, "user", caller="user:bob", seq="1")
        assert refused.status_code == 403
        assert (await read(server, path, "agent", seq="1")).status_code == 403
    assert (await read(server, task_id="none")).status_code == 404
    assert await openings(server) == []
    assert [outcome for *_, outcome in await audited(server)] == ["refused"]


async def test_ones_own_task_needs_no_reason(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    own = await read(server, "/task", "user", reason=None)
    assert own.status_code == 200
    assert await openings(server) == []
    assert await audited(server) == []


async def test_nothing_is_read_if_the_audit_is_not_stored(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(SQLiteDocuments):
        async def put(self, kind: Kind, *args: Any, **given: Any) -> bool:
            raise StoreUnavailable

    await server.ask(task_id="t")
    refusing = ServerDocuments(Refusing(server.rig.database))
    server.app.service = dataclasses.replace(server.service, documents=refusing)
    refused = await read(server)
    assert refused.status_code == 503
    assert "cellar" not in refused.text
    server.app.service = server.service
    assert (await read(server)).status_code == 200
    assert len(await openings(server)) == 2, "its owner hears of the attempt, too"
    assert len(await audited(server)) == 1


async def test_it_is_off_by_default() -> None:
    async with HTTPServer(build_swarm({"supervisor": work})) as server:
        await server.ask(task_id="t")
        for path in ("/task", "/task/turn", "/task/stream"):
            refused = await read(server, path, seq="1")
            assert refused.status_code == 403
            assert "break_glass" in refused.json()["detail"]
        assert await openings(server) == []
        page = await server.client.get("/audit", headers=server.headers("admin"))
        acts = [(entry["act"], entry["on"], entry["outcome"]) for entry in page.json()["entries"]]
        assert ("request", "GET /task", "refused") in acts
