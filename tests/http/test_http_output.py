"""`output_schema` of `POST /message`, and the output in its answer and in `GET /task`."""

import asyncio
import json
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import View, build_agent, build_swarm, call, complete

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def counting(*answers: Any, **settings: Any) -> SwarmCore:
    """A swarm that gives these outputs, one per turn; text is given as it is."""
    script = iter(answers)

    def supervisor(_view: View) -> Any:
        answer = next(script)
        return [answer if isinstance(answer, tuple) else call("task_complete", output=answer)]

    settings = {"breakpoint_tools": frozenset({"ask"}), "actions": {"ask": never}, **settings}
    return build_swarm(
        {"supervisor": build_agent(supervisor, supervises=True, actions=["ask"])},
        **settings,
    )


async def never(_arguments: dict[str, Any]) -> str:
    raise AssertionError("breakpoint tools are not run")


async def test_the_output_is_in_the_answer_and_in_the_task() -> None:
    async with HTTPServer(counting({"m": 1}, {"n": 2})) as server:
        answer = await server.ask(output_schema=NUMBER, task_id="t", show_events=True)
        assert (answer["response"], answer["output"]) == ('{"n":2}', {"n": 2})
        faults = [event for event in answer["events"] if event["event"] == "agent_error"]
        assert [fault["data"]["description"] for fault in faults] == [
            "agent 'supervisor' made an error: the answer doesn't fit the output schema: at /: 'n' is a required "
            "property"
        ]
        assert (await server.task("t"))["output"] == {"n": 2}
        summary = await server.client.get("/task", params={"task_id": "t", "fields": "summary"})
        assert (summary.json()["output"], summary.json()["output_schema"]) == ({"n": 2}, NUMBER)
        assert "output" not in (await server.client.get("/tasks")).json()["t"]


async def test_an_agent_that_never_fits_the_schema_fails() -> None:
    async with HTTPServer(counting(*[{"n": "one"}] * 5)) as server:
        answer = await server.ask(output_schema=NUMBER)
    assert "5 faulty turns" in answer["response"]
    assert "output" not in answer


@pytest.mark.parametrize(
    ("schema", "detail"),
    [
        ({"type": "strin"}, "output_schema is not a valid JSON Schema: at #/type"),
        ({"$ref": "https://example.com/s.json"}, "$ref may only refer to the schema itself"),
        ({"description": "x" * 9000}, "at most 8192 are allowed"),
        ([], "output_schema"),
    ],
)
async def test_a_schema_that_is_refused_stores_nothing(schema: Any, detail: str) -> None:
    async with HTTPServer(counting()) as server:
        response = await server.post(output_schema=schema, task_id="t")
        assert response.status_code == 400
        assert detail in response.json()["detail"]
        assert (await server.client.get("/tasks")).json() == {}


async def test_each_question_has_its_own_schema() -> None:
    words = {"type": "array", "items": {"type": "string"}}
    async with HTTPServer(counting({"n": 1}, ["a"], complete("as you like"))) as server:
        assert (await server.ask(task_id="t", output_schema=NUMBER))["output"] == {"n": 1}
        assert (await server.ask(task_id="t", output_schema=words))["output"] == ["a"]
        answer = await server.ask(task_id="t")
        assert answer["response"] == "as you like"
        assert "output" not in answer
        assert not {"output", "output_schema"} & (await server.task("t")).keys()


async def test_a_paused_task_keeps_its_schema_until_it_is_answered() -> None:
    async with HTTPServer(counting(call("ask"), {"n": "x"}, {"n": 1})) as server:
        paused = await server.ask(task_id="t", output_schema=NUMBER)
        assert "output" not in paused
        answer = await server.ask(
            body="",
            task_id="t",
            resume_from="breakpoint_tool_call",
            kwargs={"breakpoint_tool_call_result": "yes"},
        )
    assert answer["output"] == {"n": 1}


async def test_the_schema_of_the_swarm_is_the_default() -> None:
    async with HTTPServer(counting({"n": 1}, [], output_schema=NUMBER)) as server:
        assert (await server.ask(task_id="t"))["output"] == {"n": 1}
        assert (await server.task("t"))["output"] == {"n": 1}
        assert (await server.ask(output_schema={"type": "array"}))["output"] == []


async def test_a_running_task_has_one_schema() -> None:
    release = asyncio.Event()

    async def supervisor(_view: View) -> Any:
        await release.wait()
        return [call("task_complete", output={"n": 1})]

    async with HTTPServer(build_swarm({"supervisor": supervisor})) as server:
        later = {"Prefer": "respond-async"}
        assert (await server.post(task_id="t", output_schema=NUMBER, headers=later)).status_code == 202
        other = await server.post(task_id="t", output_schema={"type": "array"}, headers=later)
        assert other.status_code == 400
        assert "running with another output_schema" in other.json()["detail"]
        assert (await server.post(task_id="t", output_schema=NUMBER, headers=later)).status_code == 202
        waiting = asyncio.create_task(server.ask(task_id="t"))
        await server.until(lambda task: len(task["events"]) == 3)
        release.set()
        assert (await waiting)["output"] == {"n": 1}, "who joins the task gets its output"


async def test_a_repeated_message_gets_the_same_output() -> None:
    async with HTTPServer(counting({"n": 1})) as server:
        key = {"Idempotency-Key": "k"}
        first, second = [await server.post(output_schema=NUMBER, headers=key) for _ in range(2)]
    assert first.json() == second.json()
    assert first.json()["output"] == {"n": 1}


async def test_the_stream_ends_with_the_text_of_the_output() -> None:
    async with HTTPServer(counting({"n": 1})) as server:
        frames = await server.stream(output_schema=NUMBER)
    assert json.loads(frames[-1].data["response"]) == {"n": 1}
