"""Filters, acknowledgements, threads: grouping, summaries, conversations."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mail.agentmail import (
    ACK_REQUIRED,
    ACK_WITHIN,
    AgentMailMessage,
    BeadState,
    MessageType,
    Parser,
    Summary,
    Thread,
    Turn,
    deadline,
    filter_by_bead_id,
    filter_completions,
    filter_overdue,
    filter_pending,
    filter_successes,
    group_threads,
)
from mail.errors import BadRequest

START = datetime(2026, 1, 31, 8, tzinfo=UTC)


def at(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat()


def message(subject: str, body: str = "", **fields: Any) -> AgentMailMessage:
    return Parser().parse({"subject": subject, "body": body, **fields})


ALL = [message(kind.value, id=str(number)) for number, kind in enumerate(reversed(MessageType))]


def types(messages: list[AgentMailMessage]) -> list[str]:
    return [message.type.value for message in messages]


def test_completions_and_successes_in_their_order() -> None:
    assert types(filter_completions(ALL)) == ["DONE", "FAILED", "CHECKPOINT", "OFFERING_READY"]
    assert types(filter_successes(iter(ALL))) == ["DONE", "OFFERING_READY"]


def test_acknowledgement_is_required_of_three_types() -> None:
    assert {"HELP_REQUEST", "OFFERING_READY", "SPAWN_REQUEST"} == ACK_REQUIRED
    assert {message.type for message in ALL if message.ack_required} == ACK_REQUIRED


def test_pending_is_required_and_not_acknowledged() -> None:
    messages = [
        message("DONE", id="1", ack_required=True),
        message("HELP_REQUEST", id="2", acknowledged=True),
        message("HELP_REQUEST", id="3", ack_required=False),
        message("PROGRESS", id="4"),
        message("OFFERING_READY", id="5"),
        message("Lunch?", id="6", ack_required=True),
    ]
    assert [found.id for found in filter_pending(messages)] == ["1", "5", "6"]


def test_by_bead_id_in_their_order() -> None:
    messages = [
        message(f"[{bead}] PROGRESS", id=str(n)) for n, bead in enumerate(["a-1", "a-1.1", "a-1", "A-1"])
    ]
    assert [found.id for found in filter_by_bead_id(messages, "a-1")] == ["0", "2"]


def test_who_acknowledges_first_stays_on_record() -> None:
    first = message("HELP_REQUEST", id="1")
    once = first.acknowledge("chiron")
    assert once.acknowledge("crank") is once
    assert (once.acknowledged, once.acknowledged_by, once.is_pending) == (True, "chiron", False)
    assert first.is_pending


def test_overdue_is_pending_past_its_deadline() -> None:
    messages = [message("HELP_REQUEST", id=str(n), timestamp=at(n)) for n in range(4)]
    messages[1] = messages[1].acknowledge("chiron")
    messages += [message("PROGRESS", id="p", timestamp=at(0)), message("HELP_REQUEST", id="n")]
    within = timedelta(minutes=10)
    assert filter_overdue(messages, START + timedelta(minutes=10), within) == []
    assert [found.id for found in filter_overdue(messages, START + timedelta(minutes=12.5), within)] == [
        "0",
        "2",
    ]
    assert len(filter_overdue(messages, START + timedelta(days=1), within)) == 3
    assert deadline(messages[0], within) == START + within
    assert deadline(messages[0]) == START + ACK_WITHIN
    assert deadline(messages[-1]) is deadline(messages[-2]) is None


def test_now_has_a_time_zone() -> None:
    with pytest.raises(BadRequest, match="time zone"):
        filter_overdue([], START.replace(tzinfo=None))


STORY = [
    message("SPAWN_REQUEST", "Issue: ol-1\nOrchestrator: crank", id="s", sender="crank", timestamp=at(0)),
    message(
        "SPAWN_ACK", "Issue: ol-1\nStatus: spawned\nSession: d-7", id="k", sender="spawner", timestamp=at(1)
    ),
    message("BEAD_ACCEPTED", "Accepted bead: ol-1\nTitle: Auth", id="a", sender="ann", timestamp=at(2)),
    message(
        "PROGRESS",
        "Bead: ol-1\nStep: 1\nStatus: fine\nContext usage: 40%\nFiles touched: a.py, b.py",
        id="p",
        sender="ann",
        timestamp=at(3),
    ),
    message("HELP_REQUEST", "Bead: ol-1\nIssue Type: STUCK", id="h", sender="ann", timestamp=at(4)),
    message("HELP_RESPONSE", "Go on.", id="r", sender="chiron", thread_id="ol-1", timestamp=at(5)),
    message(
        "OFFERING_READY",
        "Bead: ol-1\n- Commit: abc\n- Files: c.py, a.py",
        id="o",
        sender="ann",
        timestamp=at(6),
    ),
]


def test_messages_are_grouped_by_thread_else_by_bead() -> None:
    others = [
        message("[ol-2] PROGRESS", id="x"),
        message("PROGRESS", "Bead: ol-2", thread_id="wave", id="y"),
        message("Hi", id="z"),
        message("So?", reply_to="x", id="w"),
    ]
    threads = group_threads([*STORY, *others])
    assert {name: [found.id for found in thread.messages] for name, thread in threads.items()} == {
        "ol-1": ["s", "k", "a", "p", "h", "r", "o"],
        "ol-2": ["x", "w"],
        "wave": ["y"],
        "": ["z"],
    }


def test_threads_begin_with_the_oldest_message() -> None:
    messages = [
        message("DONE", id="3", thread_id="t", timestamp="2026-01-31T09:30:00+01:00"),
        message("Hm", id="4", thread_id="t"),
        message("PROGRESS", id="2", thread_id="t", timestamp="2026-01-31T08:29:00Z"),
        message("PROGRESS", id="1", thread_id="t", timestamp="2026-01-31T09:28:00+01:00"),
    ]
    assert [found.id for found in group_threads(messages)["t"].messages] == ["1", "2", "3", "4"]


def test_summary_of_a_thread() -> None:
    summary = group_threads(reversed(STORY))["ol-1"].summary
    assert summary.thread_id == summary.bead_id == "ol-1"
    assert (summary.state, summary.worker, summary.title, summary.session) == (
        BeadState.OFFERED,
        "ann",
        "Auth",
        "d-7",
    )
    assert summary.last_progress is not None
    assert (summary.last_progress.step, summary.last_progress_at, summary.context_usage) == ("1", at(3), 40)
    assert (summary.files, summary.commit_sha) == (("a.py", "b.py", "c.py"), "abc")
    assert summary.pending == ("o",)
    assert [
        found.pending
        for found in (Thread(thread_id="ol-1", messages=tuple(STORY[:n])).summary for n in (1, 5, 6))
    ] == [
        ("s",),
        ("h",),
        (),
    ]
    assert summary.counts == {found.type: 1 for found in STORY}
    assert summary.messages == 7
    assert summary.participants == ("crank", "spawner", "ann", "chiron")
    assert (summary.started_at, summary.updated_at) == (at(0), at(6))
    assert Summary.model_validate_json(summary.model_dump_json()) == summary


def outline(thread: Thread) -> list[tuple[str, int, str]]:
    return [(turn.message.id, turn.level, turn.answers) for turn in thread.conversation]


def test_conversation_has_answers_below_what_they_answer() -> None:
    thread = group_threads(STORY)["ol-1"]
    assert Thread.model_validate_json(thread.model_dump_json()) == thread
    assert outline(thread) == [
        ("s", 0, ""),
        ("k", 1, "s"),
        ("a", 0, ""),
        ("p", 0, ""),
        ("h", 0, ""),
        ("r", 1, "h"),
        ("o", 0, ""),
    ]


def test_conversation_with_named_answers() -> None:
    messages = (
        message("HELP_REQUEST", id="1"),
        message("HELP_REQUEST", id="2"),
        message("PROGRESS", id="3"),
        message("HELP_RESPONSE", id="4", reply_to="1"),
        message("HELP_RESPONSE", id="5"),
        message("Thanks", id="6", reply_to="4"),
        message("Loop", id="7", reply_to="7"),
        message("Early", id="8", reply_to="9"),
        message("Late", id="9", reply_to="8"),
    )
    thread = Thread(thread_id="t", messages=messages)
    assert outline(thread) == [
        ("1", 0, ""),
        ("4", 1, "1"),
        ("6", 2, "4"),
        ("2", 0, ""),
        ("5", 1, "2"),
        ("3", 0, ""),
        ("7", 0, ""),
        ("8", 0, ""),
        ("9", 1, "8"),
    ]
    [turn, *_] = thread.conversation
    assert Turn.model_validate_json(turn.model_dump_json()) == turn


def test_conversation_may_be_deep() -> None:
    messages = tuple(message("Hm", id=str(n), reply_to=str(n - 1)) for n in range(3000))
    assert [turn.level for turn in Thread(thread_id="t", messages=messages).conversation] == list(range(3000))
