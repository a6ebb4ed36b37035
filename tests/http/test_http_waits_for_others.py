"""Protocols on a task that waits for reviewers: they offer its owner no decision that would be refused."""

from typing import Any

from support.processes.http_server import HTTPServer
from test_http_agui import Front
from test_http_approvals import answer_of, decide, serving, waiting

from mail.core.task.approvals import Approval

WAITS = "clerk waits for admin to approve pay(to: eve)"


async def a2a(server: HTTPServer, method: str, **params: Any) -> dict[str, Any]:
    post = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await server.client.post("/a2a", json=post, headers={"A2A-Version": "1.0"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a2a_shows_who_decides_and_goes_on_when_that_is_done() -> None:
    said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "eve"}]}
    async with serving(Approval(by=("admin",))) as server:
        task = (await a2a(server, "SendMessage", message=said))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        words, shown = task["status"]["message"]["parts"]
        assert words["text"] == WAITS
        assert shown["data"]["reviewers"] == ["admin"]
        assert shown["data"]["needs_approval"] is False
        decision = {"approvals": [{"call_id": shown["data"]["call_id"], "decision": "approve"}]}
        own = {**said, "messageId": "m2", "taskId": task["id"], "parts": [{"data": decision}]}
        post = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": own}}
        refused = await server.client.post("/a2a", json=post, headers={"A2A-Version": "1.0"})
        assert refused.status_code == 403
        [asked] = await waiting(server, "admin")
        await decide(server, "admin", asked["id"])
        assert "paid eve" in await answer_of(server, task["contextId"])
        done = (await a2a(server, "GetTask", id=task["id"]))["result"]
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a2a_asks_for_input_while_something_waits_for_its_client() -> None:
    async with serving(Approval(by=("user",))) as server:
        said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "eve"}]}
        task = (await a2a(server, "SendMessage", message=said))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED", "any user may decide, at /approvals"


async def test_ag_ui_interrupts_for_nothing_that_others_decide() -> None:
    async with serving(Approval(by=("admin",))) as server:
        front = Front(server)
        *_, end = await front.run("eve")
        assert end.outcome.type == "success"
        assert len(end.outcome.pending_tool_call_ids) == 1
        assert front.texts() == [WAITS]
        front.say("hurry")
        assert await front.refused(409) == WAITS
        front.messages.pop()
        [asked] = await waiting(server, "admin")
        await decide(server, "admin", asked["id"])
        assert "paid eve" in await answer_of(server)
        await front.run()
        assert "paid eve" in front.texts()[-1]
