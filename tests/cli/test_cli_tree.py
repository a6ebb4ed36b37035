"""A task as a tree."""

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mail.cli.output import Output
from mail.cli.swarms import show_agents
from mail.cli.views.events import MAXIMUM_DEPTH, Node, read_tree, show_tree
from mail.cli.views.tasks import read_task, show_task
from mail.core.protocol.visible_text import printable

HIDDEN = Path(__file__).parents[1] / "ui/units/visible.cases.json"

pytestmark = pytest.mark.fast


def item(kind: str, seq: int, cause: int | None = None, **about: Any) -> dict[str, Any]:
    return {"kind": kind, "id": f"{seq}.0", "seq": seq, "version": seq, "cause": cause, **about}


def mail(seq: int, sender: str, *recipients: str, body: str, cause: int | None = None) -> dict[str, Any]:
    about = {"sender": sender, "recipients": recipients, "subject": body, "text": body}
    return item("message" if cause is None else "mail", seq, cause, **about)


def action(seq: int, agent: str, result: str, cause: int | None = None) -> dict[str, Any]:
    about = {
        "agent": agent,
        "name": "t",
        "arguments": {},
        "result": result,
        "seconds": 0.01,
        "has_failed": False,
    }
    return item("action", seq, cause, **about)


def end(seq: int, text: str) -> dict[str, Any]:
    return item("answer", seq, who="boss", text=text)


def outline(nodes: list[Node]) -> list[Any]:
    """Each node's text, and those of its children."""
    return [(node.line.text, outline(node.children)) if node.children else node.line.text for node in nodes]


def test_what_was_done_is_below_who_asked_for_it() -> None:
    roots = read_tree(
        [
            mail(1, "alice", "boss", body="plan"),
            item("work", 1),
            item("turn", 2, 1, agent="boss"),
            mail(3, "boss", "a", body="ask a", cause=1),
            mail(4, "boss", "b", body="ask b", cause=1),
            action(5, "b", "84", 4),
            mail(8, "b", "boss", body="b says", cause=4),
            mail(9, "a", "boss", body="a says", cause=3),
            end(11, "done"),
        ]
    )
    assert outline(roots) == [
        (
            "plan",
            [("ask a", ["a says"]), ("ask b", ["t {} → 84", "b says"]), "done"],
        )
    ]


def test_every_message_from_outside_begins_a_tree() -> None:
    question = item("question", 7, words="boss asks: may I?")
    fault = item("fault", 5, 4, agent="a", text="no gold", ended_task=False)
    refusal = item("note", 6, 4, agent="a", name="guard_decision", text="guard g refused the call")
    retry = item("note", 6, 4, agent="a", name="retry", text="again")
    roots = read_tree(
        [
            mail(1, "alice", "boss", body="one"),
            end(2, "first"),
            mail(3, "alice", "boss", body="two"),
            mail(4, "boss", "a", "b", body="tell all", cause=3),
            fault,
            refusal,
            retry,
            question,
        ]
    )
    assert outline(roots) == [
        ("one", ["first"]),
        ("two", [("tell all", ["no gold", "guard g refused the call"]), "boss asks: may I?"]),
    ]


def test_an_end_without_a_start_is_shown() -> None:
    assert outline(read_tree([end(1, "so")])) == ["so"]
    assert read_tree([]) == []


def test_agents_that_keep_asking_each_other_do_not_sink_forever() -> None:
    names = ["a", "b"] * 50
    items = [mail(1, "alice", "a", body="go")]
    items += [
        mail(n + 1, one, other, body=str(n), cause=n) for n, (one, other) in enumerate(pairwise(names), 1)
    ]
    stream = io.StringIO()
    show_tree(read_tree(items), Output(stream))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 100
    assert max(len(line) - len(line.lstrip()) for line in lines) == 2 * MAXIMUM_DEPTH


def test_text_of_others_cannot_take_over_a_terminal() -> None:
    assert (
        printable("a\x1b[31m\x07\x9b b\tc\nd\r\ne\rf") == r"a\u001b[31m\u0007\u009b b" "\tc\nd\n" r"e\u000df"
    )


@pytest.mark.parametrize(("text", "shown"), json.loads(HIDDEN.read_text(encoding="utf-8")))
def test_what_is_hidden_in_a_text_is_shown(text: str, shown: str) -> None:
    """The page escapes the same (tests/ui/units/visible.test.js)."""
    assert printable(text) == shown
    assert printable(shown) == shown


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
    agents = [{**agent, "name": "b", "copies": 8}, {**agent, "name": "a", "description": "leads"}]
    stream = io.StringIO()
    show_agents({"entrypoint": "a", "agents": agents}, Output(stream))
    assert stream.getvalue().splitlines() == [
        "agent\ttakes messages\twrites to\tactions\tcopies\tdescription",
        "a\tby default\tb\t-\t-\tleads",
        "b\tno\tb\t-\t8\t-",
    ]
