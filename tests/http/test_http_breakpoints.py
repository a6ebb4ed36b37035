"""Breakpoint tools: the task pauses until the user gives their results."""

import json
from typing import Any

from support.processes.http_server import HTTPServer

from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import SwarmCore
from mail.testing.agents import build_swarm, call, complete, tool_results

RESUME = "breakpoint_tool_call"


def asking_swarm(calls: int = 1, tool_format: ToolFormat = "completions") -> SwarmCore:
    """Asks the user by breakpoint tools, then answers with the results as its history has them."""

    def supervise(view):
        results = tool_results(view.history)
        if results:
            return [complete(" | ".join(results))]
        return [call("ask_user", n=n) for n in range(calls)]

    return build_swarm(
        {"supervisor": supervise}, breakpoint_tools=frozenset({"ask_user"}), tool_format=tool_format
    )


async def pause(server: HTTPServer, task_id: str = "t") -> list[dict[str, Any]]:
    answer = await server.ask(task_id=task_id)
    calls: list[dict[str, Any]] = json.loads(answer["response"])
    return calls


async def test_the_pause_in_completions_style() -> None:
    async with HTTPServer(asking_swarm()) as server:
        [waiting] = await pause(server)
        assert waiting.keys() == {"arguments", "name", "id"}
        assert (waiting["name"], json.loads(waiting["arguments"])) == ("ask_user", {"n": 0})
        record = await server.task("t")
        assert (record["completed"], record["is_running"], record["status"]) == (True, False, "paused")
        [pending] = record["pending_tool_calls"]
        called = {"agent": "supervisor", "name": "ask_user", "arguments": {"n": 0}}
        assert pending == {"call_id": waiting["id"], **called}


async def test_what_the_task_asks_in_words() -> None:
    words = (
        "supervisor waits for the result of ask_user(n: 0)\nsupervisor waits for the result of ask_user(n: 1)"
    )
    async with HTTPServer(asking_swarm(2)) as server:
        paused = await server.ask(task_id="t", show_events=True)
        assert paused["question"] == words
        assert paused["events"][-1]["data"]["question"] == words
        record = await server.task("t")
        assert record["question"] == words
        assert json.loads(record["events"][-1]["data"])["question"] == words
        async with server.frames("GET", "/task/stream?task_id=t") as frames:
            last = [frame async for frame in frames][-1]
        assert last.data["question"] == words
        listed = (await server.client.get("/tasks?fields=summary")).json()
        assert listed["t"]["question"] == words


async def test_the_answer_has_the_waiting_calls_as_json() -> None:
    async with HTTPServer(asking_swarm(2)) as server:
        paused = await server.ask(task_id="t")
        assert paused.keys() == {"response", "events", "task_id", "status", "pending_tool_calls", "question"}
        assert (paused["task_id"], paused["status"]) == ("t", "paused")
        assert paused["pending_tool_calls"] == (await server.task("t"))["pending_tool_calls"]
        assert [call["arguments"] for call in paused["pending_tool_calls"]] == [{"n": 0}, {"n": 1}]
        results = [{"call_id": call["call_id"], "content": "yes"} for call in paused["pending_tool_calls"]]
        done = await server.ask(
            body="", task_id="t", resume_from=RESUME, kwargs={"breakpoint_tool_call_result": results}
        )
        assert (done["status"], done["pending_tool_calls"], done["question"]) == ("completed", [], None)


async def test_a_message_does_not_drop_a_question_silently() -> None:
    async with HTTPServer(asking_swarm()) as server:
        paused = await server.ask(task_id="t")
        refused = await server.post(body="blue", task_id="t")
        assert refused.status_code == 409
        problem = refused.json()
        calls = [{**call, "agent": "supervisor"} for call in problem["pending_tool_calls"]]
        assert calls == paused["pending_tool_calls"]
        for told in (
            "ask_user with",
            paused["pending_tool_calls"][0]["call_id"],
            "breakpoint_tool_call",
            "drop_question",
        ):
            assert told in problem["detail"]
        assert (await server.task("t"))["status"] == "paused", "the question still waits"
        answer = await server.ask(body="blue", task_id="t", drop_question=True)
        assert "the user sent a new message" in answer["response"]


async def test_a_client_that_says_user_response_continues_as_before() -> None:
    """Clients of MAIL 1.3.6 follow up on a task with it, whatever its state."""
    async with HTTPServer(asking_swarm()) as server:
        await server.ask(task_id="t")
        answer = await server.ask(body="blue", task_id="t", resume_from="user_response")
        assert "the user sent a new message" in answer["response"]


async def test_unknown_resume_from(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    response = await server.post(task_id="t", resume_from="somewhere")
    assert response.status_code == 400
    assert "user_response" in response.json()["detail"]
    assert "breakpoint_tool_call" in response.json()["detail"]


async def test_admins_do_not_read_why_others_cancel_nor_which_answers_they_want() -> None:
    async with HTTPServer(asking_swarm(1)) as server:
        await server.ask(task_id="t", output_schema={"type": "string", "description": "secret schema"})
        await server.client.post("/task/cancel", json={"task_id": "t", "reason": "secret reason"})
        mine = await server.client.get("/tasks?fields=summary")
        others = await server.client.get("/tasks?fields=summary&all=true", headers=server.headers("admin"))
    assert "secret schema" in mine.text
    assert "secret reason" in mine.text
    assert "user:ann" in others.text
    assert "secret" not in others.text
