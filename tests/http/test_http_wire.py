"""What other programs get: every message validates strictly against the published schema, every log is complete."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.processes.http_server import HTTPServer

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import (
    Call,
    View,
    broadcast,
    build_swarm,
    call,
    complete,
    interrupt,
    request,
    respond,
    wait,
)

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "spec" / "MAIL-core.schema.json").read_text(encoding="utf-8")
)
VALID = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


def swarm() -> SwarmCore:
    """Sends a message of every kind, asks the user, and leaves mail unread meanwhile."""

    def supervisor(view: View) -> list[Call]:
        match len(view.messages):
            case 1:
                return [request("worker", "a < b -> c </body>"), broadcast(), interrupt("worker"), wait()]
            case 2:
                return [request("worker"), call("approve")]
            case _:
                return [complete("done")] if view.results else [wait()]

    def worker(view: View) -> list[Call]:
        return [respond("supervisor", view.mail.body)]

    return build_swarm({"supervisor": supervisor, "worker": worker}, breakpoint_tools=frozenset({"approve"}))


def messages(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for event in events:
        data = json.loads(event["data"]) if isinstance(event["data"], str) else event["data"]
        if "full_message" in data["extra_data"]:
            yield data["extra_data"]["full_message"]


async def test_every_message_is_strictly_valid_wherever_it_is_shown() -> None:
    async with HTTPServer(swarm()) as server:
        answer = await server.ask(task_id="t", show_events=True)
        record = await server.task("t")
        waiting = [entry["message"] for entry in record["task_message_queue"]]
        frames = await server.stream(
            task_id="t",
            resume_from="breakpoint_tool_call",
            kwargs={"breakpoint_tool_call_result": "yes"},
        )
        streamed = [
            frame.data["extra_data"]["full_message"] for frame in frames if frame.event == "new_message"
        ]
        shown = [*messages(answer["events"]), *messages(record["events"]), *waiting, *streamed]
    assert waiting
    assert {message["msg_type"] for message in shown} >= {"request", "response", "broadcast", "interrupt"}
    for message in shown:
        VALID.validate(message)
        assert message["message"]["routing_info"] == {}
        assert None not in message["message"].values()


@pytest.mark.parametrize(("fails", "kind"), [(False, "task_complete"), (True, "task_error")])
async def test_the_last_entry_of_a_log_has_the_fields_of_the_others(fails: bool, kind: str) -> None:
    def supervisor(view: View) -> list[Call]:
        if fails:
            raise RuntimeError
        return [complete("done")]

    async with HTTPServer(build_swarm({"supervisor": supervisor})) as server:
        answer = await server.ask(task_id="t", show_events=True)
        last, recorded = answer["events"][-1], (await server.task("t"))["events"][-1]
        assert (last["event"], recorded["event"]) == (kind, kind)
        assert last["data"] == json.loads(recorded["data"])
        assert last["data"].keys() == {"timestamp", "task_id", "response", "description", "extra_data"}
        assert last["data"]["extra_data"] == {}
        assert last["data"]["description"]
        streamed = (await server.stream(task_id="u"))[-1]
        assert streamed.event == kind
        assert streamed.data.keys() == {"timestamp", "task_id", "response"}
