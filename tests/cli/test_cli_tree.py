"""A task's events as a tree."""

import io
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from mail.cli.output import Output, printable
from mail.cli.swarms import show_agents
from mail.cli.views.events import MAXIMUM_DEPTH, Node, read_tree, show_tree
from mail.cli.views.tasks import read_task, show_task

pytestmark = pytest.mark.fast

Event = tuple[str, Mapping[str, Any]]


def address(name: str) -> dict[str, str]:
    return {"address_type": "user" if name == "alice" else "agent", "address": name}


def message(sender: str, *recipients: str, request: str, body: str, kind: str = "request") -> Event:
    whom = (
        {"recipient": address(recipients[0])}
        if len(recipients) == 1
        else {"recipients": [address(name) for name in recipients]}
    )
    payload = {"sender": address(sender), "subject": body, "body": body, "request_id": request, **whom}
    full = {"msg_type": kind, "message": payload}
    return "new_message", {"timestamp": "2026-01-31T08:00:00Z", "extra_data": {"full_message": full}}


def note(kind: str, agent: str, text: str) -> Event:
    extra = {"agent": agent}
    return kind, {"timestamp": "2026-01-31T08:00:00Z", "description": text, "extra_data": extra}


def end(text: str) -> Event:
    return "task_complete", {"timestamp": "2026-01-31T08:00:01Z", "response": text}


def outline(nodes: list[Node]) -> list[Any]:
    """Each node's text, and those of its children."""
    return [(node.line.text, outline(node.children)) if node.children else node.line.text for node in nodes]


def test_what_was_done_is_below_who_asked_for_it() -> None:
    roots = read_tree(
        [
            message("alice", "boss", request="1", body="plan"),
            note("tool_call", "boss", "agent boss called send_request"),
            message("boss", "a", request="2", body="ask a"),
            message("boss", "b", request="3", body="ask b"),
            note("action_call", "b", "agent b executing action tool: t with args: {}"),
            note("action_complete", "b", "action complete (caller = b):\n84"),
            message("b", "boss", request="3", body="b says", kind="response"),
            message("a", "boss", request="2", body="a says", kind="response"),
            end("done"),
        ]
    )
    assert outline(roots) == [
        (
            "plan",
            [("ask a", ["a says"]), ("ask b", ["t {} → 84", "b says"]), "done"],
        )
    ]


def test_every_message_from_outside_begins_a_tree() -> None:
    roots = read_tree(
        [
            message("alice", "boss", request="1", body="one"),
            end("first"),
            message("alice", "boss", request="2", body="two"),
            message("boss", "a", "b", request="3", body="tell all", kind="broadcast"),
            note("action_complete", "b", "action complete (caller = b):\n84"),
            end("second"),
        ]
    )
    assert outline(roots) == [
        ("one", ["first"]),
        ("two", [("tell all", ["84"]), "second"]),
    ]


def test_events_of_nobody_and_an_end_without_a_start_are_shown() -> None:
    assert outline(read_tree([note("agent_error", "x", "agent 'x' failed: why"), end("so")])) == [
        ("agent 'x' failed: why", ["so"])
    ]
    assert outline(read_tree([end("so")])) == ["so"]
    assert read_tree([]) == []


def test_agents_that_keep_asking_each_other_do_not_sink_forever() -> None:
    names = ["a", "b"] * 50
    events = [message("alice", "a", request="0", body="go")]
    events += [
        message(one, other, request=str(n), body=str(n)) for n, (one, other) in enumerate(pairwise(names), 1)
    ]
    stream = io.StringIO()
    show_tree(read_tree(events), Output(stream))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 100
    assert max(len(line) - len(line.lstrip()) for line in lines) == 2 * MAXIMUM_DEPTH


def test_text_of_others_cannot_take_over_a_terminal() -> None:
    assert printable("a\x1b[31m\x07\x9b b\tc\nd\r\ne\rf") == "a�[31m�� b\tc\nd\ne�f"


def test_a_task_shows_which_swarms_it_waits_for() -> None:
    awaited: Any = {"swarm": "b", "agent": "math@b", "until": "2026-01-31T09:00:00+00:00"}
    failing = {"swarm": "c", "until": "2026-01-31T08:05:00+00:00", "problem": "503 later"}
    task = {"task_id": "t", "start_time": "2026-01-31T08:00:00+00:00", "is_running": True}
    stream = io.StringIO()
    show_task(read_task({**task, "waiting_for": [awaited, failing]}), Output(stream))
    lines = stream.getvalue().splitlines()
    assert "waits for   math@b, until 2026-01-31T09:00:00+00:00" in lines
    assert "waits for   swarm c, until 2026-01-31T08:05:00+00:00; the last attempt failed: 503 later" in lines


def test_agents_and_what_they_do() -> None:
    agent = {"comm_targets": ["b"], "actions": [], "enable_entrypoint": False}
    agents = [{**agent, "name": "b"}, {**agent, "name": "a", "description": "leads"}]
    stream = io.StringIO()
    show_agents({"entrypoint": "a", "agents": agents}, Output(stream))
    assert stream.getvalue().splitlines() == [
        "agent\ttakes messages\twrites to\tactions\tdescription",
        "a\tby default\tb\t-\tleads",
        "b\tno\tb\t-\t-",
    ]
