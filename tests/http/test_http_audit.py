"""The stored audit: no act with rights without an entry, read, filtered and exported by admins."""

import dataclasses
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.client import MAILClient
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import Document, Kind, PutIf
from mail.errors import StoreUnavailable
from mail.http.audit import SAME_SECONDS
from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock

Entry = dict[str, Any]


class Refusing(SQLiteDocuments):
    """Documents of a store that may take no entry of the audit, or not how an act ended."""

    conditions: frozenset[PutIf] = frozenset()

    async def put(
        self, kind: Kind, document: Document, *, condition: PutIf = PutIf.ALWAYS, **given: Any
    ) -> bool:
        if kind is Kind.AUDIT and condition in self.conditions:
            raise StoreUnavailable
        return await super().put(kind, document, condition=condition, **given)


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
    async with HTTPServer(swarm, clock=clock) as server:
        yield server


@pytest.fixture
def documents(server: HTTPServer) -> Refusing:
    made = Refusing(server.rig.database)
    server.app.service = dataclasses.replace(server.service, documents=ServerDocuments(made))
    return made


async def audit(server: HTTPServer, **query: Any) -> dict[str, Any]:
    page: dict[str, Any] = await server.get("/audit", "admin", **query)
    return page


async def entries(server: HTTPServer, **query: Any) -> list[Entry]:
    found: list[Entry] = (await audit(server, **query))["entries"]
    return [entry for entry in found if entry["act"] != "read audit"]


async def create_token(server: HTTPServer, name: str, role: str = "admin") -> int:
    body = {"role": "user", "id": name}
    return (await server.client.post("/tokens", json=body, headers=server.headers(role))).status_code


async def test_an_act_is_stored_with_who_what_whose_from_where_and_its_outcome(server: HTTPServer) -> None:
    assert await create_token(server, "eve") == 201
    await server.ask(task_id="t")
    gone = await server.client.delete(
        "/task", params={"task_id": "t", "caller": "user:ann"}, headers=server.headers("admin")
    )
    assert gone.status_code == 200
    assert await create_token(server, "eve", "user") == 403
    request, deleted, created = await entries(server)
    assert created["on"].startswith("user:eve ")
    root = {"by": "admin:root@example", "address": "127.0.0.1", "reason": "", "outcome": "done"}
    assert created.items() >= {**root, "act": "create token", "owner": None}.items()
    assert deleted.items() >= {**root, "act": "delete task", "on": "t", "owner": "user:ann@example"}.items()
    assert request.items() >= {"by": "user:ann@example", "act": "request", "outcome": "refused"}.items()
    assert request["on"] == "POST /tokens"


async def test_a_plain_request_leaves_nothing(server: HTTPServer, documents: Refusing) -> None:
    documents.conditions = frozenset(PutIf)
    await server.ask(task_id="t")
    for path in ("/task?task_id=t", "/tasks", "/dead-letters", "/usage", "/task/turns?task_id=t"):
        assert (await server.client.get(path)).status_code == 200, path
    documents.conditions = frozenset()
    assert await entries(server) == []


async def test_nothing_is_done_without_an_entry(server: HTTPServer, documents: Refusing) -> None:
    documents.conditions = frozenset({PutIf.ABSENT})
    known = len(await server.records.tokens())
    assert await create_token(server, "eve") == 503
    assert len(await server.records.tokens()) == known, "it was not begun"
    admin = server.headers("admin")
    listed = await server.client.get("/tasks?all=true&fields=summary", headers=admin)
    assert listed.status_code == 503, "what is read isn't sent"
    assert await create_token(server, "eve", "user") == 403, "a refusal stays one"
    documents.conditions = frozenset()
    assert await entries(server) == []


async def test_an_act_whose_outcome_was_not_stored_stays_started(
    server: HTTPServer, documents: Refusing, caplog: pytest.LogCaptureFixture
) -> None:
    documents.conditions = frozenset({PutIf.PRESENT})
    assert await create_token(server, "eve") == 201, "it is done"
    (entry,) = await entries(server)
    assert (entry["act"], entry["on"], entry["outcome"]) == ("create token", "user:eve", "started")
    assert f"the outcome of {entry['id']} could not be stored" in caplog.text


async def test_a_read_that_is_repeated_is_one_entry_an_hour(server: HTTPServer, clock: FakeClock) -> None:
    async def look() -> None:
        answer = await server.client.get("/dead-letters", headers=server.headers("admin"))
        assert answer.status_code == 200

    for _ in range(3):
        await look()
    assert [entry["act"] for entry in await entries(server)] == ["list dead letters"]
    clock.advance(SAME_SECONDS)
    await look()
    assert len(await entries(server)) == 2
    assert len(await entries(server, act="read audit")) == 0
    assert len((await audit(server, act="read audit"))["entries"]) == 2, "reading it is an act, too"


async def test_entries_are_filtered_by_caller_act_and_time(server: HTTPServer, clock: FakeClock) -> None:
    began = clock.now()
    for name in ("a", "b", "c"):
        await create_token(server, name)
        clock.advance(60)
    await create_token(server, "d", "user")
    whole = await entries(server)
    assert [entry["on"].split()[0] for entry in whole] == ["POST", "user:c", "user:b", "user:a"]
    assert await entries(server, caller="user:ann") == whole[:1]
    assert await entries(server, caller="user:ann@example", act="create token") == []
    assert await entries(server, act="create token") == whole[1:]
    assert await entries(server, since=(began + timedelta(seconds=60)).isoformat()) == whole[:3]
    assert await entries(server, until=(began + timedelta(seconds=60)).isoformat()) == whole[3:]
    for query in ({"act": "dance"}, {"since": "yesterday"}, {"limit": 0}, {"cursor": "é"}):
        answer = await server.client.get("/audit", params=query, headers=server.headers("admin"))
        assert answer.status_code == 400, query


async def test_pages_and_json_lines(
    server: HTTPServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await create_token(server, f"t{number}")
        clock.advance(1)
    async with MAILClient(server.uvicorn.url, api_key=server.keys["admin"]) as client:
        whole = await client.get_audit(act="create token")
        assert [entry["on"].split()[0] for entry in whole] == [f"user:t{n}" for n in reversed(range(7))]
        monkeypatch.setattr("mail.http.routes.audit.SCANNED", 2)
        assert await client.get_audit(act="create token") == whole
        assert await client.get_audit(act="create token", limit=3) == whole[:3]
        assert await client.get_audit(act="revoke token") == []
    lines, query = b"", {"lines": "true", "limit": "3", "until": whole[0]["time"]}
    while True:
        page = await server.client.get("/audit", params=query, headers=server.headers("admin"))
        assert page.headers["content-type"] == "application/jsonl"
        lines += page.content
        if "X-Next-Cursor" not in page.headers:
            break
        query["cursor"] = page.headers["X-Next-Cursor"]
    assert [json.loads(line) for line in lines.splitlines()] == whole[1:]


async def test_entries_expire_after_their_days(clock: FakeClock) -> None:
    swarm = build_swarm({"supervisor": lambda _: [complete("hi")]})
    async with HTTPServer(swarm, clock=clock, audit_seconds=86_400.0) as server:
        await create_token(server, "a")
        clock.advance(86_399)
        await create_token(server, "b")
        assert len(await entries(server)) == 2
        clock.advance(1)
        await create_token(server, "c")
        assert [entry["on"].split()[0] for entry in await entries(server)] == ["user:c", "user:b"]
