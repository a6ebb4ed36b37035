"""`GET /task?at=` and `POST /task/fork`: a task as it was, and a new one that continues from there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from support.engines.adapters import loaded
from support.processes.http_server import HTTPServer

from mail.core.decisions.delete import drop_past
from mail.core.task.draft import Draft
from mail.core.task.task import TaskKey
from mail.testing.agents import Call, View, build_swarm, complete, request, respond, wait


def supervise(view: View) -> Sequence[Call]:
    """Ask the worker, and answer with what it was asked for last."""
    if view.mail.sender_type == "user":
        return [request("worker", view.mail.body), wait()]
    return [complete(view.mail.body)]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    swarm = build_swarm(
        {"supervisor": supervise, "worker": lambda view: [respond("supervisor", f"did {view.mail.body}")]},
    )
    async with HTTPServer(swarm) as server:
        yield server


async def look(server: HTTPServer, at: object, task_id: str = "t") -> httpx2.Response:
    return await server.client.get("/task", params={"task_id": task_id, "at": str(at)})


async def fork(
    server: HTTPServer, task_id: str = "t", role: str = "user", key: str | None = None, **fields: object
) -> httpx2.Response:
    headers = server.headers(role) | ({"Idempotency-Key": key} if key is not None else {})
    return await server.client.post("/task/fork", json={"task_id": task_id, **fields}, headers=headers)


async def test_a_task_is_shown_as_it_was(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    now = await server.task("t")
    records = [(await look(server, at)).json() for at in range(1, now["seq"] + 1)]
    assert records[-1] == now
    for at, record in enumerate(records, 1):
        assert record["seq"] >= at
        assert record["events"] == now["events"][: record["seq"]]
    begun = records[0]
    assert (begun["status"], begun["is_running"], begun["seq"], begun["steps"]) == ("running", True, 1, 0)
    assert [mail["mailbox"] for mail in begun["task_message_queue"]] == ["supervisor"]
    assert {mailbox for record in records for mailbox in mailboxes(record)} == {"supervisor", "worker"}
    assert [record["completed"] for record in records[-2:]] == [True, True]


def mailboxes(record: dict[str, Any]) -> list[str]:
    return [mail["mailbox"] for mail in record["task_message_queue"]]


async def test_only_the_present_has_an_etag(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    assert "etag" not in (await look(server, 1)).headers
    assert "etag" in (await server.client.get("/task", params={"task_id": "t"})).headers


@pytest.mark.parametrize("at", [0, -3, 10**30, 99])
async def test_a_moment_that_is_not_there(server: HTTPServer, at: int) -> None:
    await server.post(body="sums", task_id="t")
    seq = (await server.task("t"))["seq"]
    for answer in (await look(server, at), await fork(server, at=at)):
        assert answer.status_code == 400
        assert answer.json() == {"detail": f"task 't' has events 1 to {seq}; it has no event {at}"}
    assert len((await server.client.get("/tasks")).json()) == 1


@pytest.mark.parametrize(
    "fields", [{"at": "soon"}, {"at": 1.5}, {"run": "perhaps"}, {"actions": "maybe"}, {"task_id": ""}]
)
async def test_what_is_no_request(server: HTTPServer, fields: dict[str, object]) -> None:
    assert (await fork(server, **{"task_id": "t", **fields})).status_code == 400


async def test_a_fork_of_a_running_moment_waits_for_a_message(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    answer = await fork(server, at=1)
    made = answer.json()
    assert answer.status_code == 201
    assert made == {
        "task_id": made["task_id"], "forked_from": "t", "at": 1, "status": "paused", "generation": 0, "seq": 2,
        "waiting": 1, "actions": "run",
    }  # fmt: skip
    record = await server.task(made["task_id"])
    assert (record["status"], record["is_running"], record["pending_tool_calls"]) == ("paused", False, [])
    assert mailboxes(record) == ["supervisor"]
    assert [event["event"] for event in record["events"]] == ["task_forked", "new_message"]
    stream = await server.client.get(
        "/task/stream", params={"task_id": made["task_id"]}, headers={"Last-Event-ID": "2"}
    )
    assert stream.status_code == 204
    answer = await server.post(body="products", task_id=made["task_id"], show_events=True)
    assert answer.json()["response"] in ("did sums", "did products")
    assert (await server.task("t"))["status"] == "completed"


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/task/fork", {"at": True}, "at.int"),
        ("/message", {"body": "hi", "kwargs": {"budget": {"turns": True}}}, "kwargs.budget.turns"),
        ("/message", {"body": "hi", "kwargs": {"budget": {"seconds": True}}}, "kwargs.budget.seconds"),
        ("/dead-letters/redrive", {"seq": True}, "seq"),
    ],
)
async def test_true_is_no_number(server: HTTPServer, path: str, fields: dict[str, Any], field: str) -> None:
    await server.post(body="sums", task_id="t")
    refused = await server.client.post(path, json={"task_id": "t", **fields})
    assert refused.status_code == 400, refused.text
    assert f"{field}: Input should be a valid" in refused.json()["detail"]
    assert list((await server.client.get("/tasks")).json()) == ["t"]
    assert (await server.task("t"))["generation"] == 1


async def test_threads_of_a_fork_are_its_own(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    before = (await server.client.get("/threads", params={"task_id": "t"})).json()
    made = (await fork(server, at=1)).json()
    listed = (await server.client.get("/threads")).json()
    assert {task for thread in listed["threads"] for task in thread["task_ids"]} == {"t", made["task_id"]}
    assert (await server.client.get("/threads", params={"task_id": "t"})).json() == before


async def test_a_fork_that_is_requested_again_is_made_once(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    answers = await asyncio.gather(*(fork(server, key="k", at=1, run=True) for _ in range(5)))
    [made] = {answer.text: answer.json() for answer in answers}.values()
    assert {answer.status_code for answer in answers} == {201}
    done = await server.client.get("/task/stream", params={"task_id": made["task_id"]})
    assert "event: task_complete" in done.text
    again = await fork(server, key="k", at=1, run=True)
    assert (again.status_code, again.json()) == (201, made)
    assert (made["status"], made["at"]) == ("running", 1)
    assert len((await server.client.get("/tasks")).json()) == 2


async def test_the_key_of_a_fork_is_for_one_request(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    assert (await fork(server, "nobody's", key="k")).status_code == 404
    made = (await fork(server, key="k")).json()
    refused = await fork(server, key="k", at=1)
    assert (refused.status_code, len((await server.client.get("/tasks")).json())) == (422, 2)
    assert refused.json()["detail"].startswith("Idempotency-Key 'k' was used for another request")
    headers = server.headers("user") | {"Idempotency-Key": "k"}
    message = await server.client.post("/message", json={"body": "more"}, headers=headers)
    assert message.status_code == 422
    assert (await fork(server, key="k")).json() == made
    assert (await fork(server)).json()["task_id"] != made["task_id"]
    assert (await fork(server, key="")).status_code == 400


async def test_a_fork_takes_a_bounded_amount_of_waiting_mail(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.post(body="x" * 2_000, task_id="t")
    monkeypatch.setattr("mail.core.engine.admission.FORKED_MAIL_BYTES", 1_000)
    refused = await fork(server, at=1)
    assert (refused.status_code, "less mail waited" in refused.json()["detail"]) == (413, True)
    assert list((await server.client.get("/tasks")).json()) == ["t"]
    last = (await server.task("t"))["seq"]
    assert (await fork(server, at=last)).status_code == 201


async def wait_until_done(server: HTTPServer, task_id: str) -> None:
    while (await server.task(task_id))["is_running"]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def compare(server: HTTPServer, task_id: str) -> httpx2.Response:
    return await server.client.get("/task/comparison", params={"task_id": task_id})


async def test_a_fork_is_compared_with_the_run_that_it_repeats(server: HTTPServer) -> None:
    await server.post(body="sums", task_id="t")
    await server.post(body="more", task_id="t")
    forked = (await fork(server, at="message", run=True)).json()
    assert (await look(server, forked["at"])).json()["task_message_queue"][0]["mailbox"] == "supervisor"
    await wait_until_done(server, forked["task_id"])
    for body, task_id in (("later", "t"), ("later", forked["task_id"])):
        await server.post(body=body, task_id=task_id)  # which changes nothing that is compared
    found = (await compare(server, forked["task_id"])).json()
    assert (found["task_id"], found["fork_id"], found["at"]) == ("t", forked["task_id"], forked["at"])
    for side in ("before", "after"):
        assert (found[side]["status"], found[side]["answer"]) == ("completed", "did more")
        assert found[side]["turns"] == 3
    assert found["differences"] == ""
    assert (await compare(server, "t")).status_code == 400


@pytest.mark.parametrize(("moment", "status"), [({"at": 1}, "paused"), ({}, "completed")])
async def test_what_nothing_has_happened_to_since_has_the_status_of_its_task(
    server: HTTPServer, moment: dict[str, Any], status: str
) -> None:
    await server.post(body="sums", task_id="t")
    forked = (await fork(server, **moment)).json()
    found = (await compare(server, forked["task_id"])).json()
    assert (found["before"]["status"], found["after"]["status"]) == ("completed", status)
    assert (found["after"]["answer"], found["after"]["turns"]) == (None, 0)


@pytest.mark.parametrize("which", ["t", "fork"])
async def test_a_task_whose_past_is_dropped_is_compared_with_nothing(server: HTTPServer, which: str) -> None:
    await server.post(body="sums", task_id="t")
    forked = (await fork(server, at="message", run=True)).json()["task_id"]
    await wait_until_done(server, forked)
    rig = server.rig
    task = await loaded(rig.store, TaskKey("user:ann@example", "t" if which == "t" else forked))
    await rig.store.commit(drop_past(Draft(task, rig.swarm, rig.clock)))
    answer = await compare(server, forked)
    assert (answer.status_code, answer.json()) == (
        409,
        {"detail": f"event 1 of task {task.task_id!r} is no longer stored"},
    )


async def test_pages_without_forks_have_each_task_once(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{n}" for n in range(4)]
    for name in names:
        await server.post(body="sums", task_id=name)
        await fork(server, name)
    monkeypatch.setattr(server.service, "page_bytes", 1)
    listed, url = list[str](), "/tasks?forks=false"
    while url:
        answer = await server.client.get(url)
        listed += answer.json()
        url = answer.links.get("next", {}).get("url", "")
    assert listed == names[::-1]


async def test_lists_say_which_tasks_are_forks_and_leave_them_out(server: HTTPServer) -> None:
    await server.post(body="Fork of mine", task_id="t")
    forked = (await fork(server)).json()["task_id"]

    async def listed(**query: str) -> dict[str, str | None]:
        tasks = await server.client.get("/tasks", params={"fields": "summary", **query})
        return {task_id: task["forked_from"] for task_id, task in tasks.json().items()}

    assert await listed() == {"t": None, forked: "t"}
    for query in ({}, {"q": ""}):
        assert await listed(forks="false", **query) == {"t": None}
