"""What a paused task asks, in words."""

from typing import Any

import pytest

from mail.core.protocol.question_text import MAX_QUESTION, describe_question
from mail.core.task.turn_state import Breakpoint, Decision, PausedCall


@pytest.mark.parametrize(
    ("agent", "arguments", "needs_approval", "words"),
    [
        ("lead", {"question": "May\n I?", "n": 1}, False, "lead asks: May I?"),
        ("lead", {"text": "May I?"}, False, "lead asks: May I?"),
        ("", {"text": "May I?"}, False, "the swarm asks: May I?"),
        ("lead", {"n": 1}, False, "lead waits for the result of pay(n: 1)"),
        ("lead", {"to": "bob", "n": [1]}, False, "lead waits for the result of pay(to: bob, n: [1])"),
        ("lead", {"question": "May I?"}, True, "lead wants to run pay(question: May I?)"),
        ("lead", {}, True, "lead wants to run pay()"),
    ],
)
def test_words(agent: str, arguments: dict[str, Any], needs_approval: bool, words: str) -> None:
    assert describe_question(agent, "pay", arguments, needs_approval=needs_approval) == words


def test_long_ones_are_cut() -> None:
    words = describe_question("lead", "ask", {"question": "x" * 10_000})
    assert (len(words), words[-2:]) == (MAX_QUESTION, "x…")


def test_a_task_asks_with_its_undecided_calls() -> None:
    decided = PausedCall(
        call_id="a",
        name="pay",
        arguments={},
        needs_approval=True,
        approval=Decision(is_approved=True, by="u"),
    )
    waiting = PausedCall(call_id="b", name="pay", arguments={"n": 2}, needs_approval=True)
    asked = PausedCall(call_id="c", name="ask", arguments={"question": "Why?"})
    reached = Breakpoint(agent="lead", tool_format="completions", calls=(decided, waiting, asked))
    assert reached.question == "lead wants to run pay(n: 2)\nlead asks: Why?"
