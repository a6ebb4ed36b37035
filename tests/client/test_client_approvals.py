"""`MAILClient.approve` and `reject`, and the same over HTTP, against a server."""

import json
from typing import Any

import pytest
from client_stage import client_of
from support.processes.http_server import HTTPServer

from mail.client import BadAnswer, SeveralCalls
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.testing.agents import View, build_swarm, call, complete

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def swarm(calls: int = 1, tool_format: ToolFormat = "completions") -> SwarmCore:
    """Sends as many letters as it says, each after an approval, within a minute; then it answers with the results."""

    async def send(arguments: dict[str, Any]) -> str:
        return f"sent {arguments['n']}"

    def clerk(view: View) -> Any:
        return (
            [complete(" | ".join(view.results))]
            if view.results
            else [call("send", n=n) for n in range(calls)]
        )

    action = ActionCore("send", send, parameters=SCHEMA, needs_approval=True, approval_timeout=60)
    return build_swarm({"clerk": clerk}, actions={"send": action}, tool_format=tool_format)


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_approve(tool_format: ToolFormat) -> None:
    async with HTTPServer(swarm(tool_format=tool_format)) as server, client_of(server) as client:
        paused = await client.post_message("go", task_id="t")
        (waiting,) = paused["pending_tool_calls"]
        assert waiting["needs_approval"] is True
        assert waiting["approve_by"].endswith("+00:00")
        assert json.loads(paused["response"])[0]["needs_approval"] is True
        assert (await client.get_task("t"))["pending_tool_calls"] == [waiting]
        done = await client.approve("t", show_events=True)
        assert done["response"] == "SUCCESS: sent 0"
        assert done["pending_tool_calls"] == []
        kinds = [event["event"] for event in done["events"]]
        assert kinds == [
            "breakpoint_action_complete", "new_message", "action_call", "action_complete",
            "tool_call", "task_complete_call", "new_message", "task_complete",
        ]  # fmt: skip
        extra = done["events"][0]["data"]["extra_data"]
        assert (extra["decision"], extra["by"]) == ("approve", "user:ann@example")


async def test_approvals_need_no_resume_from() -> None:
    async with HTTPServer(swarm()) as server, client_of(server) as client:
        paused = await client.post_message("go", task_id="t")
        assert paused["question"] == "clerk wants to run send(n: 0)"
        assert "warnings" not in paused
        done = await client.post_message(task_id="t", approvals=[{"decision": "approve"}])
        assert (done["response"], done["question"]) == ("SUCCESS: sent 0", None)
        assert "warnings" not in done


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kwargs": {"approvals": {"decision": "approve"}}}, "send one of them"),
        ({"resume_from": "user_response"}, "leave out resume_from, or the approvals"),
        ({"task_id": "unknown"}, "there is no task 'unknown' to resume"),
    ],
)
async def test_approvals_that_can_not_be_meant(fields: dict[str, Any], problem: str) -> None:
    async with HTTPServer(swarm()) as server, client_of(server) as client:
        await client.post_message("go", task_id="t")
        body = {"body": "", "task_id": "t", "approvals": {"decision": "approve"}} | fields
        refused = await server.post(**body)
        assert refused.status_code in (400, 404)
        assert problem in refused.json()["detail"]
        assert (await client.get_task("t"))["status"] == "paused"


async def test_kwargs_may_have_the_approvals() -> None:
    async with HTTPServer(swarm()) as server, client_of(server) as client:
        await client.post_message("go", task_id="t")
        done = await server.ask(body="", task_id="t", kwargs={"approvals": [{"decision": "approve"}]})
        assert done["response"] == "SUCCESS: sent 0"


async def test_edit_and_reject_one_by_one() -> None:
    async with HTTPServer(swarm(2)) as server, client_of(server) as client:
        calls = (await client.post_message("go", task_id="t"))["pending_tool_calls"]
        half = await client.approve("t", call_id=calls[1]["call_id"], arguments={"n": 9}, reason="better")
        assert [call.get("decision") for call in half["pending_tool_calls"]] == [None, "edit"]
        assert [call["arguments"] for call in json.loads(half["response"])] != []
        assert len(json.loads(half["response"])) == 1
        with pytest.raises(TypeError):
            await client.reject("t", calls[0]["call_id"])  # type: ignore[call-arg]
        done = await client.reject("t", reason="no")
        assert done["response"] == (
            "ERROR: a person has rejected this call, and it was not run: no | "
            'SUCCESS: a person has changed the arguments to {"n": 9}. Result: sent 9'
        )


async def test_several_calls_are_not_decided_by_accident() -> None:
    async with HTTPServer(swarm(2)) as server, client_of(server) as client:
        calls = (await client.post_message("go", task_id="t"))["pending_tool_calls"]
        with pytest.raises(SeveralCalls, match=r"2 calls of task 't' wait") as raised:
            await client.approve("t")
        assert raised.value.calls == calls
        with pytest.raises(SeveralCalls):
            await client.reject("t")
        first = calls[0]["call_id"]
        await client.reject("t", call_id=first)
        with pytest.raises(BadAnswer, match="was rejected by") as refused:
            await client.approve("t", call_id=first)
        assert refused.value.status == 409
        assert "SUCCESS: sent 1" in (await client.approve("t"))["response"]
        await client.post_message("go", task_id="u")
        unnamed = {"kwargs": {"approvals": {"decision": "approve"}}, "resume_from": "breakpoint_tool_call"}
        answer = await server.post(body="", task_id="u", **unnamed)
        assert answer.status_code == 400
        assert "2 calls wait for approval: send (call_id" in answer.json()["detail"]
        assert (await client.approve("u", all=True))["response"] == "SUCCESS: sent 0 | SUCCESS: sent 1"


async def test_a_stream_follows_a_decision_to_the_answer() -> None:
    async with HTTPServer(swarm()) as server:
        frames = await server.stream(task_id="t")
        assert [frame.event for frame in frames][-2:] == ["breakpoint_tool_call", "task_complete"]
        assert frames[-2].data["extra_data"]["needs_approval"] is True
        frames = await server.stream(
            task_id="t", resume_from="breakpoint_tool_call", kwargs={"approvals": {"decision": "approve"}}
        )
        assert frames[-1].data["response"] == "SUCCESS: sent 0"


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"approvals": []},
        {"approvals": [{}]},
        {"approvals": [{"decision": "maybe"}]},
        {"approvals": [{"decision": "approve", "call_id": "x"}]},
        {"approvals": [{"decision": "approve", "arguments": {"n": "nine"}}]},
        {"approvals": [{"decision": "reject", "reason": "x" * 1001}]},
        {"approvals": [{"decision": "reject"}, {"decision": "approve"}]},
        {"breakpoint_tool_call_result": "yes"},
    ],
)
async def test_bad_decisions(kwargs: dict[str, Any]) -> None:
    async with HTTPServer(swarm()) as server:
        await server.ask(task_id="t")
        refused = await server.post(task_id="t", resume_from="breakpoint_tool_call", kwargs=kwargs)
        assert refused.status_code == 400, refused.text
        assert (await server.task("t"))["status"] == "paused"
