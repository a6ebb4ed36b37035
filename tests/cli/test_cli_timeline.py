"""How a task's items are shown as a timeline."""

import io
from dataclasses import replace
from typing import Any

import pytest
from support.processes.terminal import Screen

from mail.cli.output import Output
from mail.cli.views.events import Line, LineReader, Stopwatch, printer, read_data, read_event_line, read_item
from mail.errors import MAILError

pytestmark = pytest.mark.fast

START = "2026-01-31T08:00:00Z"


def item(kind: str, **about: Any) -> dict[str, Any]:
    return {"kind": kind, "id": "4.0", "seq": 4, "version": 4, "time": START, "cause": None, **about}


def mail(**about: Any) -> dict[str, Any]:
    given = {"sender": "supervisor", "recipients": ["a", "b"], "subject": "Ask", "text": "two\nlines"}
    return item("mail", **given, **{"type": "request", **about})


def action(**about: Any) -> dict[str, Any]:
    given = {"agent": "w", "name": "slow", "arguments": {"n": 1}, "result": "done", "has_failed": False}
    return item("action", **{**given, "seconds": 3.0, **about})


def question(**about: Any) -> dict[str, Any]:
    return item("question", **{"agent": "w", "words": "w asks: may I?", "reply": None, **about})


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (mail(), Line(0, "new_message", "supervisor", "a, b", "Ask | two lines", "4")),
        (mail() | {"subject": "New Message"}, Line(0, "new_message", "supervisor", "a, b", "two lines", "4")),
        (
            mail() | {"subject": "\x1b[2J", "text": "b\x07", "sender": "\x9bx"},
            Line(0, "new_message", "\\u009bx", "a, b", "\\u001b[2J | b\\u0007", "4"),
        ),
        (action(), Line(0, "action", "w", "", 'slow {"n": 1} → done (3.0 s)', "4")),
        (
            action(has_failed=True, result="boom", seconds=0.001),
            Line(0, "action_error", "w", "", 'slow {"n": 1} → boom', "4"),
        ),
        (
            item("fault", agent="w", text="no gold", ended_task=False),
            Line(0, "error", "w", "", "no gold", "4"),
        ),
        (
            item("note", agent="w", name="of_tomorrow", text="a\nb", recipients=[]),
            Line(0, "of_tomorrow", "w", "", "a b", "4"),
        ),
        (
            item("note", agent="", name="tool call error", text="b", recipients=["w"]),
            Line(0, "tool call error", "system", "w", "b", "4"),
        ),
        (question(), Line(0, "paused", "", "", "w asks: may I?", "4")),
        (item("answer", who="w", text="a\nb"), Line(0, "task_complete", "", "", "a b", "4")),
        (item("failed", text="no"), Line(0, "task_error", "", "", "no", "4")),
        (
            item("forked", forked_from="t0", at=3),
            Line(0, "task_forked", "", "", "a fork of task t0, as it was at 3", "4"),
        ),
    ],
    ids=lambda shown: shown["kind"] if isinstance(shown, dict) else "",
)
def test_an_item_is_a_line(shown: dict[str, Any], line: Line) -> None:
    assert read_item(shown) == (line,)


def test_spans_and_the_error_that_ends_a_task_have_no_line() -> None:
    assert read_item(item("turn", agent="w")) == ()
    assert read_item(item("fault", agent="w", text="no gold", ended_task=True)) == ()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"text": "yes", "decision": None}, "yes"),
        ({"text": None, "decision": "reject", "reason": "too dear"}, "reject: too dear"),
        ({"text": None, "decision": "approve", "reason": ""}, "approve"),
    ],
)
def test_a_question_gets_a_second_line_when_it_is_answered(reply: dict[str, Any], words: str) -> None:
    reader = LineReader(START)
    [asked] = reader.read(question())
    assert reader.read(question(version=5)) == []
    answered = question(version=6, reply={"time": "2026-01-31T08:00:02Z", **reply})
    assert reader.read(answered) == [Line(2, "answered", "w", "", words, "6")]
    assert [line.kind for line in LineReader().read(answered)] == [asked.kind, "answered"]


def test_a_server_without_items_is_shown_by_its_descriptions() -> None:
    told = {"description": "agent w\nwaits", "extra_data": {"agent": "w"}}
    assert read_event_line("await_message", told) == Line(0, "await_message", "w", "", "agent w waits")
    assert read_event_line("task_complete", {"response": "42"}).text == "42"


def test_plain_where_it_is_piped_and_styled_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = Line(0.0123, "new_message", "a", "b", "x" * 300)
    piped, terminal = io.StringIO(), Screen()
    printer(Output(piped))(line)
    printer(Output(terminal))(line)
    assert piped.getvalue().startswith("   12.3 ms  new_message     a → b  ")
    assert "\x1b[" not in piped.getvalue()
    assert [replace(line, seconds=t).columns()[0].strip() for t in (1.25, 11.05, 200.4)] == [
        "1.2 s",
        "11 s",
        "3 min 20 s",
    ]
    assert "\x1b[" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 2, "a text that doesn't fit has a line of its own"
    assert "…" in terminal.getvalue()
    printer(Output(terminal))(replace(line, text="short"))
    assert terminal.getvalue().count("\n") == 3


def test_a_time_of_another_year_has_its_year() -> None:
    assert Output(Screen()).time("2019-07-15T12:00:00+00:00") == "2019-07-15"
    assert Output(io.StringIO()).time("2019-07-15T12:00:00+00:00") == "2019-07-15T12:00:00+00:00"


def test_times_are_those_since_the_first_one() -> None:
    stopwatch = Stopwatch()
    times = [START, "2026-01-31T08:00:01.500000+00:00", "no time", None, "2026-01-31T08:00:09"]
    assert [stopwatch.at(time) for time in times] == [0, 1.5, 0, 0, 0]
    assert Line(3723.0, "ping", "", "", "").columns()[0] == " 1 h 2 min"
    assert len(Line(3723.0, "ping", "", "", "").columns()[0]) == len(Line(0, "ping", "", "", "").columns()[0])
    assert Line(2.5, "action", "w", "", "x", "4").columns()[0].startswith("   4  ")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "7"])
def test_what_is_no_event_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(MAILError, match="invalid event"):
        read_data(text)
