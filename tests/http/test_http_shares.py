"""Links with which a task's owner lets others read it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.swarm import ActionCore
from mail.testing.agents import View, build_swarm, call, complete, tool_results
from mail.testing.clock import FakeClock

SECRETS = ("ARGUMENT-2", "RESULT-3", "EDITED-4", "OTHER-TASK")
"""What no link shows."""


def work(view: View) -> list[Any]:
    done = tool_results(view.history)
    if len(done) == 0:
        return [call("look_up", key="ARGUMENT-2")]
    if len(done) == 1:
        return [call("pay", to="ARGUMENT-2")]
    return [complete("the answer is 42")]


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HTTPServer]:
    async def look_up(_arguments: dict[str, Any]) -> str:
        return "RESULT-3"

    actions = {
        "look_up": ActionCore("look_up", look_up),
        "pay": ActionCore("pay", look_up, needs_approval=True),
    }
    swarm = build_swarm({"supervisor": work}, actions=actions)
    async with HTTPServer(swarm, clock=clock) as server:
        yield server


async def ask(server: HTTPServer, method: str, path: str, role: str = "user", **more: Any) -> httpx2.Response:
    return await server.client.request(method, path, headers=server.headers(role), **more)


async def share(server: HTTPServer, **given: Any) -> dict[str, Any]:
    answer = await ask(server, "POST", "/task/shares", json={"task_id": "t", **given})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def read(server: HTTPServer, code: str, after: int = 0) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {code}"}
    return await server.client.get("/task/shared", params={"after": after}, headers=headers)


async def acts(server: HTTPServer) -> list[tuple[str, ...]]:
    entries = (await ask(server, "GET", "/audit", "admin")).json()["entries"]
    return [
        tuple(entry[name] for name in ("act", "by", "on", "owner", "outcome")) for entry in reversed(entries)
    ]


async def test_a_link_shows_one_task_and_nothing_that_it_must_not(server: HTTPServer) -> None:
    await server.ask(body="what is it?", task_id="t")
    calls = (await server.task("t"))["pending_tool_calls"]
    decision = {"call_id": calls[0]["call_id"], "decision": "edit", "arguments": {"to": "EDITED-4"}}
    await server.ask(
        body="", task_id="t", resume_from="breakpoint_tool_call", kwargs={"approvals": [decision]}
    )
    await server.ask(body="OTHER-TASK", task_id="other")
    made = await share(server)
    page = await read(server, made["code"])
    assert page.status_code == 200, page.text
    assert page.headers["cache-control"] == "no-store"
    found = page.json()
    assert (found["status"], found["next"]) == ("completed", None)
    kinds = {item["kind"] for item in found["items"]}
    assert {"message", "work", "action", "question", "answer", "turn"} <= kinds
    assert "what is it?" in page.text
    assert "the answer is 42" in page.text
    own = json.dumps((await ask(server, "GET", "/task?task_id=t&items=true")).json())
    assert [word for word in SECRETS if word in own] == ["ARGUMENT-2", "RESULT-3", "EDITED-4"]
    assert [word for word in SECRETS if word in page.text] == []
    later = (await read(server, made["code"], found["seq"])).json()
    assert (later["items"], later["seq"]) == ([], found["seq"])


async def test_it_can_be_listed_and_revoked_and_the_audit_has_all_of_it(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    made = await share(server)
    listed = (await ask(server, "GET", "/task/shares?task_id=t")).json()["shares"]
    assert listed == [{name: made[name] for name in ("number", "created", "expires")}]
    for _ in range(2):
        assert (await read(server, made["code"])).status_code == 200
    path = f"/task/shares/{made['number']}?task_id=t"
    assert (await ask(server, "DELETE", path, "admin")).status_code == 404, "it is not the admin's task"
    assert (await ask(server, "DELETE", f"{path}&caller=user:ann", "admin")).status_code == 200
    assert (await ask(server, "DELETE", path)).status_code == 404
    refused = await read(server, made["code"])
    assert refused.status_code == 404
    assert "revoked" in refused.json()["detail"]
    owner, on = "user:ann@example", f"{made['number']} of t"
    found = [act for act in await acts(server) if "share" in act[0]]
    assert found == [
        ("share task", owner, on, owner, "done"),
        ("read shared task", f"link:{made['number']}", "t", owner, "done"),
        ("revoke share", "admin:root@example", on, "admin:root@example", "refused"),
        ("revoke share", "admin:root@example", on, owner, "done"),
        ("revoke share", owner, on, owner, "refused"),
    ]
    events = [event for event in (await server.task("t"))["events"] if event["event"] == "task_shared"]
    assert len(events) == 2, "given and revoked: its owner sees it, too"


async def test_it_expires(server: HTTPServer, clock: FakeClock) -> None:
    await server.ask(task_id="t")
    code = (await share(server, days=1))["code"]
    clock.advance(86_399)
    assert (await read(server, code)).status_code == 200
    clock.advance(2)
    assert (await read(server, code)).status_code == 404
    assert (await ask(server, "GET", "/task/shares?task_id=t")).json() == {"shares": []}


async def test_it_ends_with_its_task_and_forks_have_none(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    code = (await share(server))["code"]
    fork = (await ask(server, "POST", "/task/fork", json={"task_id": "t"})).json()["task_id"]
    assert (await ask(server, "GET", f"/task/shares?task_id={fork}")).json() == {"shares": []}
    assert (await ask(server, "POST", "/task/cancel", json={"task_id": "t"})).status_code == 200
    assert (await read(server, code)).json()["status"] == "cancelled"
    assert (await ask(server, "DELETE", "/task?task_id=t")).status_code == 200
    await server.ask(task_id="t")
    assert (await read(server, code)).status_code == 404, "not even with a new task of this name"


async def test_codes_that_are_none_are_refused(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    code = (await share(server))["code"]
    name, _, secret = code.partition(".")
    wrong = (
        f"{name}.{'x' * len(secret)}",
        name,
        f"mail_share_.{secret}",
        "mail_share_%.x",
        server.keys["user"],
    )
    for each in wrong:
        assert (await read(server, each)).status_code == 404, each
    assert (await server.client.get("/task/shared")).status_code == 404
    assert (
        await server.client.get("/task", params={"task_id": "t"}, headers={"Authorization": f"Bearer {code}"})
    ).status_code == 401, "and a link is no key"


async def test_a_task_has_ten_links_at_most(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    for _ in range(10):
        await share(server)
    answer = await ask(server, "POST", "/task/shares", json={"task_id": "t"})
    assert answer.status_code == 400
    assert "revoke one" in answer.json()["detail"]


async def test_a_result_that_a_person_gives_is_shown_only_as_the_answer_to_a_question() -> None:
    def policy(view: View) -> list[Any]:
        done = len(tool_results(view.history))
        calls = [call("get_balance", account="ARGUMENT-2")], [call("ask", question="why?")]
        return calls[done] if done < len(calls) else [complete("fine")]

    async def nobody(_arguments: dict[str, Any]) -> str:
        return ""

    tools = {name: ActionCore(name, nobody) for name in ("get_balance", "ask")}
    swarm = build_swarm({"supervisor": policy}, actions=tools, breakpoint_tools=frozenset(tools))
    async with HTTPServer(swarm) as server:
        await server.ask(task_id="t")
        for result in ("RESULT-3", "because"):
            given = {"breakpoint_tool_call_result": result}
            await server.ask(body="", task_id="t", resume_from="breakpoint_tool_call", kwargs=given)
        text = (await read(server, (await share(server))["code"])).text
        assert [word for word in (*SECRETS, "why?", "because") if word in text] == ["why?", "because"]


async def test_the_title_of_a_fork_does_not_say_so(server: HTTPServer) -> None:
    await server.ask(body="what is it?", subject="Tides", task_id="first")
    forked = await ask(server, "POST", "/task/fork", json={"task_id": "first", "at": 1})
    await server.ask(body="what is it?", subject="Fork of the river", task_id="own")
    for task_id, title in ((forked.json()["task_id"], "Tides"), ("own", "Fork of the river")):
        made = await ask(server, "POST", "/task/shares", json={"task_id": task_id})
        assert (await read(server, made.json()["code"])).json()["title"] == title
