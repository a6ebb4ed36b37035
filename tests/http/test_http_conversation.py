"""The items of a conversation: in `GET /task` and in streams, with `items`."""

from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.testing.agents import build_swarm, call, complete, tool_results


def asking_swarm():
    def supervise(view):
        results = tool_results(view.history)
        return [complete(results[-1])] if results else [call("ask_user", question="May I?")]

    return build_swarm({"supervisor": supervise}, breakpoint_tools=frozenset({"ask_user"}))


async def read(server: HTTPServer, **query: Any) -> dict[str, Any]:
    response = await server.client.get("/task", params={"task_id": "t", "items": True, **query})
    assert response.status_code == 200, response.text
    return response.json() | {"next": response.headers.get("x-next-cursor")}


def conversation(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items without spans."""
    return [item for item in items if item["kind"] not in ("turn", "model_call", "wait")]


def fold(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({item["id"]: item for item in items}.values())


async def answered(server: HTTPServer) -> None:
    paused = await server.ask(task_id="t", body="go")
    [waiting] = paused["pending_tool_calls"]
    assert paused["events"] is None
    kwargs = {"breakpoint_tool_call_result": [{"call_id": waiting["call_id"], "content": "yes"}]}
    await server.ask(task_id="t", body="", resume_from="breakpoint_tool_call", kwargs=kwargs)


async def test_the_conversation_of_a_task() -> None:
    async with HTTPServer(asking_swarm()) as server:
        await answered(server)
        record = await read(server)
        assert record["next"] is None
        message, work, question, more, answer = conversation(record["items"])
        assert [message["who"], work["turns"], question["words"]] == ["ann", 1, "supervisor asks: May I?"]
        assert question["asked"] == {"text": "May I?", "subject": "", "argument": "question"}
        assert [question["reply"]["text"], more["kind"], answer["text"]] == ["yes", "work", "yes"]
        assert [
            (item["kind"], item["agent"])
            for item in record["items"]
            if item not in conversation(record["items"])
        ] == [
            ("turn", "supervisor"),
            ("wait", "supervisor"),
            ("turn", "supervisor"),
        ]
        assert "items" not in await server.task("t") or (await server.task("t"))["items"] is None


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
async def test_pages_add_up_to_the_whole(limit: int) -> None:
    async with HTTPServer(asking_swarm()) as server:
        await answered(server)
        whole, items, after = (await read(server))["items"], [], 0
        while after is not None:
            page = await read(server, limit=limit, after=after)
            items += page["items"]
            after = page["next"]
        assert fold(items) == whole


@pytest.mark.parametrize("seen", [0, 3, 5])
async def test_a_stream_has_each_item_before_its_event(seen: int) -> None:
    async with HTTPServer(asking_swarm()) as server:
        await answered(server)
        whole = (await read(server))["items"]
        query = {"task_id": "t", "items": True, "last_event_id": seen}
        async with server.frames("GET", "/task/stream", params=query) as frames:
            got = [frame async for frame in frames]
        items = [frame.data for frame in got if frame.event == "item"]
        assert {item["id"]: item for item in items} == {
            item["id"]: item for item in whole if item["version"] > seen
        }
        last = seen
        for frame in got:
            if frame.event == "item":
                assert frame.id is None
                assert frame.data["version"] > last
            else:
                last = int(frame.id or 0)


async def test_a_message_can_be_answered_with_items(server: HTTPServer) -> None:
    frames = await server.stream(task_id="t", body="hi", items=True)
    assert frames[0].data["kind"] == "message"
    assert frames[-1].event == "task_complete"
    assert all(frame.event != "item" for frame in await server.stream(task_id="u"))


async def test_a_moment_of_the_past() -> None:
    async with HTTPServer(asking_swarm()) as server:
        await answered(server)
        pause = next(
            int(event["id"])
            for event in (await server.task("t"))["events"]
            if event["event"] == "task_complete"
        )
        past = await read(server, at=pause)
        message, work, question = conversation(past["items"])
        assert (message["kind"], work["kind"], question["reply"]) == ("message", "work", None)


async def test_a_summary_has_no_items(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    response = await server.client.get("/task?task_id=t&fields=summary&items=true")
    assert (response.status_code, "leave out fields" in response.json()["detail"]) == (400, True)
