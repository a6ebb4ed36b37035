"""`GET /task/turn`: what an agent read and replied in a turn that is over."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.size import json_size
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.usage import Usage, report_usage
from mail.factories.base import MAILAgentFunction
from mail.testing.agents import (
    Call,
    View,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    scripted,
    wait,
)

PROMPT = "You are the supervisor. Never say the word pear. Look at https://example.com/?token=pear12345."


async def dig(_arguments: dict[str, Any]) -> str:
    return "gold"


def supervise(view: View) -> Sequence[Call]:
    """Ask the worker, and answer with its answer; `may I` asks the user first."""
    if view.mail.body == "may I":
        return [call("approve")]
    if view.mail.body == "pay twice":
        return [call("pay"), call("pay")]
    if view.mail.sender_type == "user":
        report_usage(Usage(calls=1, input_tokens=7), "m")
        return [request("worker", view.mail.body)._replace(reasoning=["The worker digs."]), wait()]
    return [complete(view.mail.body)]


def work(view: View) -> Sequence[Call]:
    if view.mail.body == "dig":
        return [call("dig")]
    return [respond("supervisor", "dug gold")]


class Prompted(MAILAgentFunction):
    """The supervisor, as a class that has a prompt and a model."""

    supervises = True
    llm = "a-model"
    system = PROMPT
    policy = staticmethod(scripted(supervise))

    def __call__(self, messages: Any, tool_choice: Any = "required") -> Any:
        return self.policy(messages, tool_choice)


def swarm() -> SwarmCore:
    prompted = Prompted("supervisor", ["worker"], [], tool_format="completions")
    core = build_agent(supervise, targets=["worker"], actions=["approve", "pay"], supervises=True)
    return build_swarm(
        {
            "supervisor": replace(core, function=prompted),
            "worker": build_agent(work, targets=["supervisor"], actions=["dig"], name="worker"),
        },
        actions={"dig": dig, "approve": dig, "pay": ActionCore("pay", dig, needs_approval=True)},
        breakpoint_tools=frozenset({"approve"}),
    )


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(swarm()) as server:
        yield server


async def look(server: HTTPServer, seq: object, role: str = "user", **query: object) -> httpx2.Response:
    params = {"task_id": "t", "seq": str(seq), **query}
    return await server.client.get("/task/turn", params=params, headers=server.headers(role))


async def test_a_turn_is_shown_as_it_was(server: HTTPServer) -> None:
    await server.post(body="dig", task_id="t")
    record = await server.task("t")
    turns = {}
    for event in record["events"][1:]:
        turn = (await look(server, event["id"])).json()
        assert turn["first"] <= int(event["id"]) <= turn["last"]
        turns[turn["first"]] = turn
    assert [turn["agent"] for turn in turns.values()] == ["supervisor", "worker", "worker", "supervisor"]
    assert [first - 1 for first in turns][1:] == [turn["last"] for turn in turns.values()][:-1]
    asks, digs, reports, answers = turns.values()

    [prompt] = asks["history"]
    assert prompt["role"] == "user"
    assert "dig" in prompt["content"]
    assert [mail["seq"] for mail in asks["mail"]] == [1]
    assert asks["usage"]["input_tokens"] == 7
    reply, *results = asks["output"]
    assert [each["function"]["name"] for each in reply["tool_calls"]] == ["send_request", "await_message"]
    assert [result["role"] for result in results] == ["tool", "tool"]

    assert digs["timing"]["began"] < digs["committed"]
    assert digs["output"][-1]["content"] == "SUCCESS: gold"
    assert reports["history"][:-1] == [*digs["history"], *digs["output"]]
    assert answers["history"][:2] == [prompt, reply]
    assert answers["omitted"] == 0


async def test_prompts_are_for_admins_and_tools_for_all(server: HTTPServer) -> None:
    for role in ("user", "admin"):
        await server.post(headers=server.headers(role), body="dig", task_id="t")
    asks = (await look(server, 2)).json()["setup"]
    assert (asks["model"], asks["system"], asks["options"]) == ("a-model", None, None)
    assert (await look(server, 2, "admin")).json()["setup"] == {
        **asks,
        "system": PROMPT.replace("token=pear12345.", "(hidden)"),
        "options": {},
    }
    names = [tool["function"]["name"] for tool in asks["tools"]]
    assert {"send_request", "task_complete"} <= set(names)
    worked = next(each["id"] for each in (await server.task("t"))["events"] if each["event"] == "action_call")
    digs = (await look(server, worked)).json()["setup"]
    assert (digs["model"], digs["system"], digs["has_more_tools"]) == (None, None, False)
    assert [tool["function"]["name"] for tool in digs["tools"]] == ["dig"]


async def test_the_tools_are_those_of_the_turn(server: HTTPServer) -> None:
    schema = {"type": "object", "properties": {"metal": {"type": "string"}}}
    await server.post(body="dig", task_id="t", output_schema=schema)
    setup = (await look(server, 2)).json()["setup"]
    [complete] = [tool for tool in setup["tools"] if tool["function"]["name"] == "task_complete"]
    assert "metal" in str(complete)


async def test_the_message_comes_before_the_results_that_resume_an_agent(server: HTTPServer) -> None:
    await server.post(body="may I", task_id="t")
    results = {"breakpoint_tool_call_result": "you may"}
    await server.post(body="go", task_id="t", resume_from="breakpoint_tool_call", kwargs=results)
    resumed = (await look(server, (await server.task("t"))["seq"])).json()
    assert [entry["role"] for entry in resumed["history"]] == ["user", "user", "assistant", "tool"]
    assert resumed["history"][-1]["content"] == "you may"


async def test_a_decision_that_leaves_other_calls_waiting_is_no_turn(server: HTTPServer) -> None:
    paused = (await server.post(body="pay twice", task_id="t")).json()
    asked = (await server.task("t"))["seq"]
    given = {"approvals": [{"call_id": paused["pending_tool_calls"][0]["call_id"], "decision": "approve"}]}
    await server.post(body="", task_id="t", resume_from="breakpoint_tool_call", kwargs=given)
    events = [event for event in (await server.task("t"))["events"] if int(event["id"]) > asked]
    assert "breakpoint_tool_call" in {event["event"] for event in events}
    assert {(await look(server, event["id"])).status_code for event in events} == {400}


async def test_a_long_history_is_cut(server: HTTPServer) -> None:
    await server.post(body="dig", task_id="t")
    seq = (await server.task("t"))["seq"]
    whole = (await look(server, seq)).json()
    short = (await look(server, seq, limit=1)).json()
    assert short == {**whole, "history": whole["history"][-1:], "omitted": len(whole["history"]) - 1}


async def test_large_entries_of_the_history_are_left_out(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.post(body="dig", task_id="t")
    seq = (await server.task("t"))["seq"]
    whole = (await look(server, seq)).json()
    monkeypatch.setattr("mail.http.routes.turns.HISTORY_BYTES", sum(map(json_size, whole["history"][-2:])))
    short = (await look(server, seq)).json()
    assert short == {**whole, "history": whole["history"][-2:], "omitted": len(whole["history"]) - 2}


@pytest.mark.parametrize("seq", [0, 1, 99, "x"])
async def test_what_is_not_part_of_a_turn_is_refused(server: HTTPServer, seq: object) -> None:
    await server.post(body="dig", task_id="t")
    answer = await look(server, seq)
    assert answer.status_code == 400
    assert str(seq) in answer.json()["detail"] or "seq" in answer.json()["detail"]
