"""What admins may do with the tasks and webhooks of other callers: stop and measure them, not read them."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer, eventually
from support.services.webhook_receiver import WebhookReceiver

from mail.adapters.telemetry.json_log import JSONFormatter
from mail.auth.keys import digest
from mail.core.protocol.address import Principal
from mail.core.task.activity import model_call
from mail.core.task.usage import Usage
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait

SECRETS = ("the plan", "the cellar", "nobody must know", "the key")
PAID = Usage(calls=1, input_tokens=12, output_tokens=3, cost=0.5)


class Works:
    """The supervisor asks, the worker digs with an action; "wait" makes the action wait."""

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()

    def supervise(self, view: View) -> Sequence[Call]:
        if view.mail.sender_type == "agent":
            return [complete(f"the key is in {view.mail.body}")]
        with model_call("openai/gpt-5-mini") as called:
            called.report(PAID)
        return [request("worker", view.mail.body, subject="nobody must know"), wait("for it")]

    def work(self, view: View) -> Sequence[Call]:
        if view.mail.sender_type == "system":
            return [respond("supervisor", "the cellar")]
        return [call("dig", where=view.mail.body)]

    async def dig(self, arguments: dict[str, Any]) -> str:
        if "wait" in arguments["where"]:
            self.begun.set()
            await self.open.wait()
        if "fail" in arguments["where"]:
            raise ValueError("the plan was wrong")
        return "the cellar"


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
async def server(works: Works) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": works.supervise, "worker": works.work}, actions={"dig": works.dig})
    async with HTTPServer(swarm) as server:
        yield server


async def get(server: HTTPServer, path: str, role: str = "admin", **query: Any) -> httpx2.Response:
    return await server.client.get(path, params=query, headers=server.headers(role))


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "mail.audit"]


# --------------------------------------------------------------------------------------------- the audit log


async def test_acts_with_rights_are_one_kind_of_line(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("mail").setLevel(logging.ERROR)
    admin, ann = server.headers("admin"), server.headers("user")
    try:
        made = await server.client.post("/tokens", json={"role": "user", "id": "eve"}, headers=admin)
        number = made.json()["number"]
        await server.client.delete(f"/tokens/{number}", headers=admin)
        await server.client.delete("/tokens/none%0Aroot: forged", headers=admin)
        await server.client.post("/swarms", json={"name": "b", "base_url": "http://b"}, headers=admin)
        await server.client.post("/health", json={"status": "draining"}, headers=admin)
        await get(server, "/tasks", all="true", fields="summary")
        await server.ask(body="dig", task_id="own")
        await get(server, "/tasks", "user")
        await server.client.post("/task/cancel", json={"task_id": "own"}, headers=ann)
        await get(server, "/dead-letters", caller="user:ann")
        code = (await server.client.post("/sign-in-links", headers=ann)).json()["code"]
        first = (await server.client.post("/sign-in", json={"code": code})).json()["token"]
        await server.client.post("/sign-out", headers={"Authorization": f"Bearer {first}"})
        await get(server, "/tokens", "user")
        await get(server, "/dead-letters", "user", caller="user:eve")
        code = (await server.client.post("/sign-in-links", headers=admin)).json()["code"]
        session = (await server.client.post("/sign-in", json={"code": code})).json()["token"]
        headers = {"Authorization": f"Bearer {session}"}
        await server.client.post("/tokens", json={"role": "user", "id": "eve"}, headers=headers)
    finally:
        logging.getLogger("mail").setLevel(logging.NOTSET)
    lines = [json.loads(JSONFormatter().format(record)) for record in caplog.records]
    root, user = "admin:root@example", "user:ann@example"
    assert {(line["logger"], line["address"]) for line in lines} == {("mail.audit", "127.0.0.1")}
    assert [(line["by"], line["act"], line["on"], line["owner"], line["outcome"]) for line in lines] == [
        (root, "create token", f"user:eve {number}", None, "done"),
        (root, "revoke token", f"user:eve {number}", None, "done"),
        (root, "revoke token", "none\nroot: forged", None, "refused"),
        (root, "register swarm", "b", None, "refused"),
        (root, "set health", "draining", None, "done"),
        (root, "list tasks", "", None, "done"),
        (user, "cancel task", "own", user, "refused"),
        (root, "list dead letters", "", user, "done"),
        (user, "make sign-in link", "", None, "done"),
        (user, "sign in", digest(first)[:12], None, "done"),
        (user, "sign out", "", None, "done"),
        (user, "request", "GET /tokens", None, "refused"),
        (user, "request", "GET /dead-letters", None, "refused"),
        (root, "make sign-in link", "", None, "done"),
        (root, "sign in", digest(session)[:12], None, "done"),
        (root, "create token", "user:eve", None, "refused"),
    ]
    assert not [line for line in audit_lines(caplog) if "\n" in line], "a path forges no line"


# ------------------------------------------------------------------------------------------------- tasks


async def test_an_admin_stops_a_runaway(
    server: HTTPServer, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    await server.post(body="wait", task_id="t", headers={"Prefer": "respond-async"})
    await works.begun.wait()
    body = {"task_id": "t", "caller": "user:ann", "reason": "too expensive"}
    refused = await server.client.post(
        "/task/cancel", json={**body, "caller": "user:bob"}, headers=server.headers("user")
    )
    assert refused.status_code == 403
    unknown = await server.client.post("/task/cancel", json={"task_id": "t"}, headers=server.headers("admin"))
    assert unknown.status_code == 404, "without a caller it is the admin's own"
    caplog.clear()
    answer = await server.client.post("/task/cancel", json=body, headers=server.headers("admin"))
    assert (answer.status_code, answer.json()["stopped"]) == (200, True)
    assert answer.json()["by"] == "admin:root@example"
    assert audit_lines(caplog) == [
        "admin:root@example: cancel task 't' of user:ann@example, from 127.0.0.1: done"
    ]
    record = await server.task("t")
    assert (record["status"], record["cancellation"]["by"]) == ("cancelled", "admin:root@example")


async def test_turns_are_listed_without_their_texts(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    await server.ask(body="the plan: fail", task_id="t")
    answer = await get(server, "/task/turns", task_id="t", caller="user:ann")
    assert answer.status_code == 200, answer.text
    assert not [secret for secret in SECRETS if secret in answer.text]
    assert audit_lines(caplog) == [
        "admin:root@example: read turns of task 't' of user:ann@example, from 127.0.0.1: done"
    ]
    found = answer.json()
    assert found["caller"] == "user:ann@example"
    first, digs, *_, last = found["turns"]
    assert (first["agent"], first["state"], first["usage"]["cost"]) == ("supervisor", "ok", 0.5)
    assert first["timing"]["model_calls"][0]["model"] == "openai/gpt-5-mini"
    assert (digs["agent"], digs["state"], digs["actions"], digs["failed_actions"]) == (
        "worker",
        "failed",
        1,
        1,
    )
    assert (last["agent"], last["actions"]) == ("supervisor", 0)
    own = await get(server, "/task/turns", "user", task_id="t")
    assert own.json() == found
    assert (await get(server, "/task/turns", "user", task_id="t", caller="user:bob")).status_code == 403
    assert (await get(server, "/task/turns", task_id="t")).status_code == 404


async def test_turns_come_in_pages(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.ask(body="go", task_id="t")
    whole = (await get(server, "/task/turns", "user", task_id="t")).json()["turns"]
    monkeypatch.setattr("mail.http.routes.turns.EVENT_PAGE_BYTES", 1)
    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        page = await get(server, "/task/turns", "user", task_id="t", **query)
        found += page.json()["turns"]
        if "X-Next-Cursor" not in page.headers:
            break
        query["cursor"] = page.headers["X-Next-Cursor"]
    assert found == whole
    assert len(found) >= 4


# ---------------------------------------------------------------------------------------------- webhooks


async def test_an_admin_sees_and_disables_a_callers_webhook(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.send_webhooks(retry_seconds=(3600,))
    with WebhookReceiver(500) as receiver:
        url = f"{receiver.url}?token=hidden"
        await server.client.post("/webhooks", json={"url": url}, headers=server.headers("user"))
        await server.ask(body="go", task_id="t")

        async def failing() -> bool:
            found = (await get(server, "/webhooks", all="true")).json()["webhooks"]
            return bool(found and found[0]["failing"])

        await eventually(failing)
        answer = await get(server, "/webhooks", all="true")
        (hook,) = answer.json()["webhooks"]
        assert "hook?" not in answer.text
        assert hook["host"] == f"http://127.0.0.1:{receiver.port}"
        assert (hook["caller"], hook["tasks"], hook["waiting"]) == ("user:ann@example", 1, 1)
        assert None not in (hook["next_try"], hook["created"])

        path = f"/webhooks/{hook['id']}"
        refused = await server.client.delete(
            path, params={"caller": "admin:root"}, headers=server.headers("user")
        )
        assert refused.status_code == 403
        assert (await get(server, "/webhooks", "user", all="true")).status_code == 403
        done = await server.client.delete(
            path, params={"caller": "user:ann"}, headers=server.headers("admin")
        )
        assert done.json() == {"status": "deleted", "id": hook["id"], "tasks": 1}
        assert f"disable webhook {hook['id']!r} of user:ann@example" in caplog.text
        assert (await get(server, "/webhooks", all="true")).json() == {"webhooks": []}
        assert (await get(server, "/webhooks", "user", task_id="t")).json() == {"webhooks": []}
        last = (await server.task("t"))["events"][-1]
        assert last["event"] == "webhook_error"
        assert "removed by admin:root@example" in last["data"]
        again = await server.client.delete(
            path, params={"caller": "user:ann"}, headers=server.headers("admin")
        )
        assert again.status_code == 404


@pytest.mark.parametrize("status", [200, 500])
async def test_a_delivery_that_runs_survives_the_removal(server: HTTPServer, status: int) -> None:
    """The webhook is removed while an event is being sent: the turn ends, and nothing waits."""
    server.send_webhooks(retry_seconds=(3600,))
    sent, answered = asyncio.Event(), asyncio.Event()
    webhooks = server.rig.runtime.webhooks
    assert webhooks is not None
    send = webhooks.send

    async def send_slowly(*given: Any, **more: Any) -> Any:
        sent.set()
        await answered.wait()
        return await send(*given, **more)

    webhooks.send = send_slowly  # type: ignore[method-assign]
    with WebhookReceiver(status) as receiver:
        await server.ask(body="go", task_id="t", webhook={"url": receiver.url})
        await sent.wait()
        rig = server.rig
        (task,) = (await rig.store.list_tasks("user:ann@example")).tasks
        (hook_id,) = task.webhooks
        admin = Principal(role="admin", id="root", swarm=rig.swarm.name)
        assert await rig.runtime.remove_webhook(admin, task, hook_id)
        answered.set()
        await rig.workers.idle()
    (after,) = (await server.rig.store.list_tasks("user:ann@example")).tasks
    assert not after.webhooks
    assert (after.seq, after.status) == (task.seq + 2, "completed"), "its removal, and the delivery"
