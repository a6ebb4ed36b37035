"""Large tasks over HTTP: pages that end by size, answers that are streamed, and how many of them a caller may read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer, eventually

from mail.auth.keys import Caller
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.engine.pacing import PIECE_BYTES
from mail.core.task.change import InboxEntry
from mail.core.task.task import TaskKey
from mail.http import task_records
from mail.http.account import PIECE_FACTOR, READ_BYTES
from mail.testing.agents import Call, View, build_swarm, complete

ANN = Caller("user", "ann")
LONG = "ü\n" * 100_000


def answer(view: View) -> list[Call]:
    """Answer with a short text, so that only the message is long."""
    return [complete(f"{len(view.mail.body)} characters")]


@pytest.fixture
async def large() -> AsyncIterator[HTTPServer]:
    """A server on which a task has a few hundred kilobytes."""
    async with HTTPServer(build_swarm({"supervisor": answer}), debug=True) as server:
        yield server


async def pages(server: HTTPServer, path: str, **query: str) -> list[dict[str, Any]]:
    """Follow the links from page to page."""
    found = []
    response = await server.client.get(path, params=query)
    while True:
        assert response.status_code == 200, response.text
        found.append(response.json())
        if "next" not in response.links:
            assert "x-next-cursor" not in response.headers
            return found
        response = await server.client.get(response.links["next"]["url"])


async def test_a_summary_is_the_record_without_events_and_mail(large: HTTPServer) -> None:
    await large.ask(task_id="a")
    await large.ask(task_id="b")
    record = await large.task("a")
    assert record.pop("events")
    assert record.pop("task_message_queue") == []
    assert record["stored_bytes"] > 1000
    response = await large.client.get("/tasks", params={"fields": "summary"})
    assert list(response.json()) == ["b", "a"]
    assert response.json()["a"] == record
    response = await large.client.get("/task", params={"task_id": "a", "fields": "summary"})
    assert response.json() == record
    assert response.headers["etag"] == '"1"'
    assert (await pages(large, "/tasks", fields="summary", limit="1"))[1].keys() == {"a"}
    none = await large.client.get("/tasks", params={"fields": "summary", "status": "paused"})
    assert none.json() == {}
    assert (await large.client.get("/tasks", params={"fields": "all"})).status_code == 400


async def test_a_page_of_tasks_ends_by_size(large: HTTPServer) -> None:
    for n in range(5):
        await large.ask(body=LONG, task_id=f"long{n}")
    await large.ask(task_id="short")
    [whole] = await pages(large, "/tasks")
    large.app.service = replace(
        large.service, page_bytes=sum(whole[f"long{n}"]["stored_bytes"] for n in (0, 1))
    )
    parts = await pages(large, "/tasks")
    assert [list(part) for part in parts] == [["short", "long4"], ["long3", "long2"], ["long1", "long0"]]
    assert {task_id: task for part in parts for task_id, task in part.items()} == whole
    assert [len(part) for part in await pages(large, "/tasks", fields="summary")] == [6]


async def test_a_large_answer_is_streamed_and_the_same(large: HTTPServer) -> None:
    for n in range(4):
        await large.ask(body=f"{n}{LONG}", task_id="t")
    async with large.client.stream("GET", "/task", params={"task_id": "t"}) as response:
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["content-type"] == "application/json"
        assert response.headers["etag"] == '"4"'
        content = await response.aread()
    assert len(content) > 2**20
    record = json.loads(content)
    assert [int(event["id"]) for event in record["events"]] == list(range(1, record["seq"] + 1))
    data = [json.loads(event["data"]) for event in record["events"]]
    bodies = [
        each["extra_data"]["full_message"]["message"]["body"]
        for each in data
        if "full_message" in each.get("extra_data", {})
    ]
    assert [body for body in bodies if len(body) > 1000] == [f"{n}{LONG}" for n in range(4)]
    assert large.service.account.is_empty


async def test_events_come_in_pages(large: HTTPServer) -> None:
    for n in range(6):
        await large.ask(body=f"{n}{LONG}", task_id="t")
    whole = await large.task("t")
    parts = await pages(large, "/task", task_id="t", after="0")
    assert len(parts) > 1
    assert [event for part in parts for event in part["events"]] == whole["events"]
    for part in parts:
        assert part | {"events": whole["events"]} == whole
    few = await pages(large, "/task", task_id="t", limit="4")
    assert [event for part in few for event in part["events"]] == whole["events"]
    assert max(len(part["events"]) for part in few) == 4
    assert (await pages(large, "/task", task_id="t", after=str(whole["seq"])))[0]["events"] == []
    refused = await large.client.get("/task", params={"task_id": "t", "at": "2", "limit": "3"})
    assert refused.status_code == 400


async def test_one_large_answer_too_many_is_refused(large: HTTPServer) -> None:
    for n in range(4):
        await large.ask(body=LONG, task_id="t" if n < 3 else "small")
    account = large.service.account
    account.count(ANN, account.share - READ_BYTES + 1, 0, 0)
    refused = await large.client.get("/task", params={"task_id": "t"})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "wait for the answers to the others first" in refused.json()["detail"]
    assert (await large.client.get("/threads")).status_code == 429
    assert (await large.client.get("/task", params={"task_id": "small"})).status_code == 200
    assert (await large.client.get("/tasks", params={"fields": "summary"})).status_code == 200
    account.count(ANN, -1, 0, 0)
    assert (await large.task("t"))["generation"] == 3
    account.count(ANN, READ_BYTES - account.share, 0, 0)
    assert (await large.client.get("/threads")).status_code == 200
    assert account.is_empty


async def test_a_client_that_goes_away_gives_its_place_back(large: HTTPServer) -> None:
    for _ in range(8):
        await large.ask(body=LONG * 4, task_id="t")
    for _ in range(8):
        async with large.client.stream("GET", "/task", params={"task_id": "t"}) as response:
            assert response.status_code == 200
            await anext(response.aiter_raw())
        await eventually(lambda: large.service.account.is_empty)


async def test_long_timelines_are_read_in_slices(large: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no request has a whole one in memory."""
    for n in range(4):
        await large.ask(body=f"{n}{LONG}", task_id="t")
    store = large.rig.store
    sizes: list[int] = []

    async def read_events(*arguments: Any, **options: Any) -> Any:
        events = await read(*arguments, **options)
        assert options.get("max_bytes") is not None
        sizes.append(sum(len(event.message.message.body) for event in events if event.message))
        return events

    read = store.read_events
    monkeypatch.setattr(store, "read_events", read_events)
    whole = ("/tasks", "/task?task_id=t", "/threads", "/threads/t", "/responses/resp_t_4")
    for path in (*whole, "/task?task_id=t&limit=100"):
        assert (await large.client.get(path)).status_code == 200
    async with large.frames("GET", "/task/stream?task_id=t&last_event_id=0") as frames:
        assert len([frame async for frame in frames]) > 10
    assert len(sizes) > 10
    assert max(sizes) <= 4 * len(LONG)


async def test_where_answers_are_buffered_one_that_is_too_large_says_what_to_do() -> None:
    async with HTTPServer(build_swarm({"supervisor": answer}), max_answer_bytes=500_000) as server:
        await server.ask(body=LONG * 2, task_id="t")
        for path in ("/task?task_id=t", "/tasks"):
            response = await server.client.get(path)
            assert response.status_code == 413
            assert "fields=summary" in response.json()["detail"]
        response = await server.client.get("/threads/t")
        assert response.status_code == 413
        assert "in pages" in response.json()["detail"]
        assert (await server.client.get("/tasks?fields=summary")).json()["t"]["status"] == "completed"


async def test_an_answer_with_its_events_is_streamed_or_says_where_to_look(large: HTTPServer) -> None:
    answered = await large.ask(body=LONG * 4, task_id="t", show_events=True)
    record = await large.task("t")
    assert [event | {"data": json.dumps(event["data"])} for event in answered["events"]] == [
        event | {"data": json.dumps(json.loads(event["data"]))} for event in record["events"]
    ]
    large.app.service = replace(large.service, max_answer_bytes=100_000)
    response = await large.post(body=LONG, task_id="u", show_events=True)
    assert response.status_code == 202
    assert response.headers["location"] == "/task?task_id=u"
    assert (await large.ask(task_id="v", show_events=True))["events"]


async def test_a_message_for_a_full_task_is_413(large: HTTPServer) -> None:
    large.rig.runtime.caller_limits = CallerLimits(task_bytes=20_000)
    assert (await large.ask(task_id="t"))["response"] == "5 characters"
    response = await large.post(body="x" * 20_000, task_id="t")
    assert response.status_code == 413
    assert "start a new task" in response.json()["detail"]
    answered = await large.ask(body="x" * 9_000, task_id="t")
    assert "the task may store 20000 bytes" in answered["response"]
    assert (await large.task("t"))["status"] == "failed"


@asynccontextmanager
async def with_mail_in_its_past() -> AsyncIterator[tuple[HTTPServer, int]]:
    """A server whose task "t" has ended; after the event that is given, five long messages waited in it."""
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate), debug=True) as server:
        for n in range(5):
            posted = await server.post(body=f"{n}{LONG}", task_id="t", headers={"Prefer": "respond-async"})
            assert posted.status_code == 202
        at = (await server.task("t"))["seq"]
        gate.set()
        await server.until(lambda task: task["completed"] and not task["task_message_queue"])
        yield server, at


async def test_mail_that_waited_is_read_as_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_mail_in_its_past() as (server, at):
        steps: list[str] = []
        store = server.rig.store

        async def read_events(*arguments: Any, **options: Any) -> Any:
            steps.extend(["read"] if options.get("limit") == 1 else [])
            return await read(*arguments, **options)

        def queued_message(entry: InboxEntry) -> dict[str, Any]:
            steps.append(entry.message.message.body[0])
            return sent(entry)

        read, sent = store.read_events, task_records.queued_message
        monkeypatch.setattr(store, "read_events", read_events)
        monkeypatch.setattr(task_records, "queued_message", queued_message)
        assert (await server.client.get("/task", params={"task_id": "t", "at": at})).status_code == 200
        assert steps == ["read", "0", "read", "1", "read", "2", "read", "3", "read", "4"]


async def test_a_fork_holds_the_mail_that_waited_then() -> None:
    async with with_mail_in_its_past() as (server, at):
        account = server.service.account
        account.count(ANN, account.share - READ_BYTES, 0, 0)
        refused = await server.client.post("/task/fork", json={"task_id": "t", "at": at})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await server.client.post("/task/fork", json={"task_id": "t"})).status_code == 201
        account.count(ANN, READ_BYTES - account.share, 0, 0)
        forked = await server.client.post("/task/fork", json={"task_id": "t", "at": at})
        assert (forked.status_code, forked.json()["waiting"]) == (201, 5)
        assert account.is_empty


async def test_the_items_of_the_past_come_in_pieces(large: HTTPServer) -> None:
    """And all of them are held, as later events change earlier ones."""
    for _ in range(4):
        await large.ask(body="x" * 50_000, task_id="t")
    task = await large.rig.task(TaskKey("user:ann@example", "t"))
    snapshot = await large.rig.store.read_snapshot(task.key, task.seq)
    pieces = await task_records.snapshot_pieces(large.service, snapshot, large.rig.runtime.pacer, items=True)
    sizes = []
    whole = b""
    async for piece in pieces:
        sizes.append(len(piece))
        whole += piece
    assert max(sizes) < 3 * PIECE_BYTES
    query = {"task_id": "t", "at": str(task.seq), "items": "true"}
    answer = await large.client.get("/task", params=query)
    assert answer.json() == json.loads(whole)
    assert len(answer.json()["items"]) >= 4
    account = large.service.account
    account.count(ANN, account.share - task.stored_bytes * PIECE_FACTOR, 0, 0)
    assert (await large.client.get("/task", params=query)).status_code == 429
    del query["items"]
    assert (await large.client.get("/task", params=query)).status_code == 200


async def test_a_turn_holds_what_is_read_of_it(large: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much that is: 8 MiB are held for any large task."""
    body = "x" * (READ_BYTES // PIECE_FACTOR)
    await large.ask(body=body, task_id="t")
    account, most = large.service.account, 0
    count = account.count

    def counting(caller: Caller | None, size: int, pieces: int, streams: int) -> None:
        nonlocal most
        count(caller, size, pieces, streams)
        most = max(most, account._bytes.total())

    monkeypatch.setattr(account, "count", counting)
    turn = await large.client.get("/task/turn", params={"task_id": "t", "seq": "2"})
    assert len(turn.json()["mail"][0]["message"]["message"]["body"]) == len(body)
    assert most >= 2 * len(body) * PIECE_FACTOR, "the message, and the portion of the history with it"
    assert account.is_empty


SAID = {"messageId": "m", "contextId": "t", "role": "ROLE_USER", "parts": [{"text": "more"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/a2a", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": SAID}}),
        (
            "/mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ask", "arguments": {"message": "more", "task_id": "t"}},
            },
        ),
        (
            "/ag-ui",
            {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "more"}]},
        ),
    ],
)
async def test_a_protocol_holds_what_reading_the_task_of_a_message_takes(
    large: HTTPServer, path: str, body: dict[str, Any]
) -> None:
    """Before it submits the message, as it follows the whole run."""
    await large.ask(body="x" * 200_000, task_id="t")
    account = large.service.account
    account.count(ANN, account.share - 1000, 0, 0)
    headers = {
        "A2A-Version": "1.0",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    refused = await large.client.post(path, json=body, headers=headers)
    assert "are the limit; wait for the answers to the others first" in refused.text
    account.count(ANN, 1000 - account.share, 0, 0)
    assert account.is_empty
    assert (await large.task("t"))["generation"] == 1
    assert "are the limit" not in (await large.client.post(path, json=body, headers=headers)).text
    assert (await large.task("t"))["generation"] == 2
