"""Submitting once (`Idempotency-Key`), and only if the task is as expected (`If-Match`)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.idempotency import MAX_REMEMBERED
from mail.testing.agents import Call, View, build_swarm, complete

DAY = 86_400.0


def count_letters(view: View) -> Sequence[Call]:
    return [complete(f"{len(view.messages)}: {view.mail.body}")]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": count_letters})) as server:
        yield server


async def post(
    server: HTTPServer, key: str | None = None, path: str = "/message", **body: object
) -> httpx2.Response:
    headers = server.headers("user") | ({"Idempotency-Key": key} if key is not None else {})
    return await server.client.post(path, json={"body": "hi", **body}, headers=headers)


async def test_a_message_that_is_sent_again_is_answered_again_and_accepted_once(server: HTTPServer) -> None:
    first, second = await post(server, "k-1"), await post(server, "k-1")
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert first.json()["response"] == "1: hi"
    assert first.headers["x-task-id"] == second.headers["x-task-id"]
    assert first.headers["x-last-event-id"] == second.headers["x-last-event-id"] == "0"
    assert len((await server.client.get("/tasks", headers=server.headers("user"))).json()) == 1


async def test_many_at_once_are_one(server: HTTPServer) -> None:
    answers = await asyncio.gather(*(post(server, "k", task_id="t") for _ in range(10)))
    assert {answer.json()["response"] for answer in answers} == {"1: hi"}
    record = await server.task("t")
    assert sum(event["event"] == "task_complete" for event in record["events"]) == 1


async def test_it_is_the_answer_of_its_own_generation(server: HTTPServer) -> None:
    await post(server, "a", task_id="t", body="one")
    await post(server, "b", task_id="t", body="two")
    again = await post(server, "a", task_id="t", body="one", show_events=False)
    assert again.status_code == 422  # show_events was not asked for at first
    assert (await post(server, "a", task_id="t", body="one")).json()["response"] == "1: one"
    assert (await post(server, "b", task_id="t", body="two")).json()["response"] == "2: two"


@pytest.mark.parametrize("change", [{"body": "other"}, {"task_id": "another"}, {"stream": True}])
async def test_the_same_key_with_another_body_is_refused(
    server: HTTPServer, change: dict[str, object]
) -> None:
    await post(server, "k", task_id="t")
    refused = await post(server, "k", **{"task_id": "t", **change})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("Idempotency-Key 'k' was used for another request")
    assert list((await server.client.get("/tasks", headers=server.headers("user"))).json()) == ["t"]


async def test_a_request_that_is_refused_uses_no_key(server: HTTPServer) -> None:
    assert (await post(server, "k", entrypoint="nobody")).status_code == 400
    mended = await post(server, "k", entrypoint="supervisor")
    assert mended.json()["response"] == "1: hi"
    assert (await post(server, "k", entrypoint="nobody")).status_code == 422
    assert (await post(server, "k", entrypoint="supervisor")).json()["response"] == "1: hi"


async def test_the_same_key_on_another_endpoint_is_another_request(server: HTTPServer) -> None:
    await post(server, "k", task_id="t")
    refused = await post(server, "k", "/interswarm/message", task_id="t", targets=["x@elsewhere"])
    assert refused.status_code == 422


async def test_keys_are_each_callers_own(server: HTTPServer) -> None:
    await post(server, "k", body="mine")
    headers = server.headers("admin") | {"Idempotency-Key": "k"}
    other = await server.client.post("/message", json={"body": "yours"}, headers=headers)
    assert other.json()["response"] == "1: yours"


async def test_a_stream_is_given_again(server: HTTPServer) -> None:
    first, second = [(await post(server, "k", stream=True)).text for _ in range(2)]
    assert "event: task_complete" in first
    assert first == second


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256])
async def test_keys_that_are_none(server: HTTPServer, key: str) -> None:
    headers = [*server.headers("user").items(), (b"Idempotency-Key", key.encode())]
    refused = await server.client.post("/message", json={"body": "hi"}, headers=headers)
    assert refused.status_code == 400
    assert "Idempotency-Key" in refused.json()["detail"]


async def test_a_key_is_remembered_for_a_day(server: HTTPServer) -> None:
    await post(server, "k")
    page = await server.rig.store.list_tasks(f"user:ann@{server.rig.swarm.name}")
    (remembered,) = page.tasks[0].submitted
    assert remembered.until - server.rig.clock.now().timestamp() == pytest.approx(DAY, abs=60)


@pytest.mark.parametrize(
    "field",
    [
        {"live": True},
        {"deltas": True},
        {"drop_question": True},
        {"output_schema": {"type": "object"}},
        {"kwargs": {"approvals": {"decision": "approve"}}},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_a_field_that_was_added_later_makes_it_another_request(
    server: HTTPServer, field: dict[str, object]
) -> None:
    await post(server, "k", kwargs={})
    assert (await post(server, "k", **{"kwargs": {}, **field})).status_code == 422


async def match(server: HTTPServer, etag: str, **body: object) -> httpx2.Response:
    headers = server.headers("user") | {"If-Match": etag}
    return await server.client.post("/message", json={"body": "hi", **body}, headers=headers)


async def test_a_message_for_the_generation_that_was_looked_at(server: HTTPServer) -> None:
    await post(server, task_id="t")
    headers = server.headers("user")
    etag = (await server.client.get("/task", params={"task_id": "t"}, headers=headers)).headers["etag"]
    assert etag == '"1"'
    assert (await match(server, etag, task_id="t")).status_code == 200
    refused = await match(server, etag, task_id="t")
    assert refused.status_code == 412
    assert refused.json()["detail"] == "task 't' is at generation 2, not at 1; look at it again"
    assert (await server.task("t"))["generation"] == 2
    assert (await match(server, "*", task_id="t")).status_code == 200


async def test_a_task_that_does_not_exist_is_at_no_generation(server: HTTPServer) -> None:
    refused = await match(server, '"1"', task_id="t")
    assert (refused.status_code, refused.json()["detail"]) == (
        412,
        "there is no task 't' yet; leave out If-Match to start it",
    )
    assert (await match(server, "*", task_id="t")).status_code == 412


async def test_a_fork_has_an_etag_of_its_own(server: HTTPServer) -> None:
    await post(server, task_id="t")
    headers = server.headers("user")
    fork = await server.client.post("/task/fork", json={"task_id": "t"}, headers=headers)
    new = fork.json()["task_id"]
    shown = await server.client.get("/task", params={"task_id": new}, headers=headers)
    assert shown.headers["etag"] == '"0"'
    assert (await match(server, shown.headers["etag"], task_id=new)).status_code == 200
    assert (await match(server, shown.headers["etag"], task_id=new)).status_code == 412


@pytest.mark.parametrize("etag", ["1", '"01"', 'W/"1"', '"x"', '"1", "2"', ""])
async def test_what_is_no_etag_of_a_task(server: HTTPServer, etag: str) -> None:
    refused = await match(server, etag, task_id="t")
    assert refused.status_code == 400
    assert "If-Match must be the ETag of the task" in refused.json()["detail"]


async def test_a_key_that_the_task_may_have_forgotten_is_refused(server: HTTPServer) -> None:
    """Better than to accept its message once more."""
    for n in range(MAX_REMEMBERED + 1):
        assert (await post(server, f"k-{n}", task_id="t", body=f"message {n}")).status_code == 200
    known = await post(server, f"k-{MAX_REMEMBERED}", task_id="t", body=f"message {MAX_REMEMBERED}")
    assert known.status_code == 200
    refused = await post(server, "k-0", task_id="t", body="message 0")
    assert refused.status_code == 422
    assert "64 other keys were used in this task" in refused.json()["detail"]
    assert (await server.task("t"))["generation"] == MAX_REMEMBERED + 1
