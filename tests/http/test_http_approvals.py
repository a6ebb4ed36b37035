"""Reviewers over HTTP: who sees and decides what, the links in webhooks, and what ends them."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer
from support.services.webhook_receiver import Got, WebhookReceiver

from mail.adapters.sqlite.search import index_of
from mail.auth.keys import Caller
from mail.core.engine.pacing import PIECE_BYTES
from mail.core.engine.reviews import LOADED_AT_ONCE
from mail.core.task.approvals import Approval
from mail.core.task.ports import TaskPage
from mail.core.task.search import Search
from mail.core.task.size import MAX_HELD, paused_size
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.http.account import LIST_BYTES, PIECE_FACTOR
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock

SECRET = "${WEBHOOK_SECRET_REVIEWS}"
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
HOSTILE = '</pre><script>alert("x")</script>\u202e'


def swarm(rule: Approval, *, timeout: float | None = None) -> SwarmCore:
    """Pays whom its message names, a line each, if it is approved, and asks what ends in "?"; its user looks up "self".

    It answers with the results. The same people approve and answer.
    """

    async def pay(arguments: dict[str, Any]) -> str:
        return f"paid {arguments['to']}"

    def clerk(view: View) -> Any:
        if view.results:
            return [complete(" | ".join(view.results))]
        lines = view.mail.body.splitlines()
        return [
            call("ask", question=each)
            if each[-1] == "?"
            else call("look_up", key=each)
            if each.startswith("self")
            else call("pay", to=each)
            for each in lines
        ]

    action = ActionCore(
        "pay", pay, parameters=SCHEMA, needs_approval=True, reviewers=rule, approval_timeout=timeout
    )
    asked = ActionCore("ask", pay, reviewers=rule.but(otherwise="reject"), approval_timeout=timeout)
    breakpoint_tools = frozenset({"ask", "look_up"})
    return build_swarm(
        {"clerk": clerk}, actions={"pay": action, "ask": asked}, breakpoint_tools=breakpoint_tools
    )


@asynccontextmanager
async def serving(rule: Approval, **settings: Any) -> AsyncIterator[HTTPServer]:
    timeout = settings.pop("timeout", None)
    async with HTTPServer(swarm(rule, timeout=timeout), **settings) as server:
        server.keys["bob"] = await server.key("user", "bob")
        server.keys["ann as admin"] = await server.key("admin", "ann")
        server.rig.runtime.base_url = server.uvicorn.url
        server.send_webhooks({"WEBHOOK_SECRET_REVIEWS": "a secret"}, retry_seconds=(0.01,))
        yield server


async def waiting(server: HTTPServer, who: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get("/approvals", who))["approvals"]
    return found


async def decide(server: HTTPServer, who: str, approval_id: str, status: int = 200, **body: Any) -> Any:
    """The answer to a decision, which has this status."""
    body, headers = {"decision": "approve", **body}, server.headers(who)
    answer = await server.client.post(f"/approvals/{approval_id}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def answer_of(server: HTTPServer, task_id: str = "t") -> str:
    """The answer of a task that resumes by somebody else's decision."""

    await server.until(lambda task: not task["is_running"], task_id)
    return str((await events_of(server, task_id))[-1]["response"])


async def events_of(server: HTTPServer, task_id: str, kind: str = "task_complete") -> list[dict[str, Any]]:
    events = (await server.task(task_id))["events"]
    return [json.loads(each["data"]) for each in events if each["event"] == kind]


async def test_a_reviewer_sees_and_decides_the_call_only() -> None:
    async with serving(Approval(by=("admin",))) as server:
        paused = await server.ask(body="eve", subject="Quarrel", task_id="t")
        assert json.loads(paused["response"])[0]["reviewers"] == ["admin"]
        (seen,) = await waiting(server, "admin")
        text = seen.pop("arguments_text")
        assert seen.pop("arguments_sha256") == sha256(text.encode()).hexdigest()
        assert seen == {
            "id": seen["id"], "agent": "clerk", "name": "pay", "arguments": {"to": "eve"},
            "asked": seen["asked"], "decide_by": None, "requested_by": "user:ann@example", "reviewers": ["admin"],
            "task_id": None, "title": None, "can_decide": True, "needs_approval": True, "question": "",
        }  # fmt: skip
        for path in ("/task?task_id=t", "/task/stream?task_id=t", f"/approvals/{seen['id']}x"):
            refused = await server.client.get(path, headers=server.headers("admin"))
            assert refused.status_code == 404
        one = await server.client.get(f"/approvals/{seen['id']}", headers=server.headers("admin"))
        assert one.json()["arguments"] == {"to": "eve"}
        await decide(server, "admin", seen["id"], 409, arguments_sha256="0" * 64)
        done = await decide(
            server, "admin", seen["id"], arguments={"to": "bob"}, decision="edit", reason="not her"
        )
        assert done == {"id": seen["id"], "decision": "edit"}
        assert "paid bob" in await answer_of(server)
        (asked,) = await events_of(server, "t", "approval_requested")
        assert asked["extra_data"]["reviewers"] == ["admin"]
        (by,) = await events_of(server, "t", "breakpoint_action_complete")
        facts = by["extra_data"]
        assert (facts["by"], facts["decision"], facts["reason"]) == ("admin:root@example", "edit", "not her")
        assert by["timestamp"]
        assert await waiting(server, "admin") == await waiting(server, "user") == []
        await decide(server, "admin", seen["id"], 404)
        audit = await server.client.get("/audit", headers=server.headers("admin"))
        facts = [
            (each["by"], each["on"], each["owner"], each["outcome"])
            for each in audit.json()["entries"]
            if each["act"] == "decide on call"
        ]
        about = ("admin:root@example", seen["id"], "user:ann@example")
        assert facts == [(*about, "done"), (*about, "refused")]


async def test_who_may_not_decide() -> None:
    async with serving(Approval(by=("admin", "user:bob"), not_requester=True)) as server:
        await server.ask(body="eve", task_id="t")
        (own,) = await waiting(server, "user")
        assert (own["task_id"], own["can_decide"]) == ("t", False)
        refused = await decide(server, "user", own["id"], 403)
        assert "admin and user:bob may decide" in refused["detail"]
        for answer in (
            await server.post(body="", task_id="t", approvals=[{"decision": "approve"}]),
            await server.post(body="", task_id="t", approvals=[{"decision": "approve", "all": True}]),
        ):
            assert answer.status_code == 403
        assert await waiting(server, "ann as admin") == []
        await decide(server, "ann as admin", own["id"], 404)
        await decide(server, "agent", own["id"], 403)
        server.keys["carl"] = await server.key("user", "carl")
        assert await waiting(server, "carl") == []
        await decide(server, "carl", own["id"], 404)
        nobody = await server.client.post(
            f"/approvals/{own['id']}", json={"decision": "approve"}, headers={"Authorization": ""}
        )
        assert nobody.status_code == 401
        await decide(server, "bob", own["id"], decision="reject")
        assert "a person has rejected this call" in await answer_of(server)


async def test_a_question_is_answered_by_its_reviewer_only() -> None:
    async with serving(Approval(by=("admin",))) as server:
        paused = await server.ask(body="Which day?", subject="Quarrel", task_id="t")
        (shown,) = paused["pending_tool_calls"]
        assert (shown["reviewers"], "needs_approval" in shown) == (["admin"], False)
        listed = (await server.client.get("/approvals", headers=server.headers("user"))).json()
        assert [(each["can_decide"], each["task_id"]) for each in listed["approvals"]] == [(False, "t")]
        assert [each["need"] for each in listed["tasks"]] == ["others"]
        (seen,) = await waiting(server, "admin")
        assert (seen["needs_approval"], seen["question"], seen["task_id"]) == (False, "Which day?", None)
        assert (
            await server.client.get("/task?task_id=t", headers=server.headers("admin"))
        ).status_code == 404
        own = {"resume_from": "breakpoint_tool_call", "task_id": "t", "body": ""}
        as_result = await server.post(**own, kwargs={"breakpoint_tool_call_result": "Monday"})
        assert (as_result.status_code, "wait for a decision" in as_result.json()["detail"]) == (400, True)
        as_owner = await server.post(**own, approvals=[{"decision": "answer", "answer": "Monday"}])
        assert (as_owner.status_code, "admin may decide" in as_owner.json()["detail"]) == (403, True)
        await decide(server, "bob", seen["id"], 404, decision="answer", answer="Monday")
        for wrong in (
            {"decision": "approve"},
            {"decision": "answer"},
            {"decision": "answer", "answer": " "},
            {"decision": "answer", "answer": "Friday", "arguments": {}},
            {"decision": "reject", "answer": "Friday"},
        ):
            await decide(server, "admin", seen["id"], 400, **wrong)
        bound = {"answer": "Friday", "arguments_sha256": seen["arguments_sha256"]}
        done = await decide(server, "admin", seen["id"], decision="answer", **bound)
        assert done == {"id": seen["id"], "decision": "answer"}
        assert await answer_of(server) == "Friday"
        (by,) = await events_of(server, "t", "breakpoint_action_complete")
        facts = by["extra_data"]
        assert (facts["by"], facts["decision"], facts["answer"]) == ("admin:root@example", "answer", "Friday")
        task = await server.client.get("/task?task_id=t&items=true")
        (item,) = [each for each in task.json()["items"] if each["kind"] == "question"]
        reply = item["reply"]
        assert (reply["text"], reply["by"], item["asked"]["text"]) == ("Friday", "root", "Which day?")
        await decide(server, "admin", seen["id"], 404, decision="answer", answer="x")


async def test_long_questions_and_decisions_are_refused() -> None:
    async with serving(Approval(by=("admin",))) as server:
        paused = await server.ask(body=f"Which day?\n{MAX_HELD * 'x'}?\nWhy?\neve", task_id="t")
        assert [each["name"] for each in paused["pending_tool_calls"]] == ["ask", "ask", "pay"]
        day, why, pay = (each["id"] for each in await waiting(server, "admin"))
        for approval_id, wrong in (
            (day, {"decision": "answer", "answer": MAX_HELD * "x" + "x"}),
            (pay, {"decision": "edit", "arguments": {"to": MAX_HELD * "x"}}),
        ):
            refused = await decide(server, "admin", approval_id, 400, **wrong)
            assert f"may have {MAX_HELD} bytes" in refused["detail"]
        empty = paused_size((await server.rig.task(TaskKey("user:ann@example", "t"))).paused_at)
        await decide(server, "admin", day, decision="answer", answer=1000 * "x")
        assert (
            paused_size((await server.rig.task(TaskKey("user:ann@example", "t"))).paused_at) >= empty + 1000
        )
        for each in (why, pay):
            await decide(server, "admin", each, decision="reject")
        assert f"may have {MAX_HELD} bytes together" in await answer_of(server)


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_owner_answers_before_the_reviewers_or_after_them(is_first: bool) -> None:
    async with serving(Approval(by=("admin", "user:lee"))) as server:
        await server.ask(body="Which day?\nself", task_id="t")
        own = {"resume_from": "breakpoint_tool_call", "task_id": "t", "body": ""}
        listed = (await server.client.get("/approvals", headers=server.headers("user"))).json()
        (task,) = [each["task"] for each in listed["tasks"] if each["need"] == "question"]
        assert [each["name"] for each in task["pending_tool_calls"]] == ["look_up"]
        (seen,) = await waiting(server, "admin")
        if is_first:
            await server.ask(**own, kwargs={"breakpoint_tool_call_result": "ann"})
            listed = (await server.client.get("/approvals", headers=server.headers("user"))).json()
            assert [each["need"] for each in listed["tasks"]] == ["others"]
            again = await server.post(**own, kwargs={"breakpoint_tool_call_result": "bob"})
            said = again.json()["detail"]
            assert (again.status_code, "admin or user:lee must decide on call_id" in said) == (400, True)
        await decide(server, "admin", seen["id"], decision="answer", answer="Friday")
        if not is_first:
            await server.ask(**own, kwargs={"breakpoint_tool_call_result": "ann"})
        assert await answer_of(server) == "Friday | ann"
        task = (await server.client.get("/task?task_id=t&items=true", headers=server.headers("user"))).json()
        replies = [each["reply"] for each in task["items"] if each["kind"] == "question"]
        assert sorted(reply["text"] for reply in replies) == ["Friday", "ann"]


async def test_a_list_gives_back_its_room_before_it_takes_what_the_calls_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(Approval(by=("admin",))) as server:
        await server.ask(body=f"self {PIECE_BYTES * 'x'}", task_id="t")
        account, most = server.service.account, 0
        count = account.count

        def counting(caller: Caller | None, size: int, pieces: int, streams: int) -> None:
            nonlocal most
            count(caller, size, pieces, streams)
            most = max(most, account._bytes.total())

        monkeypatch.setattr(account, "count", counting)
        listed = await server.client.get("/approvals")
        assert [each["need"] for each in listed.json()["tasks"]] == ["question"]
        assert most == LIST_BYTES * PIECE_FACTOR


async def test_tasks_are_listed_without_the_index_for_searches(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    Path(index_of(str(path))).mkdir()  # SQLite can't open it
    async with serving(Approval(by=("admin",)), path=path) as server:
        await server.ask(body="self", task_id="question")
        await server.ask(body="eve", task_id="call")
        assert (await server.client.get("/tasks?q=eve")).status_code == 503
        listed = (await server.client.get("/approvals")).json()
    assert [each["task_id"] for each in listed["approvals"]] == ["call"]
    assert [(each["need"], each["task"]["task_id"]) for each in listed["tasks"]] == [
        ("others", "call"),
        ("question", "question"),
    ]


async def test_what_is_known_is_found_out_with_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Approval(by=("admin",))) as server:
        store, searches = server.rig.runtime.store, list[int]()
        search = store.search

        async def count(
            instance: str, asked: Search, *, limit: int = 100, cursor: str | None = None
        ) -> TaskPage:
            searches.append(limit)
            return await search(instance, asked, limit=limit, cursor=cursor)

        monkeypatch.setattr(store, "search", count)

        async def listed(known: str) -> tuple[list[str] | None, str]:
            found = (await server.client.get("/approvals", params={"known": known})).json()
            tasks = found["tasks"]
            return tasks and [each["task"]["task_id"] for each in tasks], found["as_of"]

        await server.ask(body="self", task_id="first")
        tasks, as_of = await listed("none")
        assert tasks == ["first"]
        searches.clear()
        assert await listed(as_of) == (None, as_of)
        assert searches == [1]
        await server.ask(body="self", task_id="second")
        tasks, changed = await listed(as_of)
        assert tasks == ["second", "first"]
        assert await listed(changed) == (None, changed)
        assert (await server.client.get("/approvals")).json()["as_of"] is None


async def test_a_list_loads_a_few_tasks_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Approval(by=("admin",))) as server:
        for n in range(LOADED_AT_ONCE + 2):
            await server.ask(body="eve", task_id=f"t{n}")
        store, loading, most = server.rig.runtime.store, set[TaskKey](), 0
        load = store.load

        async def load_slowly(key: TaskKey) -> Task | None:
            nonlocal most
            loading.add(key)
            most = max(most, len(loading))
            await asyncio.sleep(0.01)
            loading.remove(key)
            return await load(key)

        monkeypatch.setattr(store, "load", load_slowly)
        assert len(await waiting(server, "admin")) == LOADED_AT_ONCE + 2
    assert most == LOADED_AT_ONCE


async def test_an_owner_who_is_a_reviewer_decides() -> None:
    async with serving(Approval(by=("user",))) as server:
        await server.ask(body="eve", task_id="t")
        (own,) = await waiting(server, "user")
        assert own["can_decide"]
        answer = await server.ask(body="", task_id="t", approvals=[{"decision": "approve"}])
        assert answer["response"] == "SUCCESS: paid eve"


async def test_calls_wait_one_by_one_and_page_by_page() -> None:
    async with serving(Approval(by=("admin",))) as server:
        for n in range(3):
            await server.ask(body="eve\nbob", task_id=f"t{n}")
        ids, cursor = list[str](), None
        for _ in range(2):
            given = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
            page = await server.client.get("/approvals", params=given, headers=server.headers("admin"))
            ids += [each["id"] for each in page.json()["approvals"]]
            cursor = page.json()["next_cursor"]
        assert cursor is None
        assert ids == sorted(ids)
        assert len(set(ids)) == 6
        refused = await server.client.get("/approvals?cursor=x", headers=server.headers("admin"))
        assert refused.status_code == 400
        await decide(server, "admin", ids[0])
        assert len(await waiting(server, "admin")) == 5
        await decide(server, "admin", ids[0], 404)
        await decide(server, "admin", ids[1])
        assert await answer_of(server, "t0") == "SUCCESS: paid eve | SUCCESS: paid bob"


# ------------------------------------------------------------------------------------------------- links


async def link_in(receiver: WebhookReceiver, n: int = 1) -> tuple[str, Got]:
    got = (await asyncio.to_thread(receiver.wait_for, n))[n - 1]
    return got.json["link"], got


async def test_a_link_shows_the_call_and_takes_one_decision(receiver: WebhookReceiver) -> None:
    rule = Approval(by=("admin",), webhook=receiver.url, secret=SECRET)
    async with serving(rule) as server:
        await server.ask(body=HOSTILE, task_id="t-secret", subject="secret title")
        link, got = await link_in(receiver)
        assert got.is_signed_with(b"a secret")
        assert b"t-secret" not in got.body
        assert b"title" not in got.body
        assert got.json["approval"]["arguments"] == {"to": HOSTILE}
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(link)
            assert page.status_code == 200
            assert "script-src" not in page.headers["content-security-policy"]
            assert page.headers["referrer-policy"] == "no-referrer"
            assert "<script" not in page.text
            assert "\u202e" not in page.text
            shown = html.unescape(re.findall(r"<pre>(.*?)</pre>", page.text, re.DOTALL)[0])
            assert json.loads(shown) == {"to": HOSTILE}
            digest = got.json["approval"]["arguments_sha256"]
            assert digest in page.text
            assert "t-secret" not in page.text
            for wrong in (
                link[:-1] + ("0" if link[-1] != "0" else "1"),
                link + "0",
                link.rpartition("/")[0] + "/x",
            ):
                assert (await browser.get(wrong)).status_code == 404
                answer = await browser.post(wrong, data={"decision": "approve", "arguments_sha256": digest})
                assert answer.status_code == 404
            differs = {"decision": "approve", "arguments_sha256": "0" * 64}
            assert (await browser.post(link, data=differs)).status_code == 409
            assert (await browser.post(link, data={"decision": "edit"})).status_code == 400
            assert (await browser.post(link, data={"reason": "x"})).status_code == 400
            assert (await browser.get(link)).status_code == 200
            form = {"decision": "reject", "reason": "no ü", "arguments_sha256": digest}
            done = await browser.post(link, data=form)
            assert (done.status_code, "Rejected" in done.text) == (200, True)
            for again in (await browser.post(link, data=form), await browser.get(link)):
                assert again.status_code == 404
                assert "no longer" in again.text or "may be decided" in again.text
        assert "no ü" in await answer_of(server, "t-secret")
        (by,) = await events_of(server, "t-secret", "breakpoint_action_complete")
        assert by["extra_data"]["by"] == f"link:127.0.0.1:{receiver.port}"
        assert "/hook" not in json.dumps(await server.task("t-secret"))
        assert len(receiver.got) == 1
        audit = await server.client.get("/audit", headers=server.headers("admin"))
        by_link = [each for each in audit.json()["entries"] if each["act"] == "decide on call"]
        assert {each["by"] for each in by_link} == {f"link:127.0.0.1:{receiver.port}"}


async def test_a_request_is_sent_once_and_not_repeated_for_what_still_waits(
    receiver: WebhookReceiver,
) -> None:
    rule = Approval(by=("admin",), webhook=receiver.url, secret=SECRET)
    async with serving(rule) as server:
        await server.ask(body="eve\nbob", task_id="t")
        await asyncio.to_thread(receiver.wait_for, 2)
        first, second = await waiting(server, "admin")
        assert [got.json["id"] for got in receiver.got] == [first["id"], second["id"]]
        await decide(server, "admin", first["id"])
        await decide(server, "admin", second["id"])
        await answer_of(server)
        assert len(receiver.got) == 2


async def test_deadline_and_escalation_end_what_they_should(receiver: WebhookReceiver) -> None:
    clock = FakeClock()
    rule = Approval(
        by=("user:bob",), escalate_to=("admin",), otherwise="approve", webhook=receiver.url, secret=SECRET
    )
    async with serving(rule, clock=clock, timeout=60.0) as server:
        await server.ask(body="eve", task_id="t")
        link, _ = await link_in(receiver)
        assert await waiting(server, "admin") == []
        clock.advance(61)
        assert (await server.client.get(link)).status_code == 200
        await server.rig.runtime.sweep()
        (seen,) = await waiting(server, "admin")
        assert seen["reviewers"] == ["user:bob", "admin"]
        assert len(await waiting(server, "bob")) == 1
        again, _ = await link_in(receiver, 2)
        assert again == link
        clock.advance(61)
        assert await waiting(server, "admin") == []
        assert (await server.client.get(link)).status_code == 404
        await decide(server, "admin", seen["id"], 404)
        await server.rig.runtime.sweep()
        assert await answer_of(server) == "SUCCESS: paid eve"


async def test_a_link_takes_an_answer(receiver: WebhookReceiver) -> None:
    clock = FakeClock()
    rule = Approval(by=("admin",), webhook=receiver.url, secret=SECRET)
    async with serving(rule, clock=clock, timeout=60.0) as server:
        await server.ask(body="Which <b>day</b>?", task_id="t")
        link, got = await link_in(receiver)
        digest = got.json["approval"]["arguments_sha256"]
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(link)
            assert "Which &lt;b&gt;day&lt;/b&gt;?" in page.text
            assert 'value="answer"' in page.text
            assert 'value="approve"' not in page.text
            form = {"decision": "answer", "answer": "Friday, 3 ü", "arguments_sha256": digest}
            done = await browser.post(link, data=form)
            assert (done.status_code, "Answered" in done.text) == (200, True)
            assert (await browser.get(link)).status_code == 404
        assert await answer_of(server) == "Friday, 3 ü"
        await server.ask(body="Why?", task_id="late")
        clock.advance(61)
        await server.rig.runtime.sweep()
        assert (
            await answer_of(server, "late") == "ERROR: it was not answered: nobody answered within 60 seconds"
        )


async def test_a_webhook_without_a_secret_has_no_link(receiver: WebhookReceiver) -> None:
    async with serving(Approval(by=("admin",), webhook=receiver.url)) as server:
        await server.ask(body="eve", task_id="t")
        link, got = await link_in(receiver)
        assert link is None
        (seen,) = await waiting(server, "admin")
        assert got.json["id"] == seen["id"]
        assert (await server.client.get(f"/approvals/{seen['id']}/")).status_code == 404
        assert (await server.client.get(f"/approvals/{seen['id']}/x")).status_code == 404
