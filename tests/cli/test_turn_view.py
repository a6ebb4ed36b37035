"""`mail task turn` on a terminal: a turn in words, of either API of models."""

import io
from typing import Any

import pytest
from support.processes.terminal import Screen

from mail.cli.output import Output
from mail.cli.views.turns import show_turn

MAIL = {
    "msg_type": "request",
    "message": {
        "sender": {"address_type": "user", "address": "ann"},
        "recipient": {"address_type": "agent", "address": "lead"},
        "subject": "New Message",
        "body": "6*7?",
    },
}
TURN: dict[str, Any] = {
    "task_id": "sums",
    "agent": "lead",
    "first": 2,
    "last": 5,
    "committed": "2026-01-31T08:00:00Z",
    "timing": {
        "began": "…",
        "seconds": 2.0,
        "model_calls": [{"model": "m", "after": 0, "seconds": 1.5, "attempts": 2}],
    },
    "usage": {"calls": 1, "input_tokens": 10, "output_tokens": 3, "cost": 0.5},
    "mail": [{"message": MAIL}],
    "omitted": 1,
    "history": [{"role": "user", "content": "line one\nline two\x1b[2J"}],
    "setup": {
        "model": "m",
        "system": "You lead.",
        "tools": [{"name": "add"}],
        "has_more_tools": True,
        "version": "d1g3st",
        "name": "1.0",
        "code": "c0de",
        "is_present": False,
    },
}
RESPONSES = [
    {"type": "reasoning", "summary": [{"text": "Hm."}]},
    {"type": "function_call", "name": "add", "arguments": '{"a": 6}', "call_id": "c"},
    {"type": "function_call_output", "call_id": "c", "output": "SUCCESS: 42"},
]
CHAT = [
    {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 6}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "SUCCESS: 42"},
]


@pytest.mark.parametrize("reply", [RESPONSES, CHAT])
def test_in_words(reply: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Screen()
    show_turn({**TURN, "output": reply}, Output(stream))
    shown = stream.getvalue()
    for line in (
        "events      2 to 5",
        "model call  m 1.5 s, 2 attempts",
        "usage       1 model call, 10 tokens in, 3 out, 0.5000 USD",
        "mail        ann → lead  6*7?",
        "version     1.0 (d1g3st, code c0de); another one runs now",
        "tools       add, those of MCP servers",
        "system      You lead.",
        "user        line one\n            line two\\u001b[2J",
        'call        add {"a": 6}',
        "result      SUCCESS: 42",
    ):
        assert f"{line}\n" in shown
    assert "What it read, without 1 older entry" in shown
    assert "Hm.\n" in shown


def test_a_turn_that_added_nothing() -> None:
    stream = Screen()
    show_turn({**TURN, "output": None, "timing": None, "usage": None, "setup": None}, Output(stream))
    assert "Added nothing to its history" in stream.getvalue()


def test_a_pipe_gets_text_too() -> None:
    stream = io.StringIO()
    show_turn({**TURN, "output": CHAT}, Output(stream))
    assert "result      SUCCESS: 42\n" in stream.getvalue()
    assert "committed   2026-01-31T08:00:00Z\n" in stream.getvalue()
