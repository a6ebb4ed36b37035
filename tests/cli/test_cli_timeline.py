"""How a task's events are shown."""

import io
from dataclasses import replace
from typing import Any

import pytest

from mail.cli.output import Output
from mail.cli.views.events import Line, LineReader, Stopwatch, printer, read_data, read_line
from mail.errors import MAILError

pytestmark = pytest.mark.fast

MESSAGE = {
    "id": "9c7b5d0e-0f0e-4c57-9f3e-6f0f6b8b5c11",
    "timestamp": "2026-01-31T08:00:00Z",
    "msg_type": "request",
    "message": {
        "sender": {"address_type": "agent", "address": "supervisor"},
        "recipient": {"address_type": "agent", "address": "weather"},
        "subject": "Ask",
        "body": "two\nlines",
    },
}


def event(description: str = "", **extra: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-31T08:00:00Z",
        "description": description,
        "task_id": "t",
        "extra_data": extra,
    }


def test_a_message_shows_who_writes_to_whom() -> None:
    line = read_line("new_message", event(full_message=MESSAGE), 0.5)
    assert line == Line(0.5, "new_message", "supervisor", "weather", "Ask | two lines")


def test_several_recipients() -> None:
    payload = {**MESSAGE["message"], "recipients": [{"address": "a"}, {"address": "b"}]}  # type: ignore[dict-item]
    message = {**MESSAGE, "message": {key: payload[key] for key in payload if key != "recipient"}}
    assert read_line("new_message", event(full_message=message), 0).whom == "a, b"


def test_a_default_subject_is_left_out() -> None:
    payload = {**MESSAGE["message"], "subject": "New Message"}  # type: ignore[dict-item]
    assert (
        read_line("new_message", event(full_message={**MESSAGE, "message": payload}), 0).text == "two lines"
    )


@pytest.mark.parametrize(
    ("kind", "description", "who", "text"),
    [
        (
            "await_message",
            "agent 'a' is awaiting a new message: b",
            "a",
            "agent 'a' is awaiting a new message: b",
        ),
        ("action_complete", "action complete (caller = w):\n84", "w", "84"),
        ("help_called", "something else", "", "something else"),
    ],
)
def test_other_events_show_who_did_it(kind: str, description: str, who: str, text: str) -> None:
    assert read_line(kind, event(description, agent=who), 0) == Line(0, kind, who, "", text)


def test_a_tool_call_shows_its_arguments() -> None:
    data = event(
        "agent a called send_request", agent="a", tool_name="send_request", tool_args={"target": "b"}
    )
    line = read_line("tool_call", data, 0)
    assert (line.who, line.text) == ("a", 'send_request {"target": "b"}')


def test_the_end_shows_the_answer() -> None:
    assert read_line("task_complete", {"timestamp": "", "task_id": "t", "response": "a\nb"}, 0).text == "a b"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_where_it_is_piped_and_styled_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    line = Line(0.0123, "new_message", "a", "b", "x" * 300)
    piped, terminal = io.StringIO(), Terminal()
    printer(piped)(line)
    printer(terminal)(line)
    assert piped.getvalue().startswith("   12.3 ms  new_message     a → b  ")
    assert "\x1b[" not in piped.getvalue()
    assert "\x1b[" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 2, "a text that doesn't fit has a line of its own"
    assert "…" in terminal.getvalue()
    printer(terminal)(replace(line, text="short"))
    assert terminal.getvalue().count("\n") == 3


def test_mail_to_other_swarms_is_shown_once() -> None:
    data = {
        "description": "sent interswarm message forward to swarm b:\n<incoming_message>\n…",
        "extra_data": {},
    }
    assert read_line("interswarm_message_sent", data, 0).text == "sent interswarm message forward to swarm b"


def test_a_time_of_another_year_has_its_year() -> None:
    assert Output(Terminal()).time("2019-07-15T12:00:00+00:00") == "2019-07-15"
    assert Output(io.StringIO()).time("2019-07-15T12:00:00+00:00") == "2019-07-15T12:00:00+00:00"


def test_times_are_those_since_the_first_event() -> None:
    stopwatch = Stopwatch()
    times = [
        "2026-01-31T08:00:00Z",
        "2026-01-31T08:00:01.500000+00:00",
        "no time",
        None,
        "2026-01-31T08:00:09",
    ]
    assert [stopwatch.read({"timestamp": time}) for time in times] == [0, 1.5, 0, 0, 0]
    assert stopwatch.read({}) == 0
    assert Line(3723.0, "ping", "", "", "").columns()[0] == "  3723.0 s"
    assert len(Line(3723.0, "ping", "", "", "").columns()[0]) == len(Line(0, "ping", "", "", "").columns()[0])


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "7"])
def test_what_is_no_event_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(MAILError, match="invalid event"):
        read_data(text)


def test_nothing_in_a_line_is_obeyed_by_a_terminal() -> None:
    message = {**MESSAGE, "message": {**MESSAGE["message"], "subject": "\x1b[2J", "body": "b\x07"}}  # type: ignore[dict-item]
    line = read_line("new_message", event(full_message=message), 0)
    assert line.text == "\\u001b[2J | b\\u0007"
    assert read_line("tool_call", event("a call", agent="\x9bx", tool_name="t\x1b"), 0).who == "\\u009bx"


def tool_call(name: str, **extra: Any) -> tuple[str, dict[str, Any]]:
    return "tool_call", event(agent="w", tool_name=name, tool_args={}, **extra)


def test_an_action_is_one_line_with_its_begin_its_result_and_its_duration() -> None:
    timing = {"began": "2026-01-31T08:00:02Z", "seconds": 4.0}
    woken = {
        "msg_type": "broadcast",
        "message": {
            "sender": {"address_type": "system", "address": "s"},
            "recipients": [{"address": "w"}],
            "subject": "::action_complete::",
            "body": "slow: done",
        },
    }
    reader = LineReader()
    reader.read("new_message", event(full_message=MESSAGE), "1")
    lines = [
        reader.read(kind, data, str(n))
        for n, (kind, data) in enumerate(
            [
                tool_call("slow", timing=timing),
                (
                    "action_call",
                    event("agent w executing action tool: slow with args: {'n': 1}", agent="w", after=0.5),
                ),
                ("action_complete", event("action complete (caller = w):\ndone", agent="w", seconds=3.0)),
                tool_call("bad"),
                (
                    "action_call",
                    event("agent w executing action tool: bad with args: {}", agent="w", after=0.5),
                ),
                ("action_error", event("action error (caller = w):\nboom", agent="w", seconds=0.001)),
                ("action_error", event("action error (caller = w):\nno such tool", agent="w")),
                ("new_message", event(full_message=woken)),
            ],
            2,
        )
    ]
    assert [line for line in lines if line is not None] == [
        Line(2.5, "action", "w", "", "slow {'n': 1} → done (3.0 s)", "4"),
        Line(2.5, "action_error", "w", "", "bad {} → boom", "7"),
        Line(0, "action_error", "w", "", "no such tool", "8"),
    ]
    assert Line(2.5, "action", "w", "", "x", "4").columns()[0].startswith("   4  ")


def test_a_pause_is_not_called_complete() -> None:
    reader = LineReader()
    asked = event("agent w used breakpoint tools ask with args: {}", agent="w")
    assert reader.read("breakpoint_tool_call", asked, "2") is None
    pause = {
        "timestamp": "",
        "response": "[]",
        "question": "w asks: may I?\nw asks: or not?",
    }
    line = reader.read("task_complete", pause, "3")
    assert line is not None
    assert (line.kind, line.text, line.id) == ("paused", "w asks: may I?; w asks: or not?", "3")
    answered = reader.read(
        "breakpoint_action_complete", event("breakpoint action complete (caller = w):\nyes", agent="w"), "4"
    )
    assert answered is not None
    assert (answered.kind, answered.text) == ("answered", "yes")


def test_the_systems_subjects_are_words() -> None:
    payload = {
        **MESSAGE["message"],  # type: ignore[dict-item]
        "sender": {"address_type": "system", "address": "s"},
        "subject": "::tool_call_error::",
    }
    line = LineReader().read("new_message", event(full_message={**MESSAGE, "message": payload}))
    assert line is not None
    assert line.text == "tool call error | two lines"
