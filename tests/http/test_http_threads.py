"""`GET /threads` and `GET /threads/{thread_id}`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from support.processes.http_server import HTTPServer

from mail.core.protocol.address import create_agent_address
from mail.core.protocol.message import MAILMessage, MAILRequest
from mail.core.task.swarm import SwarmCore
from mail.http.routes.threads import MAX_TASKS, Reader
from mail.stdlib.agentmail.actions import ORCHESTRATOR_ACTIONS, WORKER_ACTIONS
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig

STUCK: dict[str, Any] = {"issue_type": "STUCK", "problem": "p", "what_i_tried": "t", "question": "Why?"}
WORK: dict[str, Any] = {
    "commit_sha": "c0ffee",
    "files": ["a.py"],
    "tests": "PASS",
    "lint": "PASS",
    "build": "PASS",
    "summary": "Done.",
}


def chief(view: View) -> list[Call]:
    """`bead verb` lets the worker do so; then the task is paused, with whatever is open, until someone says `over`."""
    if view.mail.sender_type == "user" and view.mail.subject != "HELP_RESPONSE":
        bead, _, verb = view.mail.body.partition(" ")
        match verb:
            case "":
                return [complete()]
            case "ask me":
                return [call("ask_for_help", bead_id=bead, **STUCK)]
            case _:
                return [call("request_worker", target="worker", bead_id=bead, brief=verb), wait()]
    return [call("hold")]


def worker(view: View) -> list[Call]:
    bead = re.findall(r"Issue: (.*)", view.mail.body)[0]
    about = {"target": "chief", "bead_id": bead}
    match re.findall(r"> (.*)", view.mail.body)[0]:
        case "help":
            return [call("ask_for_help", **about, **STUCK), wait()]
        case "offer":
            return [call("offer_work", **about, **WORK), wait()]
        case "accept":
            return [call("accept_bead", **about, title="x")]
        case "respond":
            return [respond("chief")]
        case verb:
            raise AssertionError(verb)


def crew() -> SwarmCore:
    actions = {form.name: form.to_core() for form in (*WORKER_ACTIONS, *ORCHESTRATOR_ACTIONS)}
    return build_swarm(
        {"chief": chief, "worker": worker}, actions=actions, breakpoint_tools=frozenset({"hold"})
    )


async def threads(server: HTTPServer, query: str = "") -> Any:
    return await server.get(f"/threads?{query}")


async def thread(server: HTTPServer, thread_id: str, query: str = "") -> Any:
    return await server.get(f"/threads/{quote(thread_id, safe='')}?{query}")


async def test_nobody_has_written(server: HTTPServer) -> None:
    nothing = {"threads": [], "who_works_on_what": {}, "pending": [], "overdue": [], "next_cursor": None}
    assert await threads(server) == nothing


async def test_a_task_without_beads_is_one_thread(server: HTTPServer) -> None:
    await server.ask(body="hi", task_id="t")
    (found,) = (await threads(server))["threads"]
    assert (found["thread_id"], found["task_ids"], found["messages"]) == ("t", ["t"], 2)
    assert (found["bead_id"], found["state"], found["participants"]) == ("", "new", ["ann", "supervisor"])
    assert found["counts"] == {"UNKNOWN": 2}
    record = await thread(server, "t")
    assert record["summary"] == found
    assert [turn["message"]["body"] for turn in record["conversation"]] == ["hi", "you said: hi"]
    assert {turn["task_id"] for turn in record["conversation"]} == {"t"}


async def test_prose_about_a_bead_stays_in_the_thread_of_its_task(server: HTTPServer) -> None:
    await server.ask(body="Fix this, please.\nBead: not a bead at all\nIssue: x-1", task_id="t")
    assert [each["thread_id"] for each in (await threads(server))["threads"]] == ["t"]
    assert (await thread(server, "t"))["summary"]["messages"] == 2


async def test_what_is_pending_and_who_works() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 accept", task_id="t1")
        await server.ask(body="a-2 help", task_id="t2")
        await server.ask(body="a-3 offer", task_id="t3")
        found = await threads(server)
        assert [each["thread_id"] for each in found["threads"]] == ["t3", "a-3", "t2", "a-2", "t1", "a-1"]
        states = {each["bead_id"]: each["state"] for each in found["threads"] if each["bead_id"]}
        assert states == {"a-1": "accepted", "a-2": "stuck", "a-3": "offered"}
        assert found["who_works_on_what"] == {"worker": ["a-1", "a-2"]}
        pending = [each for each in found["threads"] if each["pending"]]
        ids = [message_id for each in pending for message_id in each["pending"]]
        assert sorted(ids) == sorted(found["pending"])
        assert {each["thread_id"] for each in pending} == {"a-2", "a-3"}
        assert found["overdue"] == []
        only = await threads(server, "pending=true")
        assert only["threads"] == pending
        assert only["pending"] == found["pending"]


async def test_what_is_overdue() -> None:
    clock = FakeClock()
    async with HTTPServer(crew(), clock=clock) as server:
        await server.ask(body="a-1 help", task_id="t1")
        clock.advance(10 * 60)
        await server.ask(body="a-2 help", task_id="t2")
        clock.advance(10 * 60)
        for query, overdue in (
            ("", ["a-1"]),
            ("ack_within=0", ["a-2", "a-1"]),
            ("ack_within=599.5", ["a-2", "a-1"]),
            ("ack_within=1200", []),
        ):
            found = await threads(server, f"overdue=true&{query}")
            assert [each["thread_id"] for each in found["threads"]] == overdue
            late = [message_id for each in found["threads"] for message_id in each["overdue"]]
            assert sorted(late) == sorted(found["overdue"])
        assert (await thread(server, "a-2"))["summary"]["overdue"] == []
        assert len((await thread(server, "a-2", "ack_within=60"))["summary"]["overdue"]) == 2


async def test_a_conversation() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 ask me", task_id="t")
        (turn,) = (await thread(server, "a-1"))["conversation"]
        message = turn["message"]
        assert (message["type"], message["parsed"]["question"]) == ("HELP_REQUEST", "Why?")
        assert (message["recipient"], message["acknowledged"]) == ("ann", False)
        await server.ask(body="So.", subject="HELP_RESPONSE", task_id="t")
        record = await thread(server, "a-1")
        shape = [(turn["level"], turn["message"]["type"], turn["answers"]) for turn in record["conversation"]]
        assert shape == [(0, "HELP_REQUEST", ""), (1, "HELP_RESPONSE", message["id"])]
        asked = record["conversation"][0]["message"]
        assert (asked["acknowledged_by"], asked["closed"]) == ("ann", False)
        assert (record["summary"]["pending"], record["summary"]["state"]) == ([], "working")


async def test_a_thread_of_several_tasks() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 help", task_id="t1")
        await server.ask(body="a-1 accept", task_id="t2")
        record = await thread(server, "a-1")
        assert record["summary"]["task_ids"] == ["t2", "t1"]
        assert [turn["task_id"] for turn in record["conversation"]] == ["t1", "t1", "t2", "t2"]
        times = [datetime.fromisoformat(turn["message"]["timestamp"]) for turn in record["conversation"]]
        assert times == sorted(times)
        assert record["summary"]["state"] == "stuck"
        states = [(each["task_id"], each["status"], each["state"]) for each in record["summary"]["tasks"]]
        assert states == [("t2", "paused", "accepted"), ("t1", "paused", "stuck")]
        only = await thread(server, "a-1", "task_id=t1")
        assert (only["summary"]["task_ids"], only["summary"]["state"]) == (["t1"], "stuck")
        found = await threads(server, "task_id=t1")
        assert [each["thread_id"] for each in found["threads"]] == ["t1", "a-1"]
        assert [each["task_ids"] for each in found["threads"]] == [["t1"], ["t1"]]


async def test_a_task_that_has_ended_waits_for_nothing() -> None:
    async with HTTPServer(crew()) as server:
        for bead, verb in (("a-1", "accept"), ("a-2", "help"), ("a-3", "offer")):
            await server.ask(body=f"{bead} {verb}", task_id="t", drop_question=True)
        open_mail = await threads(server)
        assert len(open_mail["pending"]) == 3
        await server.ask(body="over", task_id="t", drop_question=True)
        found = await threads(server, "ack_within=0")
        states = {each["bead_id"]: each["state"] for each in found["threads"] if each["bead_id"]}
        assert states == {"a-1": "closed", "a-2": "closed", "a-3": "offered"}
        assert (found["pending"], found["overdue"], found["who_works_on_what"]) == ([], [], {})
        assert (await threads(server, "pending=true"))["threads"] == []
        record = await thread(server, "a-2")
        assert record["summary"]["help_request"] is None
        assert all(turn["message"]["closed"] for turn in record["conversation"])


async def test_a_question_that_was_dropped_waits_for_nothing() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 ask me", task_id="t")
        found = await threads(server)
        assert (len(found["pending"]), found["who_works_on_what"]) == (1, {"chief": ["a-1"]})
        await server.ask(body="a-2 help", task_id="t", drop_question=True)
        found = await threads(server, "ack_within=0")
        states = {each["bead_id"]: each["state"] for each in found["threads"] if each["bead_id"]}
        assert states == {"a-1": "closed", "a-2": "stuck"}
        assert found["who_works_on_what"] == {"worker": ["a-2"]}
        (turn,) = (await thread(server, "a-1"))["conversation"]
        assert (turn["message"]["closed"], turn["message"]["id"] in found["pending"]) == (True, False)
        assert all(not turn["message"]["closed"] for turn in (await thread(server, "a-2"))["conversation"])


async def test_clocks_that_disagree_leave_a_task_in_its_order() -> None:
    """Mail of other swarms has their times."""

    def mail(number: int, minute: int, task_id: str) -> MAILMessage:
        return MAILMessage(
            id=str(UUID(int=number)),
            timestamp=f"2026-01-31T08:{minute:02}:00Z",
            msg_type="request",
            message=MAILRequest(
                task_id=task_id,
                request_id=f"r-{number}",
                sender=create_agent_address("a"),
                recipient=create_agent_address("b"),
                subject=f"s-{number}",
                body="x",
                routing_info={"thread_id": "w"},
            ),
        )

    rig = Rig(crew())
    async with rig:
        outcomes = [await rig.ask("a-1 accept"), await rig.ask("a-1 accept")]
    newest_first = [outcomes[1].task, outcomes[0].task]
    told = [[mail(3, 10, "t2")], [mail(1, 20, "t1"), mail(2, 5, "t1")]]
    reader = Reader(newest_first, told, now=datetime(2026, 2, 1, tzinfo=UTC), ack_within=timedelta(0))
    found = reader.thread("w")
    assert found is not None
    assert [turn.message.subject for turn in found.conversation] == ["s-3", "s-1", "s-2"]


async def test_threads_about_a_bead() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 help", task_id="t1")
        await server.ask(body="a-2 help", task_id="t2")
        found = await threads(server, "bead=a-1")
        assert [each["thread_id"] for each in found["threads"]] == ["a-1"]
        assert (await threads(server, "bead=a"))["threads"] == []


async def test_mail_of_the_system_is_in_no_thread() -> None:
    swarm = build_swarm(
        {"chief": lambda v: [complete()] if len(v.messages) > 1 else [call("look")]},
        actions={"look": _look},
    )
    async with HTTPServer(swarm) as server:
        await server.ask(task_id="t")
        senders = [turn["message"]["sender"] for turn in (await thread(server, "t"))["conversation"]]
    assert senders == ["ann", "chief"]


async def _look(_arguments: dict[str, Any]) -> str:
    return "seen"


async def test_pages() -> None:
    async with HTTPServer(crew()) as server:
        for n in range(5):
            await server.ask(body=f"b/{n} help", task_id=f"t{n}")
        url, pages = "/threads?limit=2&pending=true&bead=b%2F3&ack_within=5", []
        while url:
            response = await server.client.get(url)
            pages.append([each["thread_id"] for each in response.json()["threads"]])
            assert len(response.json()["pending"]) == (4 if len(pages) < 3 else 2)
            assert response.headers.get("x-next-cursor") == response.json()["next_cursor"]
            link = response.headers.get("link", "")
            assert bool(link) == ("x-next-cursor" in response.headers)
            url = re.fullmatch(r'<(.*)>; rel="next"', link)[1] if link else ""  # type: ignore[index]
            assert not url or {"limit=2", "pending=true", "bead=b%2F3", "ack_within=5"} <= set(
                re.split("[?&]", url)
            )
    assert pages == [["b/3"], [], []]


@pytest.mark.soak
async def test_a_page_has_threads_and_the_next_one_the_rest() -> None:
    async with HTTPServer(crew()) as server:
        for task in ("t1", "t2", "t3"):
            for bead in ("a", "b", "c"):
                await server.ask(body=f"{bead}-{task} help", task_id=task, drop_question=True)
        await server.ask(body="c-t2 help", task_id="t3", drop_question=True)
        whole = [each["thread_id"] for each in (await threads(server, "limit=100"))["threads"]]
        assert len(whole) == 12
        for limit in (1, 2, 3, 4, 5, 11, 12):
            pages, cursor, number = [], "", 0
            while cursor is not None:
                page = await threads(server, f"limit={limit}&cursor={cursor}" if cursor else f"limit={limit}")
                pages.append([each["thread_id"] for each in page["threads"]])
                cursor, number = page["next_cursor"], number + 1
                await server.ask(body="x", task_id=f"later-{limit}-{number}")  # in the middle of the pages
            assert all(len(page) <= limit for page in pages)
            listed = [thread_id for page in pages for thread_id in page if not thread_id.startswith("later")]
            assert list(dict.fromkeys(listed)) == whole
            assert set(listed) - {"c-t2"} == set(whole) - {"c-t2"}
            assert len(listed) <= len(whole) + 1  # the thread of two tasks may be on both their pages


@pytest.mark.parametrize("cursor", ["t.x", "t.bnVsbA==", "t.e30="])
async def test_a_cursor_that_is_none_is_refused(server: HTTPServer, cursor: str) -> None:
    assert (await server.client.get(f"/threads?cursor={cursor}")).status_code == 400


async def test_an_open_question_is_shown_whatever_another_task_says_of_its_bead() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="pp-1 ask me", task_id="asking")
        await server.ask(body="pp-1 offer", task_id="offering")
        await server.ask(body="over", task_id="offering", drop_question=True)
        for summary in (
            (await thread(server, "pp-1"))["summary"],
            (await threads(server, "open=true"))["threads"][0],
        ):
            assert (summary["state"], summary["help_request"]["question"]) == ("stuck", "Why?")
            assert (summary["worker"], summary["commit_sha"], len(summary["pending"])) == ("chief", "", 1)
            states = [(each["task_id"], each["status"], each["state"]) for each in summary["tasks"]]
            assert states == [("offering", "completed", "offered"), ("asking", "paused", "stuck")]


async def test_threads_that_are_open() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 help", task_id="t1")
        await server.ask(body="a-2 offer", task_id="t2")
        await server.ask(body="over", task_id="t2", drop_question=True)
        await server.ask(body="x", task_id="t3")
        found = [each["thread_id"] for each in (await threads(server, "open=true"))["threads"]]
        assert found == ["t1", "a-1"]


async def test_ids_with_odd_characters() -> None:
    async with HTTPServer(crew()) as server:
        for bead in ("feat/login", "ü-1", "a%2F", "x?y", "x#y"):
            await server.ask(body=f"{bead} help")
            assert (await thread(server, bead))["summary"]["bead_id"] == bead


async def test_only_the_callers_own() -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 help", task_id="t")
        headers = server.headers("admin")
        get = server.client.get
        assert (await get("/threads", headers=headers)).json()["threads"] == []
        for path in ("/threads/a-1", "/threads/t", "/threads/a-1?task_id=t", "/threads?task_id=t"):
            assert (await get(path, headers=headers)).status_code == 404


async def test_how_far_back_a_thread_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with HTTPServer(crew()) as server:
        await server.ask(body="a-1 help", task_id="old")
        for n in range(MAX_TASKS):
            await server.ask(body="x", task_id=f"t{n}")
        response = await server.client.get("/threads/a-1")
        assert response.status_code == 404
        assert f"your newest {MAX_TASKS} tasks" in response.json()["detail"]
        assert (await thread(server, "a-1", "task_id=old"))["summary"]["state"] == "stuck"
        assert (await thread(server, "old"))["summary"]["task_ids"] == ["old"]
        reads = []
        read_events = server.rig.store.read_events
        monkeypatch.setattr(
            server.rig.store,
            "read_events",
            lambda key, **what: (reads.append(key), read_events(key, **what))[1],
        )
        await thread(server, "t0")
        assert len(reads) == MAX_TASKS
        reads.clear()
        await threads(server, "limit=7")
        assert len(reads) == 7


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/threads/none", 404),
        ("/threads/", 404),
        ("/threads/a%23b", 404),
        ("/threads/%00", 404),
        ("/threads/" + "x" * 3000, 404),
        ("/threads/t?task_id=none", 404),
        ("/threads?task_id=none", 404),
        ("/threads?task_id=%00", 400),
        ("/threads?limit=0", 400),
        (f"/threads?limit={MAX_TASKS + 1}", 400),
        ("/threads?cursor=x", 400),
        ("/threads?pending=perhaps", 400),
        ("/threads?ack_within=-1", 400),
        ("/threads?ack_within=nan", 400),
        ("/threads?ack_within=inf", 400),
        ("/threads/t?ack_within=1e300", 400),
    ],
)
async def test_what_is_refused(server: HTTPServer, path: str, status: int) -> None:
    await server.ask(task_id="t")
    response = await server.client.get(path)
    assert response.status_code == status, response.text
    assert response.json().keys() == {"detail"}


async def test_threads_while_the_task_runs() -> None:
    """Messages are there as soon as they are sent."""
    seen: list[Any] = []

    async def look(_arguments: dict[str, Any]) -> str:
        seen.append(await threads(server))
        return "seen"

    swarm = build_swarm(
        {
            "chief": lambda v: [complete()] if len(v.messages) > 1 else [request("clerk"), wait()],
            "clerk": lambda v: [respond("chief")] if len(v.messages) > 1 else [call("look")],
        },
        actions={"look": look},
    )
    async with HTTPServer(swarm) as server:
        await server.ask(task_id="t")
    assert [each["messages"] for each in seen[0]["threads"]] == [2]
