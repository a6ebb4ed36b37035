"""The line that says who works, and how long agents worked."""

import asyncio
import io
import json
from datetime import datetime
from typing import Any

import pytest
from sse_starlette import ServerSentEvent
from support.processes.terminal import Screen

from mail.cli.output import Output
from mail.cli.views.conversation import Reply
from mail.cli.views.events import show_stream
from mail.cli.views.live import WorkingAgents
from mail.client import stream as client_stream
from mail.core.task.live import LiveKind


def test_the_client_knows_every_live_event() -> None:
    assert set(map(str, LiveKind)) == client_stream.LIVE


def test_the_line_says_who_works_on_what_and_why_it_takes_long() -> None:
    agents = WorkingAgents()

    def read(kind: str, now: float, **extra: Any) -> None:
        agents.read(kind, {"extra_data": extra}, now)

    read("turn_started", 0.0, agent="lead")
    assert agents.line(2.0) == "lead, 2.0 s"
    read("model_call_started", 2.0, agent="lead", model="openai/gpt", call=1)
    retry = {"reason": "rate limit (HTTP 429)", "attempt": 2, "retry_in": 4.0}
    read("model_call_retried", 3.0, agent="lead", model="openai/gpt", call=1, **retry)
    assert agents.line(5.0) == "lead: openai/gpt, 3.0 s (rate limit (HTTP 429), attempt 2 after 4.0 s)"
    for kind, delta in (("text", "Gold lies\n"), ("text", "in the river"), ("reasoning", "hm")):
        said = {"agent": "lead", "call": 1, "kind": kind, "delta": delta}
        agents.read("text_delta", {"extra_data": said}, 5.0)
    assert agents.line(5.0) == "lead: openai/gpt, 3.0 s: Gold lies in the river"
    read("model_call_ended", 6.0, agent="lead", call=1)
    read("action_started", 6.0, agent="lead", tool_name="web_search", tool_call_id="a")
    read("action_retried", 7.0, agent="lead", tool_call_id="a", reason="busy", attempt=2, retry_in=1.0)
    read("action_reported", 7.0, agent="lead", tool_call_id="a", progress="3 of 9\n pages")
    assert agents.line(8.0) == "lead: web_search, 2.0 s: 3 of 9 pages"
    agents.read("action_reported", {"extra_data": {"agent": "lead", "tool_call_id": "a"}}, 7.0)
    read("turn_started", 7.0, agent="writer\x1b[2J")
    searching = "web_search, 1 min 4 s (busy, attempt 2 after 1.0 s)"
    assert agents.line(70.0) == f"lead: {searching} · writer\\u001b[2J, 1 min 3 s"
    until = datetime(2026, 1, 31, 9, 0, 10).astimezone().isoformat()
    read("turn_ended", 71.0, agent="lead", waits_for="openai", until=until)
    assert agents.line(73.0) == "writer\\u001b[2J, 1 min 6 s · lead: waits for openai until 09:00:10, 2.0 s"
    read("turn_ended", 73.0, agent="lead")
    read("turn_ended", 71.0, agent="writer\x1b[2J")
    assert agents.line(72.0) == ""


def test_the_line_says_which_calls_wait_since_when_and_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents, noon = WorkingAgents(), datetime(2026, 1, 31, 12).astimezone()
    monkeypatch.setattr("mail.cli.views.live.time", lambda: noon.timestamp() + 60)
    due = noon.replace(hour=14)
    call = {"agent": "director", "tool_name": "render", "tool_call_id": "a", "finish_by": due.timestamp()}
    agents.read_record("action_waiting", {"timestamp": noon.isoformat(), "extra_data": call}, 500.0)
    assert agents.line(501.0) == "director waits for render, 1 min 1 s, due 14:00:00"
    report = {"agent": "director", "name": "render", "call_id": "a", "since": noon.isoformat()}
    report |= {"due": due.replace(hour=13).isoformat(), "progress": "half\x1b[2J"}
    agents.read("action_progress", {"extra_data": report}, 502.0)
    assert agents.line(502.0) == "director waits for render, 1 min 0 s, due 13:00:00: half\\u001b[2J"
    agents.read_record("action_complete", {"extra_data": {"agent": "director"}}, 503.0)  # another action
    assert agents.line(503.0)
    agents.read_record("action_complete", {"extra_data": {"agent": "director", "tool_call_id": "a"}}, 503.0)
    assert agents.line(503.0) == ""


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (Reply(text="## Gold", to="user"), "## Gold"),
        (Reply(text="See here", to="lead"), "searcher → lead: See here"),
        (Reply(text="Hm"), "searcher: Hm"),
        (Reply(text="Hm", answer="Gold"), "Gold"),
        (Reply(), ""),
    ],
)
def test_what_a_model_writes_is_shown_with_whom_it_is_for(reply: Reply, shown: str) -> None:
    assert reply.shown("searcher") == shown


class Stream:
    """The stream of a task that is read at leisure."""

    task_id = "t"

    def __init__(self, events: list[tuple[str, str | None, dict[str, Any]]]) -> None:
        self._events = events

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""

    async def __aiter__(self) -> Any:
        for kind, number, data in self._events:
            await asyncio.sleep(0)
            yield ServerSentEvent(json.dumps(data), event=kind, id=number)


def event(kind: str, number: str | None = None, **extra: Any) -> tuple[str, str | None, dict[str, Any]]:
    data = {
        "timestamp": "2026-01-01T00:00:00+00:00",
        "description": kind,
        "task_id": "t",
        "extra_data": extra,
    }
    return kind, number, data


def item(kind: str, seq: int, **about: Any) -> tuple[str, None, dict[str, Any]]:
    time = "2026-01-01T00:00:00+00:00"
    known = {"id": f"{seq}.0", "seq": seq, "version": seq, "time": time, "agent": "lead"}
    return "item", None, {"kind": kind, **known, **about}


EVENTS = [
    event("turn_started", agent="lead"),
    event("action_started", agent="lead", tool_name="web_search", tool_call_id="a"),
    item("turn", 1, seconds=5.5, is_timed=True),
    item("model_call", 2, seconds=1.25, model="m"),
    item("action", 3, seconds=4.0, name="web_search", arguments={}, result="found", has_failed=False),
    event("turn_ended", agent="lead"),
    ("task_complete", "3", {"timestamp": "2026-01-01T00:00:00+00:00", "task_id": "t", "response": "done"}),
]


@pytest.mark.parametrize(("stream", "is_shown"), [(Screen(), True), (io.StringIO(), False)])
async def test_on_a_terminal_the_line_is_drawn_below_the_events(
    stream: io.StringIO, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    output = Output(stream)
    await show_stream(None, Stream(EVENTS), output)  # type: ignore[arg-type]
    text = stream.getvalue()
    assert ("lead: web_search" in text) is is_shown
    assert ("\x1b[2K" in text) is is_shown
    assert ("lead 5.5 s (models 1.2 s, web_search 4.0 s)" in text) is is_shown
    assert ("Answer:\x1b[0m\ndone" if is_shown else "Answer: done") in text
    assert "turn_started" not in text
