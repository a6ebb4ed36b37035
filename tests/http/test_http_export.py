"""`GET /task/export`: everything of a task, as lines of JSON."""

import json
from base64 import b64decode
from typing import Any

from support.processes.http_server import HTTPServer

from mail.core.task.context import reference, shorten
from mail.testing.agents import Call, View, build_swarm, call, complete

LONG = "".join(f"line {n}\n" for n in range(20_000))


def make_server() -> HTTPServer:
    async def look(_arguments: dict[str, object]) -> str:
        return shorten(LONG, 200, reference(LONG))

    async def work(view: View) -> list[Call]:
        return [complete("done")] if len(view.history) > 1 else [call("look")]

    return HTTPServer(build_swarm({"supervisor": work}, actions={"look": look}))


async def lines_of(server: HTTPServer, **query: str) -> list[dict[str, Any]]:
    answer = await server.client.get("/task/export", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_all_of_a_task_is_exported() -> None:
    async with make_server() as server:
        stored = await server.client.post(
            "/files", content=b"Buy tea.", headers={"Content-Type": "text/plain", "X-File-Name": "a.txt"}
        )
        file = stored.json()["id"]
        await server.ask(body="hello", task_id="t", files=[file])
        (task,) = (await server.rig.store.list_tasks(None)).tasks
        await server.rig.store.put_content(task.key, reference(LONG), LONG)
        lines = await lines_of(server, task_id="t")
        kinds = [line["type"] for line in lines]
        assert kinds == sorted(kinds, key=["task", "event", "mail", "history", "text", "file"].index)
        assert lines[0]["task_id"] == "t"
        assert [int(line["id"]) for line in lines if line["type"] == "event"] == [
            *range(1, kinds.count("event") + 1)
        ]
        histories = [line for line in lines if line["type"] == "history"]
        assert [line["n"] for line in histories] == [*range(1, len(histories) + 1)]
        assert all(line["agent"] == "supervisor" for line in histories)
        assert [line["text"] for line in lines if line["type"] == "text"] == [LONG]
        assert (lines[-1]["id"], "data" in lines[-1]) == (file, False)
        embedded = await lines_of(server, task_id="t", files="true")
        assert b64decode(embedded[-1]["data"]) == b"Buy tea."


async def test_its_conversation_is_exported_as_markdown() -> None:
    async with make_server() as server:
        await server.ask(body="What is **2+2**?", subject="Sums", task_id="t")
        shared = await server.client.post("/task/shares", json={"task_id": "t"})
        assert shared.status_code == 201
        answer = await server.client.get("/task/export", params={"task_id": "t", "form": "markdown"})
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    parts = (
        "# ",
        "Task `t`, completed.",
        "What is **2+2**?",
        "- supervisor used `look`",
        "## supervisor answered",
        "done",
    )
    assert "task shared" not in answer.text
    places = [answer.text.index(part) for part in parts]
    assert places == sorted(places)
